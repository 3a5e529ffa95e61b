//! The import direction: stages never look up or sideways, and native libraries are named in one crate each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::support::root;

/// Dependencies of every crate of ours, by crate name, without those of tests.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let mut all = BTreeMap::new();
    for folder in ["stages", "pipeline"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap().map(Result::unwrap) {
            let manifest = entry.path().join("Cargo.toml");
            assert!(manifest.exists(), "{} is a folder without a crate", entry.path().display());
            all.insert(entry.file_name().into_string().unwrap(), names(&manifest));
        }
    }
    all
}

fn names(manifest: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(manifest).unwrap();
    let section = text.split("\n[").find(|section| section.starts_with("dependencies]")).unwrap_or_default();
    let name = |line: &str| line.split(['.', '=', ' ']).next().unwrap_or_default().to_owned();
    section.lines().skip(1).filter(|line| !line.is_empty() && !line.starts_with('#')).map(name).collect()
}

fn allowed(name: &str) -> &'static [&'static str] {
    match name {
        "contract" => &[],
        "picture" | "broker" | "builtin_broker" | "disk" => &["contract"],
        "video" | "inference" => &["contract", "picture"],
        "scenario" | "report" => &["contract"],
        "runner" => &["contract", "scenario"],
        "app" => {
            &["contract", "video", "broker", "builtin_broker", "inference", "disk", "scenario", "runner", "report"]
        }
        _ => panic!("crate {name} has no place in the import direction yet: give it one here and in ARCHITECTURE.md"),
    }
}

#[test]
fn crates_import_only_what_the_direction_allows() {
    let all = dependencies();
    for (name, dependencies) in &all {
        let ours: BTreeSet<&str> = dependencies.iter().map(String::as_str).filter(|d| all.contains_key(*d)).collect();
        let allowed: BTreeSet<&str> = allowed(name).iter().copied().collect();
        assert!(ours.is_subset(&allowed), "{name} imports {:?}", ours.difference(&allowed));
    }
}

#[test]
fn each_native_library_is_named_in_one_crate() {
    let all = dependencies();
    let owners = [
        ("ffmpeg-next", &["video"][..]),
        ("rdkafka", &["broker"]),
        ("ort", &["inference"]),
        ("turbojpeg", &["picture"]),
        ("kafka-protocol", &["broker", "builtin_broker"]),
        ("axum", &["runner"]),
        ("hyper-util", &["runner"]),
        ("clap", &["app"]),
        ("anyhow", &["app"]),
    ];
    for (library, wanted) in owners {
        let found: Vec<&str> =
            all.iter().filter(|(_, names)| names.contains(library)).map(|(name, _)| name.as_str()).collect();
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{library}");
    }
}

#[test]
fn every_source_file_says_what_it_is_for_and_stays_readable() {
    for folder in ["stages", "pipeline", "tests"] {
        for file in rust_files(&root().join(folder)) {
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(text.starts_with("//!"), "{} does not begin with what it is for", file.display());
            let lines = text.lines().count();
            assert!(lines <= 800, "{} has {lines} lines: is it still one room?", file.display());
        }
    }
}

fn rust_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
