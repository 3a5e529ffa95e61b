//! Bad input: one message naming the thing, the place and the remedy; non-zero exit; nothing half-written.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use crate::support::{asset, finish, processes_with, reelbench, said};

const GOOD: &str = "run: { name: bad, warmup: 1s, main: 2s }
topics: [{ name: frames }]
stages:
  - id: cameras
    kind: decode
    to: frames
    config: { pattern: { width: 64, height: 48, fps: 5 } }
";

/// Runs a verb on a text; returns what was said and whether a run folder was left.
fn given(verb: &str, text: &str, arguments: &[&str]) -> (Output, bool) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.yaml");
    std::fs::write(&path, text).unwrap();
    let out = folder.path().join("out");
    let mut command = reelbench(&[verb]);
    command.arg(&path).args(arguments);
    if verb == "run" {
        command.arg("--out").arg(&out).arg("--allow-ram");
    }
    let output = finish(&mut command, Duration::from_secs(60));
    assert_eq!(processes_with(&[&out.display().to_string()]), [] as [u32; 0]);
    (output, out.exists())
}

/// A refusal before t0: exit 2, no folder, and each word said.
fn assert_refused(verb: &str, text: &str, arguments: &[&str], words: &[&str]) {
    let (output, left) = given(verb, text, arguments);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(!left, "a run folder was left: {said}");
    for word in words {
        assert!(said.contains(word), "`{word}` is not in: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn all_problems_come_at_once_with_their_places() {
    let text = GOOD.replace("fps: 5", "fsp: 5").replace("main: 2s", "main: 2").replace("kind: decode", "kind: decod");
    let text = text.replace("name: frames }", "name: frames, partitons: 3 }");
    assert_refused("check", &text, &[], &["bad.yaml:1:", "bad.yaml:2:", "bad.yaml:5:", "partitons", "decod"]);
}

#[test]
fn a_wrong_key_names_the_stage_and_the_nearest_key() {
    assert_refused("check", &GOOD.replace("fps: 5", "fsp: 5"), &[], &["bad.yaml:7:", "cameras", "fsp", "fps"]);
}

#[test]
fn a_missing_scenario_is_named() {
    let output = finish(&mut reelbench(&["run", "no-such-file.yaml"]), Duration::from_secs(20));
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("no-such-file.yaml"), "{}", said(&output));
}

#[test]
fn a_missing_video_is_named() {
    let text = GOOD.replace("pattern: { width: 64, height: 48, fps: 5 }", "file: no-such-clip.mp4");
    assert_refused("run", &text, &[], &["no-such-clip.mp4"]);
}

#[test]
fn an_unreachable_broker_is_named() {
    // Port 9 of loopback: nobody listens.
    assert_refused("run", GOOD, &["--bootstrap-servers", "127.0.0.1:9"], &["127.0.0.1:9"]);
}

#[test]
fn more_replicas_than_brokers_are_refused() {
    assert_refused("run", &GOOD.replace("name: frames }", "name: frames, replication: 3 }"), &[], &["frames", "3"]);
}

#[test]
fn a_data_directory_in_ram_is_refused_without_leave() {
    if !Path::new("/dev/shm").is_dir() {
        println!("SKIPPED: this host has no /dev/shm");
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("ram.yaml");
    std::fs::write(&path, GOOD).unwrap();
    let out = folder.path().join("out");
    let output = finish(reelbench(&["run"]).arg(&path).arg("--out").arg(&out), Duration::from_secs(60));
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("--allow-ram") && !out.exists(), "{}", said(&output));
}

#[test]
fn an_existing_run_folder_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.yaml");
    std::fs::write(&path, GOOD).unwrap();
    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("mine"), "precious").unwrap();
    let output = finish(reelbench(&["run"]).arg(&path).arg("--out").arg(&out), Duration::from_secs(60));
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert_eq!(std::fs::read_to_string(out.join("mine")).unwrap(), "precious");
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 1);
}

#[test]
fn a_missing_onnx_runtime_names_its_remedy() {
    if asset("libonnxruntime.so.1.32.0").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.yaml");
    let text = format!("{GOOD}  - {{ id: classify, kind: infer, from: frames, config: {{ model: squeezenet }} }}\n");
    std::fs::write(&path, text).unwrap();
    let out = folder.path().join("out");
    let mut command = reelbench(&["run"]);
    command.arg(&path).arg("--out").arg(&out).arg("--allow-ram").env("ORT_DYLIB_PATH", "/nowhere/libonnxruntime.so");
    let output = finish(&mut command, Duration::from_secs(60));
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("/nowhere/libonnxruntime.so") && said.contains("assets fetch") && !out.exists(), "{said}");
}

#[test]
fn a_model_of_an_unknown_shape_lists_what_it_has() {
    if asset("libonnxruntime.so.1.32.0").is_none() {
        return;
    }
    // A detector is no classifier: its inputs and outputs are listed.
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("broken.onnx");
    std::fs::write(&model, b"not a model").unwrap();
    let text = format!(
        "{GOOD}  - {{ id: classify, kind: infer, from: frames, config: {{ model: \"{}\" }} }}\n",
        model.display()
    );
    assert_refused("run", &text, &[], &["broken.onnx"]);
}

#[test]
fn a_busy_port_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let mut command = reelbench(&["broker", "--nodes", "1", "--listen", &address, "--data-dir"]);
    let output = finish(command.arg(folder.path().join("data")), Duration::from_secs(30));
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains(&address), "{}", said(&output));
}

#[test]
fn every_verb_has_help_with_an_example() {
    for verb in ["check", "run", "broker", "report", "compare", "schema", "doctor", "completions"] {
        let output = finish(&mut reelbench(&[verb, "--help"]), Duration::from_secs(20));
        assert!(output.status.success());
        assert!(said(&output).contains("Examples:"), "{verb}");
    }
}
