//! The run folder that the tests read, `fixtures/quickstart`, and the simulation that made it. To make it anew:
//! `cargo test --release -p report -- --ignored write_the_fixture`.

use std::path::{Path, PathBuf};

use contract::summary::Summary;

use crate::load::RunFolder;

mod simulate;

pub fn path() -> PathBuf {
    // Relative, because it is shown in what is compared; tests run in the folder of their crate.
    Path::new("fixtures/quickstart").to_owned()
}

pub fn folder() -> RunFolder {
    RunFolder::read(&path()).expect("the fixture is a run folder")
}

pub fn summary() -> Summary {
    folder().summary.expect("the fixture is a finished run")
}

/// Compares with a file under `fixtures/`; with UPDATE_GOLDEN=1 it writes the file instead.
pub fn assert_golden(name: &str, found: &str) {
    let path = Path::new("fixtures").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = golden.lines().zip(found.lines()).find(|(golden, found)| golden != found);
    assert!(golden == found, "{name} differs, first at {differs:?}; look at it, then run with UPDATE_GOLDEN=1");
}
