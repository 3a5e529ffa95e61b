//! Scenarios: any text with any `--set` is refused with a place for every problem, or it loads, and the text as run loads
//! to the same scenario.
//!
//! Input: the text, then overrides, each begun by a zero byte.

#![no_main]

mod stages;

use fuzz::write_seeds;
use libfuzzer_sys::fuzz_target;
use scenario::{Loaded, Problems, load_text, offer};

use stages::REGISTRY;

fuzz_target!(init: write_seeds(&seeds()), |bytes: &[u8]| {
    let Ok(input) = std::str::from_utf8(bytes) else { return };
    let mut parts = input.split('\0');
    let text = parts.next().unwrap_or_default();
    let overrides: Vec<String> = parts.map(str::to_owned).collect();
    match load_text(text, "f.yaml", &overrides, &REGISTRY) {
        Ok(loaded) => check_loaded(loaded),
        Err(problems) => check_refused(text, &problems),
    }
});

fn check_loaded(loaded: Loaded) {
    // Secrets in files are read: whatever path a fuzzer names is better left alone.
    if loaded.scenario.broker.client.is_empty() {
        let offer = offer(&loaded.scenario, &REGISTRY);
        assert_eq!(loaded.problems_of(&offer).len(), offer.findings.len());
        let _ = offer.to_string();
    }
    for loaded in [loaded.clone(), loaded.with_auditors()] {
        let again = load_text(&loaded.text, "again.yaml", &[], &REGISTRY);
        let again = again.unwrap_or_else(|problems| panic!("the text as run is refused: {problems}\n{}", loaded.text));
        assert_eq!(again.scenario, loaded.scenario);
        assert_eq!((again.text, again.sha256), (loaded.text, loaded.sha256));
    }
}

fn check_refused(text: &str, problems: &Problems) {
    assert!(!problems.0.is_empty(), "refused without a problem");
    let lines = text.split(['\n', '\r']).count() as u32;
    for problem in &problems.0 {
        match (problem.line, problem.column) {
            (Some(line), Some(column)) => assert!(line >= 1 && line <= lines + 1 && column >= 1, "{problem}"),
            _ => assert!(problem.source.starts_with("--set "), "{problem}"),
        }
    }
}

const GOOD: &str = "# Question: does it load?
run: { name: good, main: 20s }
broker:
  nodes: 3
  disk_budget: 10GB
topics:
  - { name: frames, partitions: 6, replication: 3 }
  - { name: results, partitions: 3 }
stages:
  - id: cameras
    kind: decode
    to: frames
    publish: { policy: deadline, deadline: 500ms, compression: none }
    config: { file: clip.mp4, streams: 3, fps: 24, payload: { kind: jpeg, quality: 75 }, start: { after: 2s } }
  - id: classify
    kind: infer
    from: frames
    to: results
    instances: 2
    config:
      model: lite0
verdict: { budget: 0.001, p99: 800ms }
observe:
  - { id: data, path: /var }
";

const SMALL: &str = "run: {name: s}
topics: [{name: t}]
stages:
- {id: a, kind: decode, to: t, config: {file: x}}
";

fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        GOOD.to_owned(),
        SMALL.to_owned(),
        format!("{SMALL}\0run.main=5s\0stages.a.config.streams=30"),
        format!("{SMALL}- {{id: b, kind: exporter}}\nbroker: {{bootstrap_servers: \"h:1\"}}\n"),
        SMALL.replace("{name: t}", "&x\n- ? {!t \"a\\u00e9\"}\n  : |2-\n     z\n---\n"),
    ];
    for text in &texts[..2] {
        if let Err(problems) = load_text(text, "seed", &[], &REGISTRY) {
            panic!("a seed is refused: {problems}");
        }
    }
    texts.into_iter().map(String::into_bytes).collect()
}
