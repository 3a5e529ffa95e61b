//! The page from the fixture, from damaged folders and from hostile text.

use std::fs;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::fixture;
use crate::table::{self, table};

#[test]
fn the_page_of_the_fixture_is_the_golden_one() {
    fixture::assert_golden("quickstart.report.html", &render_html(&fixture::folder()).unwrap());
}

#[test]
fn the_page_stands_alone_and_is_small() {
    let html = render_html(&fixture::folder()).unwrap();
    assert!(html.len() < 1_000_000, "{}", html.len());
    for outside in ["<script", "src=", "http://", "https://", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert_eq!((html.matches("<svg").count(), html.matches("<desc").count()), (15, 15));
}

#[test]
fn every_opened_element_is_closed_and_every_anchor_exists() {
    let html = render_html(&fixture::folder()).unwrap();
    let mut open: Vec<&str> = Vec::new();
    for part in html.split('<').skip(1) {
        let tag = part.split('>').next().unwrap();
        let name = tag.split(|c: char| !c.is_ascii_alphanumeric() && c != '/' && c != '!').next().unwrap();
        match name.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed), "at <{tag}"),
            None if tag.ends_with('/') || ["meta", "!DOCTYPE", "!"].contains(&name) => {}
            None => open.push(name),
        }
    }
    assert_eq!(open, Vec::<&str>::new());
    let mut ids: Vec<&str> = html.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    for target in html.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(ids.contains(&target), "{target}");
    }
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "an id is used twice");
}

/// Replaces every string of a document by one that breaks out of markup, where the document still parses.
fn poison(value: &mut Value, path: &str) {
    const POISON: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&\u{1b}[31m";
    match value {
        Value::String(text) if !["status", "name"].contains(&path) => *text = POISON.to_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| poison(item, path)),
        Value::Object(map) => {
            let pairs: Vec<(String, Value)> = std::mem::take(map).into_iter().collect();
            for (key, mut item) in pairs {
                poison(&mut item, &key);
                let free = ["stages", "settings", "device_facts", "counters", "reasons", "facts", "inference"];
                let key = if free.contains(&path) { format!("{key}{POISON}") } else { key };
                map.insert(key, item);
            }
        }
        _ => {}
    }
}

#[test]
fn hostile_text_stays_text() {
    let mut json = serde_json::to_value(fixture::summary()).unwrap();
    poison(&mut json, "");
    let mut folder = fixture::folder();
    folder.summary = Some(serde_json::from_value(json).unwrap());
    folder.scenario = Some("</pre><script>alert(1)</script>".into());
    folder.notes = vec!["<script>note</script>".into()];
    for row in &mut folder.series {
        row.lag_by_stage = [("<script>a".to_owned(), 1.0), ("<script>b".to_owned(), 2.0)].into();
        if let Some(host) = &mut row.host {
            host.processes = host.processes.iter().map(|(k, v)| (format!("<script>{k}"), v.clone())).collect();
            host.devices = host.devices.iter().map(|(k, v)| (format!("\"><script>{k}"), v.clone())).collect();
        }
    }
    let html = render_html(&folder).unwrap();
    assert!(!html.contains("<script") && !html.contains("<img") && !html.contains('\u{1b}'));
    assert!(html.matches("&lt;script&gt;").count() > 60, "{}", html.matches("&lt;script&gt;").count());
    assert!(!table(&folder).contains('\u{1b}'));
}

#[test]
fn a_page_is_written_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["summary.json", "series.jsonl", "histograms.json", "scenario.yaml"] {
        fs::copy(fixture::path().join(name), dir.path().join(name)).unwrap();
    }
    let path = write_html(dir.path()).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), render_html(&RunFolder::read(dir.path()).unwrap()).unwrap());
    fs::remove_file(&path).unwrap();
    // A folder in its place cannot be replaced by a file.
    fs::create_dir(&path).unwrap();
    fs::write(path.join("x"), "").unwrap();
    assert!(write_html(dir.path()).unwrap_err().to_string().contains("report.html"));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 5, "{left:?}");
}

#[test]
fn an_unfinished_run_gets_a_page_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let series = fs::read_to_string(fixture::path().join("series.jsonl")).unwrap();
    fs::write(dir.path().join("series.jsonl"), &series[..series.len() / 2]).unwrap();
    fs::copy(fixture::path().join("scenario.yaml"), dir.path().join("scenario.yaml")).unwrap();
    let html = render_html(&RunFolder::read(dir.path()).unwrap()).unwrap();
    assert!(html.contains(">UNFINISHED<") && html.contains("chart-frames") && html.contains("run: { name: quickstart"));
    assert!(!html.contains(">PASS<"));
}

/// Takes something out of a document at a random place.
fn damage(value: &mut Value, dice: &mut impl FnMut() -> u32) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            let index = dice() as usize % map.len();
            let key = map.keys().nth(index).expect("the index is within the length").clone();
            match dice() % 4 {
                0 => drop(map.remove(&key)),
                1 => map[&key] = Value::Null,
                _ => damage(&mut map[&key], dice),
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let index = dice() as usize % items.len();
            match dice() % 5 {
                0 => items.clear(),
                1 => drop(items.remove(index)),
                _ => damage(&mut items[index], dice),
            }
        }
        Value::Number(number) => {
            let extremes: [serde_json::Number; 6] =
                [0.into(), 1.into(), (-1).into(), u64::MAX.into(), i64::MIN.into(), i64::MAX.into()];
            *number = extremes[dice() as usize % extremes.len()].clone();
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn whatever_is_missing_or_extreme_there_is_a_page_and_a_table(seed in any::<u32>(), cuts in 1usize..60, rows in 0usize..70) {
        let mut state = seed;
        let mut dice = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 8
        };
        let mut json = serde_json::to_value(fixture::summary()).unwrap();
        let mut folder = fixture::folder();
        for _ in 0..cuts {
            let mut changed = json.clone();
            damage(&mut changed, &mut dice);
            if serde_json::from_value::<Summary>(changed.clone()).is_ok() {
                json = changed;
            }
            let place = dice() as usize % folder.series.len();
            let mut row = serde_json::to_value(&folder.series[place]).unwrap();
            damage(&mut row, &mut dice);
            if let Ok(row) = serde_json::from_value(row) {
                folder.series[place] = row;
            }
        }
        folder.summary = Some(serde_json::from_value(json).unwrap());
        folder.series.truncate(rows);
        if dice() % 2 == 0 {
            folder.histograms = Default::default();
        }
        let html = render_html(&folder).unwrap();
        prop_assert!(!html.contains("NaN") && !html.contains("\"inf"));
        let text = table(&folder);
        prop_assert!(!text.contains("NaN") && !text.contains("inf "));
        let _ = crate::compare(&folder, &fixture::folder()).text();
        folder.summary = None;
        render_html(&folder).unwrap();
        prop_assert!(table(&folder).starts_with("UNFINISHED"));
    }

    #[test]
    fn a_summary_alone_is_enough(seed in any::<u32>()) {
        let mut json = serde_json::to_value(fixture::summary()).unwrap();
        let mut state = seed;
        let mut changed = json.clone();
        damage(&mut changed, &mut || { state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223); state >> 8 });
        if serde_json::from_value::<Summary>(changed.clone()).is_ok() {
            json = changed;
        }
        let folder = RunFolder::of(serde_json::from_value(json).unwrap());
        let text = table(&folder);
        prop_assert!(text.lines().next().unwrap().chars().count() <= table::WIDTH);
        render_html(&folder).unwrap();
    }
}
