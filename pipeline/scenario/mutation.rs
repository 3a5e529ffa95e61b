//! Thousands of damaged scenarios: each is accepted or refused with a place, none crashes or hangs, and whatever an
//! independent validator refuses by the published schema is refused here.

use std::sync::mpsc;
use std::time::Duration;

use contract::random::Random;
use serde_json::Value as Json;

use crate::load_text;
use crate::problem::{Findings, Place};
use crate::testing::{GOOD, REGISTRY};

/// Far more than any of these texts needs; reached only by a hang.
const HANG: Duration = Duration::from_secs(120);

/// Pieces that have meaning somewhere in YAML or in a scenario.
const PIECES: &[&str] = &[
    ": ",
    "- ",
    "\n",
    "\n  ",
    "  ",
    "\t",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "'",
    "#",
    "&a ",
    "*a",
    "!!str ",
    "!x ",
    "|\n",
    ">\n",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "? ",
    "<<: ",
    "~",
    "null",
    "true",
    "no",
    "0",
    "-1",
    "1e999",
    "0x7f",
    "18446744073709551616",
    "1.5",
    ".nan",
    "30s",
    "64MiB",
    "99999999999TB",
    "1h",
    "0s",
    "é",
    "\u{feff}",
    "\u{2028}",
    "\0",
    "\u{7f}",
    "stages:",
    "topics:",
    "config:",
    "kind: infer",
    "kind: exporter",
    "from: frames",
    "to: frames",
    "to: [frames, results]",
    "spread: copy",
    "reuse: true",
    "id: cameras",
    "name: frames",
    "instances: 0",
    "replication: 9",
    "bootstrap_servers: a:1",
    "publish: { acks: \"0\" }",
    "mode: cached",
];

fn mutations() -> u64 {
    if std::env::var("REELBENCH_LONG").is_ok_and(|value| value == "1") { 10_000 } else { 500 }
}

/// One to three damages to a text.
fn damaged(random: &mut Random) -> String {
    let mut text: Vec<char> = GOOD.chars().collect();
    for _ in 0..=random.below(3) {
        let at = random.below(text.len() as u64 + 1) as usize;
        let end = (at + 1 + random.below(12) as usize).min(text.len());
        let piece = PIECES[random.below(PIECES.len() as u64) as usize];
        match random.below(8) {
            0 => drop(text.drain(at..end)),
            1 => drop(text.splice(at..end, piece.chars())),
            2 | 3 => drop(text.splice(at..at, piece.chars())),
            4 => {
                let copied: Vec<char> = text[at..end].to_vec();
                let to = random.below(text.len() as u64 + 1) as usize;
                drop(text.splice(to..to, copied));
            }
            5 => text.truncate(at),
            6 => lines_swapped(&mut text, random),
            _ => {
                if let Some(c) = text.get_mut(at) {
                    *c = char::from_u32(random.below(0x300) as u32).unwrap_or('?');
                }
            }
        }
    }
    text.into_iter().collect()
}

/// A line moved elsewhere, or written twice.
fn lines_swapped(text: &mut Vec<char>, random: &mut Random) {
    let joined: String = text.iter().collect();
    let mut lines: Vec<&str> = joined.split('\n').collect();
    let from = random.below(lines.len() as u64) as usize;
    let to = random.below(lines.len() as u64) as usize;
    let line = if random.below(2) == 0 { lines.remove(from) } else { lines[from] };
    lines.insert(to.min(lines.len()), line);
    *text = lines.join("\n").chars().collect();
}

/// The values of a text that parses without a complaint.
fn values(text: &str) -> Option<Json> {
    let mut found = Findings::default();
    let tree = crate::yaml::parse(text, |line, column| Place::File { line, column }, &mut found);
    tree.filter(|_| found.errors() == 0).map(|tree| tree.to_json())
}

/// What is wrong with how a text was answered; an accepted text counts in `accepted`.
fn judge(
    text: &str,
    overrides: &[String],
    validator: &jsonschema::Validator,
    accepted: &mut u64,
) -> Result<(), String> {
    let lines = text.split('\n').count() as u32;
    match load_text(text, "f.yaml", overrides, &REGISTRY) {
        Ok(loaded) => {
            *accepted += 1;
            let again =
                load_text(&loaded.text, "again.yaml", &[], &REGISTRY).map_err(|problems| problems.to_string())?;
            if (&again.scenario, &again.text) != (&loaded.scenario, &loaded.text) {
                return Err("the text as run is another scenario".into());
            }
            let values = values(text).unwrap_or_default();
            match overrides.is_empty() && !validator.is_valid(&values) {
                true => Err(format!(
                    "accepted, but refused by the published schema: {:?}",
                    validator.iter_errors(&values).next()
                )),
                false => Ok(()),
            }
        }
        Err(problems) if problems.0.is_empty() => Err("refused without a problem".into()),
        Err(problems) => {
            let placed = |problem: &&crate::Problem| match (problem.line, problem.column) {
                (Some(line), Some(column)) => line >= 1 && line <= lines + 1 && column >= 1,
                _ => problem.source.starts_with("--set "),
            };
            match problems.0.iter().find(|problem| !placed(problem)) {
                // The net below the parser holds, but it should not be needed.
                None if problems.to_string().contains("the YAML parser failed") => {
                    Err("the YAML parser crashed".into())
                }
                Some(problem) => Err(format!("a problem without a place in the text: {problem}")),
                None => Ok(()),
            }
        }
    }
}

