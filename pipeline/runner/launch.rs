//! Child processes: the built-in broker and the stage instances. Every child is ended, whatever happens to the run.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Bytes of a child's log that an error quotes.
const TAIL_BYTES: u64 = 2_000;

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("start {what}: {source}")]
    Spawn { what: String, source: io::Error },
    #[error("{what} did not become ready within {} s: {tail}", timeout.as_secs())]
    NotReady { what: String, timeout: Duration, tail: String },
    #[error("{what} ended before it was ready ({status}): {tail}")]
    Ended { what: String, status: String, tail: String },
}

/// One child and its log.
pub struct Process {
    /// `broker`, `cameras-0`.
    pub role: String,
    pub pid: u32,
    pub log: PathBuf,
    child: Child,
    exit: Option<ExitStatus>,
}

impl Process {
    /// Starts `program` with its output going to `log`. The child itself asks to be told of our death.
    pub fn spawn(role: &str, program: &Path, args: &[String], log: &Path, stdout: Stdio) -> Result<Self, LaunchError> {
        let fail = |source| LaunchError::Spawn { what: role.to_owned(), source };
        if let Some(folder) = log.parent() {
            std::fs::create_dir_all(folder).map_err(fail)?;
        }
        let file = File::options().create(true).append(true).open(log).map_err(fail)?;
        let mut command = Command::new(program);
        command
            .args(args)
            .env(PARENT_PID_ENV, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(file)
            // A terminal's Ctrl-C goes to the runner alone; it tells the children in order.
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn().map_err(fail)?;
        let pid = child.id().unwrap_or(0);
        Ok(Process { role: role.to_owned(), pid, log: log.to_owned(), child, exit: None })
    }

    /// How it ended, once it has.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        if self.exit.is_none() {
            self.exit = self.child.try_wait().ok().flatten();
        }
        self.exit
    }

    pub fn signal(&mut self, signal: Signal) {
        if self.exited().is_none()
            && let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process(pid, signal);
        }
    }

    /// Asks to end, waits `grace`, then kills. True when it ended by itself.
    pub async fn end(&mut self, grace: Duration) -> bool {
        if self.exited().is_some() {
            return true;
        }
        self.signal(Signal::TERM);
        if let Ok(status) = tokio::time::timeout(grace, self.child.wait()).await {
            self.exit = status.ok();
            return true;
        }
        let _ = self.child.start_kill();
        self.exit = tokio::time::timeout(Duration::from_secs(5), self.child.wait()).await.ok().and_then(Result::ok);
        false
    }

    /// The end of its log, for an error message.
    pub fn tail(&self) -> String {
        tail(&self.log)
    }

    /// Waits for a line `ready <rest>` on its standard output; the rest is returned.
    pub async fn ready_line(&mut self, timeout: Duration) -> Result<String, LaunchError> {
        let Some(stdout) = self.child.stdout.take() else {
            return Err(LaunchError::NotReady { what: self.role.clone(), timeout, tail: "no output to read".into() });
        };
        let mut lines = BufReader::new(stdout).lines();
        let search = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(rest) = line.strip_prefix("ready ") {
                    return Some(rest.trim().to_owned());
                }
            }
            None
        };
        match tokio::time::timeout(timeout, search).await {
            Ok(Some(rest)) => Ok(rest),
            Err(_) => Err(LaunchError::NotReady { what: self.role.clone(), timeout, tail: self.tail() }),
            Ok(None) => {
                let status = tokio::time::timeout(Duration::from_secs(2), self.child.wait()).await;
                self.exit = status.ok().and_then(Result::ok);
                let status = self.exit.map_or_else(|| "no exit status".to_owned(), |status| status.to_string());
                Err(LaunchError::Ended { what: self.role.clone(), status, tail: self.tail() })
            }
        }
    }
}

/// Tells a child who started it, so that it can end when that process is gone.
pub const PARENT_PID_ENV: &str = "REELBENCH_PARENT_PID";

/// Called first thing in a child: end with the parent, also when it died before this line.
pub fn end_with_parent() {
    let Some(parent) = std::env::var(PARENT_PID_ENV).ok().and_then(|pid| pid.parse::<i32>().ok()) else { return };
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
    if rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
        let _ = kill_process(rustix::process::getpid(), Signal::TERM);
    }
}

fn tail(path: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    match read() {
        Ok(text) if !text.is_empty() => {
            text.lines().rev().take(6).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n  ")
        }
        _ => format!("nothing in {}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, folder: &Path) -> Process {
        let args = ["-c".to_owned(), script.to_owned()];
        Process::spawn("test", Path::new("/bin/sh"), &args, &folder.join("log"), Stdio::piped()).unwrap()
    }

    #[tokio::test]
    async fn the_ready_line_is_found_and_a_deaf_child_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let mut child =
            shell("trap '' TERM; echo noise; echo ready 127.0.0.1:1; while :; do sleep 0.05; done", folder.path());
        assert_eq!(child.ready_line(Duration::from_secs(10)).await.unwrap(), "127.0.0.1:1");
        assert!(child.exited().is_none());
        assert!(!child.end(Duration::from_millis(300)).await);
        assert!(child.exited().is_some());
    }

    #[tokio::test]
    async fn a_child_that_ends_early_is_reported_with_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = shell("echo port is taken >&2; exit 3", folder.path());
        let error = child.ready_line(Duration::from_secs(10)).await.unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("port is taken"), "{error}");
    }
}
