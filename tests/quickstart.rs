//! The main job on real video, short: frames of a real clip through the broker into a real classifier, exact to the frame.

use std::time::Duration;

use crate::support::{asset, finish, reelbench, said, summary};
use serde_json::Value;

fn run(arguments: &[&str], folder: &std::path::Path) -> (Option<i32>, String, Value) {
    let out = folder.join("out");
    let mut command = reelbench(&["run"]);
    command.args(arguments).arg("--out").arg(&out);
    let output = finish(&mut command, Duration::from_secs(180));
    let said = said(&output);
    assert!(out.join("summary.json").exists(), "{said}");
    (output.status.code(), said, summary(&out))
}

#[test]
fn the_quick_start_accounts_for_every_frame_of_real_video() {
    if asset("bbb-1080p24.mp4").is_none() || asset("bbb-2160p60.mp4").is_none() || asset("models/lite0.onnx").is_none()
    {
        return;
    }
    // In the repository's own file system: the system's folder for temporary files may be in RAM.
    let folder = tempfile::tempdir_in(crate::support::root().join("target")).unwrap();
    let arguments = ["configs/quickstart.yaml", "--duration", "15s", "--set", "run.warmup=6s"];
    let (code, said, summary) = run(&arguments, folder.path());
    let audit = &summary["audit"];
    let n = |name: &str| audit[name].as_u64().unwrap();
    assert_eq!(n("offered"), n("delivered") + n("lost") + n("dropped") + n("in_flight"), "{audit}");
    assert_eq!((n("lost"), n("in_flight"), n("corrupt"), n("duplicates"), n("unexplained")), (0, 0, 0, 0, 0), "{said}");
    // 3 x 24 + 2 x 60 frames a second over at least main.
    assert!(n("offered") >= (3 * 24 + 2 * 60) * 15, "{audit}");
    let groups: Vec<&Value> = summary["inference"].as_object().unwrap().values().collect();
    for group in &groups {
        assert_eq!((&group["identity_holds"], group["unfinished"].as_u64()), (&Value::Bool(true), Some(0)), "{group}");
        assert_eq!(group["model_weights"], "real-standin", "{group}");
    }
    // Two frames a second of each of five streams; the grid may miss one at each end.
    let inferred: u64 = groups.iter().map(|group| group["inferred"].as_u64().unwrap()).sum();
    assert!(inferred >= 5 * 2 * 15 - 10, "{groups:?}");
    // The shared machine of a test may be starved: then the verdict must say so, and nothing else may be wrong.
    let status = summary["verdict"]["status"].as_str().unwrap();
    assert_eq!(
        code,
        Some(match status {
            "PASS" => 0,
            "FAIL" => 1,
            _ => 3,
        }),
        "{said}"
    );
    let chains = audit["identity_holds"].as_bool().unwrap()
        && summary["stages"]["classify"]["counters"]["latency_chains_broken"].is_null();
    assert!(chains, "{summary}");
    for file in ["report.html", "series.jsonl", "histograms.json", "scenario.yaml"] {
        assert!(folder.path().join("out").join(file).exists(), "{file}");
    }
    assert!(!folder.path().join("out/broker").exists(), "broker data was kept");
    assert_valid(&summary);
}

fn assert_valid(summary: &Value) {
    let schema = finish(&mut reelbench(&["schema", "summary"]), Duration::from_secs(20));
    let schema: Value = serde_json::from_slice(&schema.stdout).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(summary).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn without_a_consuming_stage_the_topic_is_audited() {
    let folder = tempfile::tempdir_in(crate::support::root().join("target")).unwrap();
    let path = folder.path().join("audit.yaml");
    let text = "run: { name: audit, warmup: 3s, main: 4s }
topics: [{ name: frames, partitions: 3 }]
stages:
  - { id: cameras, kind: decode, to: frames, config: { pattern: { width: 320, height: 180, fps: 30 }, streams: 20 } }
";
    std::fs::write(&path, text).unwrap();
    let (_, said, summary) = run(&[path.to_str().unwrap()], folder.path());
    let audit = &summary["audit"];
    assert_eq!(audit["topics"][0]["audited_by"], "audit-frames", "{said}");
    assert_eq!(audit["offered"], audit["delivered"], "{said}");
    assert!(audit["offered"].as_u64().unwrap() >= 20 * 30 * 4, "{audit}");
}
