//! The commands of the README and the guides are run: what a reader types must work.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{asset, finish, reelbench, root, said};

/// Lines of shell blocks that call the program.
fn commands(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut inside = false;
    let mut commands = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            inside = !inside && (line == "```" || line == "```sh" || line == "```bash" || line == "```console");
        } else if inside && line.trim_start_matches("$ ").starts_with("reelbench ") {
            commands.push(line.trim_start_matches("$ ").split(" #").next().unwrap().trim().to_owned());
        }
    }
    commands
}

fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let guides = std::fs::read_dir(root().join("docs/guide")).unwrap();
    pages.extend(guides.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "md")));
    pages
}

/// Checks a command: `run` lines by `check` of the same arguments, verbs that read by running them, the rest by `--help`.
#[test]
fn documented_commands_are_accepted() {
    if asset("bbb-1080p24.mp4").is_none() {
        return;
    }
    let mut seen = 0;
    for page in pages() {
        for command in commands(&page) {
            seen += 1;
            let words: Vec<&str> = command.split_whitespace().skip(1).collect();
            let output = match words[0] {
                "run" => finish(reelbench(&["check"]).args(check_arguments(&words[1..])), Duration::from_secs(60)),
                "check" | "schema" | "doctor" | "completions" => {
                    finish(&mut reelbench(&words), Duration::from_secs(60))
                }
                "stage" if words[1] == "list" => finish(&mut reelbench(&words), Duration::from_secs(60)),
                verb => {
                    let mut with_help = vec![verb];
                    with_help.extend(words.get(1).filter(|word| ["run", "fetch", "list", "verify"].contains(*word)));
                    with_help.push("--help");
                    let output = finish(&mut reelbench(&with_help), Duration::from_secs(60));
                    let help = said(&output);
                    for flag in words.iter().filter(|word| word.starts_with("--")) {
                        let flag = flag.split('=').next().unwrap();
                        assert!(help.contains(flag), "{}: `{command}`: {flag} is not an option", page.display());
                    }
                    output
                }
            };
            assert!(output.status.success(), "{}: `{command}`: {}", page.display(), said(&output));
        }
    }
    assert!(seen >= 8, "only {seen} commands are documented");
}

/// Arguments of `run` that `check` takes too.
fn check_arguments<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--out" | "--format" => drop(words.next()),
            "--keep-data" | "--allow-ram" | "--force" => {}
            other => kept.push(other),
        }
    }
    kept
}

#[test]
fn the_readme_is_short_and_leads_with_two_commands() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(text.lines().count() <= 150);
    let first = text.find("make demo").expect("the README names `make demo`");
    let second = text.find("make test").expect("the README names `make test`");
    assert!(first < second);
}

#[test]
fn generated_pages_are_fresh() {
    for (page, what) in [("scenario", "scenario"), ("summary", "summary"), ("metrics", "metrics")] {
        let path = root().join("docs/reference").join(format!("{page}.md"));
        let output = finish(&mut reelbench(&["schema", what, "--markdown"]), Duration::from_secs(30));
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        let expected = String::from_utf8(output.stdout).unwrap();
        assert!(found == expected, "{}: run `reelbench schema {what} --markdown > {}`", path.display(), path.display());
    }
}
