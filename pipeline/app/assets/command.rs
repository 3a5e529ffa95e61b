//! Run a tool of the host: bounded in time, never waiting for input, with its last words kept for the error message.

use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

/// More of a tool's output than this is read and thrown away.
const KEPT_BYTES: usize = 1 << 20;

/// What a tool said; it ended with `success` or not.
pub struct Finished {
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// The last lines of what the tool complained about, on one line: those marked as errors, if any are.
    pub fn last_words(&self) -> String {
        let said: Vec<&str> = self.stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let marked = |line: &&&str| line.starts_with("ERROR") || line.starts_with("error");
        let errors: Vec<&str> = said.iter().filter(marked).copied().collect();
        let lines = if errors.is_empty() { said } else { errors };
        lines[lines.len().saturating_sub(4)..].join("; ")
    }
}

/// Run `command` to its end. A tool that is not installed is an error with `remedy`.
pub fn run(command: &mut Command, limit: Duration, remedy: &str) -> Result<Finished> {
    let name = command.get_program().to_string_lossy().into_owned();
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!("{name} is not installed: {remedy}"),
        Err(error) => return Err(error).with_context(|| format!("start {name}")),
    };
    let outputs = collect(&mut child, limit);
    if outputs.is_err() {
        // It may have ended by itself meanwhile, which is as good.
        let _ = child.kill();
    }
    let status = child.wait().with_context(|| format!("wait for {name}"))?;
    let (stdout, stderr) = outputs.with_context(|| format!("run {name}"))?;
    Ok(Finished { success: status.success(), stdout, stderr })
}

/// Both outputs, read side by side so that neither can fill its pipe and stop the tool.
fn collect(child: &mut Child, limit: Duration) -> Result<(String, String)> {
    // Two messages ever: one from each reader.
    let (sender, receiver) = sync_channel(2);
    let stdout = child.stdout.take().context("the standard output of a child is piped")?;
    let stderr = child.stderr.take().context("the standard error of a child is piped")?;
    reader("tool-stdout", stdout, false, sender.clone())?;
    reader("tool-stderr", stderr, true, sender)?;
    let mut outputs = [String::new(), String::new()];
    for _ in 0..2 {
        let (is_stderr, text) = receiver
            .recv_timeout(limit)
            .map_err(|_| anyhow!("it did not end within {} s and was stopped", limit.as_secs()))?;
        outputs[usize::from(is_stderr)] = text;
    }
    let [stdout, stderr] = outputs;
    Ok((stdout, stderr))
}

fn reader(
    name: &str,
    mut pipe: impl Read + Send + 'static,
    is_stderr: bool,
    done: SyncSender<(bool, String)>,
) -> Result<()> {
    let body = move || {
        let mut kept = Vec::new();
        let mut buffer = [0_u8; 8192];
        while let Ok(read @ 1..) = pipe.read(&mut buffer) {
            if kept.len() < KEPT_BYTES {
                kept.extend_from_slice(&buffer[..read]);
            }
        }
        // The receiver is gone when the tool was stopped for taking too long.
        let _ = done.send((is_stderr, String::from_utf8_lossy(&kept).into_owned()));
    };
    thread::Builder::new().name(name.to_owned()).spawn(body).with_context(|| format!("start thread {name}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<Finished> {
        run(Command::new("sh").args(["-c", script]), limit, "install a shell")
    }

    #[test]
    fn both_outputs_and_the_status_come_back() {
        let finished = shell("echo out; echo err >&2; exit 3", Duration::from_secs(60)).unwrap();
        assert!(!finished.success);
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn a_talkative_tool_does_not_block_and_is_not_kept_whole() {
        let finished = shell("head -c 8000000 /dev/zero >&2; echo done", Duration::from_secs(60)).unwrap();
        assert_eq!(finished.stdout, "done\n");
        assert!(finished.stderr.len() < KEPT_BYTES + 8192);
    }

    #[test]
    fn a_tool_that_hangs_is_stopped() {
        let error = shell("exec sleep 1000", Duration::from_millis(50)).err().unwrap();
        assert!(format!("{error:#}").contains("did not end within"), "{error:#}");
    }

    #[test]
    fn an_absent_tool_is_named_with_the_remedy() {
        let mut command = Command::new("no-such-tool-as-this");
        let error = run(&mut command, Duration::from_secs(1), "run scripts/setup").err().unwrap();
        assert_eq!(error.to_string(), "no-such-tool-as-this is not installed: run scripts/setup");
    }
}