/// Runs `work` on a thread and fails, naming the last case begun, when it does not end.
fn without_hang(work: impl FnOnce(&mpsc::SyncSender<String>) + Send + 'static) {
    let (sender, receiver) = mpsc::sync_channel(1);
    let worker = std::thread::spawn(move || work(&sender));
    let mut last = String::new();
    loop {
        match receiver.recv_timeout(HANG) {
            Ok(case) => last = case,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no end within {HANG:?}:\n{last}"),
        }
    }
    if worker.join().is_err() {
        panic!("a crash:\n{last}");
    }
}

#[test]
fn damaged_scenarios_are_accepted_or_refused_with_a_place() {
    without_hang(|begun| {
        let validator = jsonschema::validator_for(&crate::json_schema(&REGISTRY)).unwrap();
        let (mut accepted, cases) = (0, mutations());
        for seed in 0..cases {
            let text = damaged(&mut Random::new(seed));
            begun.send(text.clone()).unwrap();
            if let Err(problem) = judge(&text, &[], &validator, &mut accepted) {
                panic!("seed {seed}: {problem}\n{text}");
            }
        }
        println!("{cases} damaged scenarios: {accepted} accepted, {} refused with a place", cases - accepted);
        // Both answers must occur, or the damage is too small or too large to say anything.
        assert!(accepted > cases / 100 && accepted < cases * 9 / 10, "{accepted} of {cases} accepted");
    });
}

#[test]
fn damaged_overrides_are_accepted_or_refused_with_a_place() {
    const PATHS: &[&str] = &[
        "run.main",
        "stages.cameras.config.streams",
        "stages.cameras.config",
        "stages",
        "topics.frames.replication",
        "broker",
        "broker.client.a.b",
        "stages.camras.id",
        "run.\"",
        "..",
        "",
        "observe.data.path",
        "verdict.budget.x",
        "stages.cameras",
    ];
    without_hang(|begun| {
        let validator = jsonschema::validator_for(&crate::json_schema(&REGISTRY)).unwrap();
        let mut accepted = 0;
        for seed in 0..mutations() {
            let mut random = Random::new(seed);
            let mut pick = |list: &[&str]| list[random.below(list.len() as u64) as usize].to_owned();
            let overrides = [
                format!("{}={}{}", pick(PATHS), pick(PIECES), pick(PIECES)),
                format!("{}{}", pick(PATHS), pick(PIECES)),
            ];
            begun.send(format!("{overrides:?}")).unwrap();
            if let Err(problem) = judge(GOOD, &overrides[..1 + (seed % 2) as usize], &validator, &mut accepted) {
                panic!("seed {seed}: {problem}\n{overrides:?}");
            }
        }
        assert!(accepted > 0);
    });
}

#[test]
fn any_bytes_of_a_text_are_answered() {
    use proptest::prelude::{ProptestConfig, any, proptest};
    let config =
        ProptestConfig { cases: (mutations() / 2) as u32, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(text in any::<String>(), yaml in "[a-z:,#&*!|>'\"%@`{}\\[\\]? \n\t-]{0,200}")| {
        let _ = load_text(&text, "f", &[], &REGISTRY);
        let _ = load_text(&yaml, "f", &[], &REGISTRY);
    });
}

#[test]
fn hostile_texts_end_soon() {
    without_hang(|begun| {
        let many_keys: String = (0..60_000).map(|n| format!("k{n}: 1\n")).collect();
        let many_stages: String =
            (0..20_000).map(|n| format!("  - {{id: s{n}, kind: infer, from: t{n}, to: t{}}}\n", n + 1)).collect();
        let unknown_keys: String = (0..20_000).map(|n| format!("  abcdefghijklmnop{n}: 1\n")).collect();
        let texts = [
            many_keys,
            format!("run: {{name: x}}\nstages:\n{many_stages}"),
            format!("run:\n{unknown_keys}"),
            "{".repeat(200_000),
            "[a, ".repeat(100_000),
            "- ".repeat(300_000),
            "? ".repeat(300_000),
            "a: ".repeat(300_000),
            format!("a: \"{}", "\\n".repeat(400_000)),
            "\n".repeat(1_000_000),
            " ".repeat(1_000_000),
            format!("a: |\n{}", " \n".repeat(400_000)),
            "#".repeat(1_000_000),
            "!".repeat(1_000_000),
            "&a ".repeat(300_000),
            "'".repeat(1_000_000),
        ];
        for text in texts {
            begun.send(text.chars().take(80).collect()).unwrap();
            assert!(load_text(&text, "f", &[], &REGISTRY).is_err());
        }
    });
}
