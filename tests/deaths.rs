//! Kill -9 of every part in mid-run: each frame is accounted for, the verdict is right, the run ends, nobody is left behind.

use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{asset, eventually, processes_with, reelbench, said, signal, summary};
use serde_json::Value;

/// Longest that a run of these scenarios may take, start and drain included.
const LIMIT: Duration = Duration::from_secs(90);

const SCENARIO: &str = "
run: { name: deaths, warmup: 4s, main: 12s, drain: 6s }
broker: { nodes: 3 }
# A starved test machine must not outrank what these tests are about.
verdict: { max_steal: 1.0, decode: under_test }
topics:
  - { name: frames, partitions: 4, replication: 3 }
  - { name: results, partitions: 2, replication: 3 }
stages:
  - id: cameras
    kind: decode
    to: frames
    config: { pattern: { width: 320, height: 180, fps: 20 }, streams: 6 }
  - id: classify
    kind: infer
    from: frames
    to: results
    config: { model: squeezenet, select: { rate: 1 } }
";

/// A run in the background in a folder of its own.
struct Run {
    _folder: tempfile::TempDir,
    out: PathBuf,
    child: Option<Child>,
}

impl Run {
    fn start(arguments: &[&str]) -> Run {
        let folder = tempfile::tempdir().unwrap();
        let scenario = folder.path().join("deaths.yaml");
        std::fs::write(&scenario, SCENARIO).unwrap();
        let out = folder.path().join("out");
        let mut command = reelbench(&["run"]);
        // The temporary folder may be in RAM; these tests judge the audit and the class of the verdict, not the storage.
        command.arg(&scenario).arg("--out").arg(&out).arg("--allow-ram").args(arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Run { _folder: folder, out, child: Some(child) }
    }

    fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Waits until frames flow in main.
    fn until_main(&mut self) {
        let rows = self.out.join("series.jsonl");
        let in_main = || {
            let text = std::fs::read_to_string(&rows).ok()?;
            text.lines().any(|line| line.contains("\"phase\":\"main\"")).then_some(())
        };
        if eventually(LIMIT, in_main).is_none() {
            panic!("main was not reached: {}", said(&self.end()));
        }
        std::thread::sleep(Duration::from_secs(2));
    }

    /// The child process of a role: its command line names the run folder.
    fn process(&self, words: &[&str]) -> u32 {
        let folder = self.out.display().to_string();
        let mut all = vec![folder.as_str()];
        all.extend(words);
        let mut found = processes_with(&all);
        found.retain(|pid| *pid != self.pid());
        assert_eq!(found.len(), 1, "{words:?}: {found:?}");
        found[0]
    }

    fn end(&mut self) -> Output {
        let child = self.child.take().unwrap();
        let pid = child.id();
        let watchdog = std::thread::spawn({
            let out = self.out.clone();
            move || {
                let ended = eventually(LIMIT, || (!Path::new(&format!("/proc/{pid}/cmdline")).exists()).then_some(()));
                if ended.is_none() {
                    signal("KILL", pid);
                }
                (ended, out)
            }
        });
        let output = child.wait_with_output().unwrap();
        let (ended, _) = watchdog.join().unwrap();
        assert!(ended.is_some(), "the run did not end within {LIMIT:?}: {}", said(&output));
        output
    }

    fn assert_nobody_is_left(&self) {
        let folder = self.out.display().to_string();
        let left = || {
            let left = processes_with(&[&folder]);
            left.is_empty().then_some(())
        };
        let gone = eventually(Duration::from_secs(15), left);
        assert!(gone.is_some(), "left behind: {:?}", processes_with(&[&folder]));
    }
}

/// The identity over all source topics, exactly.
fn assert_every_frame_is_accounted(summary: &Value) {
    let audit = &summary["audit"];
    let n = |name: &str| audit[name].as_u64().unwrap();
    assert_eq!(n("offered"), n("delivered") + n("lost") + n("dropped") + n("in_flight"), "{audit}");
    assert_eq!((n("unexplained"), audit["identity_holds"].as_bool()), (0, Some(true)), "{audit}");
    assert!(n("offered") > 100, "{audit}");
}

fn status(summary: &Value) -> &str {
    summary["verdict"]["status"].as_str().unwrap()
}

fn broken(summary: &Value, id: &str) -> bool {
    let checks = summary["verdict"]["checks"].as_array().unwrap();
    checks.iter().any(|check| check["id"] == id && check["status"].as_str().is_some_and(|status| status != "PASS"))
}

fn ready() -> bool {
    asset("libonnxruntime.so.1.32.0").is_some()
}

#[test]
fn a_killed_broker_fails_the_run_and_leaves_frames_in_flight() {
    if !ready() {
        return;
    }
    let mut run = Run::start(&[]);
    run.until_main();
    signal("KILL", run.process(&["broker", "--data-dir"]));
    let killed = Instant::now();
    let output = run.end();
    assert!(killed.elapsed() < Duration::from_secs(45), "took {:?}", killed.elapsed());
    let summary = summary(&run.out);
    assert_every_frame_is_accounted(&summary);
    assert_eq!(status(&summary), "FAIL", "{}", summary["verdict"]);
    assert!(broken(&summary, "error") && summary["broker"]["died"] == true, "{}", summary["verdict"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    run.assert_nobody_is_left();
}

#[test]
fn a_restarted_broker_goes_on_and_loses_nothing_acknowledged() {
    if !ready() {
        return;
    }
    let mut run = Run::start(&["--set", "broker.restart.max=3", "--set", "run.drain=20s"]);
    run.until_main();
    signal("KILL", run.process(&["broker", "--data-dir"]));
    let output = run.end();
    let summary = summary(&run.out);
    assert_every_frame_is_accounted(&summary);
    let audit = &summary["audit"];
    for word in ["lost", "in_flight", "duplicates", "reordered", "corrupt"] {
        assert_eq!(audit[word], 0, "{word}: {audit}");
    }
    assert_eq!(summary["broker"]["died"], false, "{}", said(&output));
    assert!(!broken(&summary, "error"), "{}", summary["verdict"]);
    let warned =
        summary["warnings"].as_array().unwrap().iter().any(|w| w.as_str().unwrap().contains("started again: 1 of 3"));
    assert!(warned, "{}", summary["warnings"]);
    run.assert_nobody_is_left();
}

#[test]
fn a_killed_generator_makes_the_run_invalid_and_loses_nothing_acknowledged() {
    if !ready() {
        return;
    }
    let mut run = Run::start(&[]);
    run.until_main();
    signal("KILL", run.process(&["stage", "--id cameras"]));
    let output = run.end();
    let summary = summary(&run.out);
    assert_every_frame_is_accounted(&summary);
    assert_eq!(status(&summary), "INVALID", "{}", summary["verdict"]);
    assert!(broken(&summary, "environment"), "{}", summary["verdict"]);
    assert_eq!(summary["audit"]["lost_acked"], 0);
    assert_eq!(summary["audit"]["in_flight"], 0, "{}", summary["audit"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    run.assert_nobody_is_left();
}

#[test]
fn a_killed_classifier_fails_the_run_and_its_frames_are_in_flight() {
    if !ready() {
        return;
    }
    let mut run = Run::start(&[]);
    run.until_main();
    signal("KILL", run.process(&["stage", "--id classify"]));
    let output = run.end();
    let summary = summary(&run.out);
    assert_every_frame_is_accounted(&summary);
    assert_eq!(status(&summary), "FAIL", "{}", summary["verdict"]);
    assert!(broken(&summary, "error"), "{}", summary["verdict"]);
    assert!(summary["audit"]["in_flight"].as_u64().unwrap() > 0, "{}", summary["audit"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    run.assert_nobody_is_left();
}

#[test]
fn a_killed_runner_takes_everyone_with_it() {
    if !ready() {
        return;
    }
    let mut run = Run::start(&[]);
    run.until_main();
    signal("KILL", run.pid());
    run.end();
    run.assert_nobody_is_left();
    // What it had written is still a report.
    let report = reelbench(&["report"]).arg(&run.out).output().unwrap();
    assert!(report.status.success(), "{}", said(&report));
    assert!(String::from_utf8_lossy(&report.stdout).contains("UNFINISHED"), "{}", said(&report));
}

#[test]
fn an_interrupted_run_is_drained_recorded_and_invalid() {
    if !ready() {
        return;
    }
    let mut run = Run::start(&[]);
    run.until_main();
    signal("INT", run.pid());
    let output = run.end();
    let summary = summary(&run.out);
    assert_every_frame_is_accounted(&summary);
    assert_eq!((status(&summary), &summary["interrupted"]), ("INVALID", &Value::Bool(true)));
    assert_eq!(summary["audit"]["in_flight"], 0, "{}", summary["audit"]);
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    run.assert_nobody_is_left();
}

#[test]
fn a_second_interrupt_aborts_and_still_accounts_for_every_frame() {
    if !ready() {
        return;
    }
    let mut run = Run::start(&[]);
    run.until_main();
    signal("INT", run.pid());
    std::thread::sleep(Duration::from_millis(300));
    signal("TERM", run.pid());
    let output = run.end();
    assert_every_frame_is_accounted(&summary(&run.out));
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    run.assert_nobody_is_left();
}
