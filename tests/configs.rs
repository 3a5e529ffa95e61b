//! Every scenario in configs/ loads, says what it asks, and offers a load that can be computed.

use std::time::Duration;

use crate::support::{asset, finish, reelbench, root, said};

fn configs() -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(root().join("configs")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

#[test]
fn every_config_opens_with_its_question_and_run_time() {
    assert!(configs().len() >= 2);
    for path in configs() {
        let text = std::fs::read_to_string(&path).unwrap();
        let comment: String = text.lines().take_while(|line| line.starts_with('#')).collect();
        assert!(comment.contains('?'), "{} asks no question", path.display());
        let time = ["minute", "second"].iter().any(|unit| comment.contains(unit));
        assert!(time, "{} does not say how long it takes", path.display());
    }
}

#[test]
fn every_config_passes_check_and_states_its_load() {
    if asset("bbb-1080p24.mp4").is_none() || asset("bbb-2160p60.mp4").is_none() {
        return;
    }
    for path in configs() {
        let output = finish(reelbench(&["check", "--format", "json"]).arg(&path), Duration::from_secs(60));
        assert!(output.status.success(), "{}: {}", path.display(), said(&output));
        let offer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(offer.is_object(), "{}: {offer}", path.display());
    }
}
