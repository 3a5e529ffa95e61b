//! The broker as a process of its own, to be killed and to be looked at from outside.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use builtin_broker::BrokerFacts;

/// A running `serve` example.
pub struct ServeProcess {
    child: Child,
    output: BufReader<ChildStdout>,
    pub bootstrap: String,
}

/// The example beside the test binary; `cargo test` builds it.
pub fn serve_path() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let path = here.parent().unwrap().parent().unwrap().join("examples/serve");
    assert!(
        path.exists(),
        "{} is missing: build it with `cargo build --release -p builtin_broker --examples`",
        path.display()
    );
    path
}

impl ServeProcess {
    pub fn start(dir: &Path, options: &[&str]) -> ServeProcess {
        ServeProcess::spawn(Command::new(serve_path()).arg(dir).arg("disk_floor_bytes=0").args(options))
    }

    /// Start a command that ends in running the example.
    pub fn spawn(command: &mut Command) -> ServeProcess {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let bootstrap = line.trim().strip_prefix("ready ").expect("the ready line").to_owned();
        ServeProcess { child, output, bootstrap }
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.bootstrap.split(',').map(|address| address.parse().unwrap()).collect()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, as the kernel's memory killer or an impatient person would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stop cleanly; what the broker counted.
    pub fn stop(mut self) -> BrokerFacts {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        serde_json::from_str(rest.trim().strip_prefix("facts ").expect("the facts line")).unwrap()
    }
}
