//! Shared pieces of the whole-program tests: the binary, run folders, processes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The root of the repository.
pub fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).expect("the package lies two folders below the root").to_owned()
}

/// The program under test: the one cargo built for these tests, or for an example the one beside it.
pub fn program() -> PathBuf {
    if let Some(built) = option_env!("CARGO_BIN_EXE_reelbench") {
        return built.into();
    }
    let example = std::env::current_exe().expect("this program has a path");
    let folder = example.parent().and_then(Path::parent).expect("examples lie beside the program");
    folder.join("reelbench")
}

/// A command of the program, run from the root with the assets of the repository.
pub fn reelbench(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).current_dir(root()).stdin(Stdio::null());
    command
}

/// Runs to the end, at most `limit`; kills and panics beyond.
pub fn finish(command: &mut Command, limit: Duration) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let pid = child.id();
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("wait".into())
        .spawn(move || sender.send(child.wait_with_output()))
        .expect("a thread can be started");
    match receiver.recv_timeout(limit) {
        Ok(output) => output.expect("the program can be waited for"),
        Err(_) => {
            signal("KILL", pid);
            panic!("the program did not end within {limit:?}");
        }
    }
}

/// Both outputs as text, for messages.
pub fn said(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Sends a signal to one process.
pub fn signal(name: &str, pid: u32) {
    let _ = Command::new("kill").args(["-s", name, &pid.to_string()]).status();
}

/// Waits until `check` gives something, at most `limit`.
pub fn eventually<T>(limit: Duration, mut check: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = check() {
            return Some(found);
        }
        if Instant::now() > end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Pids of processes whose command line holds every word.
pub fn processes_with(words: &[&str]) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pid = |entry: std::fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        words.iter().all(|word| line.contains(word)).then_some(pid)
    };
    entries.flatten().filter_map(pid).collect()
}

/// A file of the assets, or `None` after saying aloud why the test is skipped.
pub fn asset(name: &str) -> Option<PathBuf> {
    let path = root().join("assets").join(name);
    if path.exists() {
        return Some(path);
    }
    println!("SKIPPED: {} is missing; run `reelbench assets fetch`", path.display());
    None
}

/// The summary of a run folder.
pub fn summary(folder: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(folder.join("summary.json")).expect("the run wrote summary.json");
    serde_json::from_str(&text).expect("summary.json is JSON")
}
