//! What was not the same in the two runs.

use std::collections::{BTreeMap, BTreeSet};

use contract::summary::Summary;

use super::Difference;
use crate::load::RunFolder;

/// Lines of scenario text shown before the rest is counted.
const LINES_SHOWN: usize = 20;

type Facts = BTreeMap<(&'static str, String), String>;

pub fn differences(a: &RunFolder, b: &RunFolder) -> Vec<Difference> {
    let (in_a, in_b) = (facts(a), facts(b));
    let keys: BTreeSet<&(&str, String)> = in_a.keys().chain(in_b.keys()).collect();
    let mut found: Vec<Difference> = keys
        .into_iter()
        .filter(|key| in_a.get(*key) != in_b.get(*key))
        .map(|key| Difference {
            area: key.0,
            what: key.1.clone(),
            a: in_a.get(key).cloned(),
            b: in_b.get(key).cloned(),
        })
        .collect();
    if let (Some(a), Some(b)) = (&a.scenario, &b.scenario) {
        found.extend(scenario_lines(a, b));
    }
    found.sort_by_key(|difference| AREAS.iter().position(|area| *area == difference.area));
    found
}

const AREAS: [&str; 5] = ["run", "scenario", "broker", "host", "drive"];

fn facts(folder: &RunFolder) -> Facts {
    let mut facts = Facts::new();
    let Some(summary) = &folder.summary else { return facts };
    let mut put = |area: &'static str, what: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.insert((area, what.to_owned()), value);
        }
    };
    put("run", "reelbench version", Some(summary.scenario.version.clone()));
    put("run", "interrupted", Some(summary.interrupted.to_string()));
    put("scenario", "name", Some(summary.scenario.name.clone()));
    put("scenario", "seed", Some(summary.scenario.seed.to_string()));
    put("scenario", "deadline", Some(format!("{} ms", summary.scenario.deadline_ns as f64 / 1e6)));
    put("scenario", "changes on the command line", Some(summary.scenario.overrides.join("; ")));
    broker(summary, &mut put);
    host(summary, &mut put);
    drives(summary, &mut put);
    facts
}

type Put<'a> = &'a mut dyn FnMut(&'static str, &str, Option<String>);

fn broker(summary: &Summary, put: Put) {
    let Some(broker) = &summary.broker else { return };
    put("broker", "kind", Some(broker.kind.clone()));
    put("broker", "version", broker.version.clone());
    put("broker", "nodes", Some(broker.nodes.to_string()));
}

fn host(summary: &Summary, put: Put) {
    let host = &summary.host;
    put("host", "name", Some(host.name.clone()));
    put("host", "kernel", Some(host.kernel.clone()));
    put("host", "CPU", host.cpu_model.clone());
    put("host", "cores", Some(host.cores.to_string()));
    put("host", "memory bytes", Some(host.memory_bytes.to_string()));
    host.settings.iter().for_each(|(name, value)| put("host", name, Some(value.clone())));
}

/// By place in the list when there are several, because the data directory has another path in every run.
fn drives(summary: &Summary, put: Put) {
    for (index, storage) in summary.storage.iter().enumerate() {
        let prefix = if index == 0 { String::new() } else { format!("path {}: ", index + 1) };
        let mut of = |what: &str, value: Option<String>| put("drive", &format!("{prefix}{what}"), value);
        of("device", storage.device.clone());
        of("in memory", Some(storage.ram.to_string()));
        of("file system", storage.file_system.clone());
        of("mount options", storage.mount_options.clone());
        of("size bytes", storage.size_bytes.map(|bytes| bytes.to_string()));
        of("tenths full", fill_tenths(storage.size_bytes, storage.free_bytes));
        storage.device_facts.iter().for_each(|(name, value)| of(name, Some(value.clone())));
    }
}

/// Fill level in tenths: a few bytes more or less are no difference.
fn fill_tenths(size: Option<u64>, free: Option<u64>) -> Option<String> {
    let size = size.filter(|size| *size > 0)?;
    let used = size.saturating_sub(free?);
    Some((u128::from(used) * 10 / u128::from(size)).to_string())
}

/// Lines of the scenario that are not in the other, by a longest common subsequence.
fn scenario_lines(a: &str, b: &str) -> Vec<Difference> {
    let (a, b): (Vec<&str>, Vec<&str>) = (a.lines().collect(), b.lines().collect());
    let mut found = Vec::new();
    for (line, ours, theirs) in changes(&a, &b) {
        let join = |lines: Vec<&str>| (!lines.is_empty()).then(|| lines.join("\n"));
        found.push(Difference { area: "scenario", what: format!("line {}", line + 1), a: join(ours), b: join(theirs) });
    }
    let more = found.len().saturating_sub(LINES_SHOWN);
    found.truncate(LINES_SHOWN);
    if more > 0 {
        let what = format!("and {more} more places in the text");
        found.push(Difference { area: "scenario", what, a: None, b: None });
    }
    found
}

/// (line in a, lines only in a, lines only in b) for each place where they part.
fn changes<'t>(a: &[&'t str], b: &[&'t str]) -> Vec<(usize, Vec<&'t str>, Vec<&'t str>)> {
    let head = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (rest_a, rest_b) = (&a[head..], &b[head..]);
    let tail = rest_a.iter().rev().zip(rest_b.iter().rev()).take_while(|(a, b)| a == b).count();
    let (mid_a, mid_b) = (&rest_a[..rest_a.len() - tail], &rest_b[..rest_b.len() - tail]);
    // A table of this size would take too long; such texts are simply different.
    if mid_a.len().saturating_mul(mid_b.len()) > 1_000_000 {
        return vec![(head, mid_a.to_vec(), mid_b.to_vec())];
    }
    let common = common_lengths(mid_a, mid_b);
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while i < mid_a.len() || j < mid_b.len() {
        let (from_i, from_j) = (i, j);
        while !(i < mid_a.len() && j < mid_b.len() && mid_a[i] == mid_b[j]) && (i < mid_a.len() || j < mid_b.len()) {
            let skip_b = i == mid_a.len() || (j < mid_b.len() && common[i][j + 1] > common[i + 1][j]);
            if skip_b { j += 1 } else { i += 1 }
        }
        if i > from_i || j > from_j {
            found.push((head + from_i, mid_a[from_i..i].to_vec(), mid_b[from_j..j].to_vec()));
        }
        while i < mid_a.len() && j < mid_b.len() && mid_a[i] == mid_b[j] {
            (i, j) = (i + 1, j + 1);
        }
    }
    found
}

/// Length of the longest common subsequence of `a[i..]` and `b[j..]`.
fn common_lengths(a: &[&str], b: &[&str]) -> Vec<Vec<usize>> {
    let mut lengths = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            lengths[i][j] =
                if a[i] == b[j] { lengths[i + 1][j + 1] + 1 } else { lengths[i + 1][j].max(lengths[i][j + 1]) };
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_inserted_line_is_one_change() {
        let found = changes(&["a", "b", "c"], &["a", "x", "b", "c", "d"]);
        assert_eq!(found, vec![(1, vec![], vec!["x"]), (3, vec![], vec!["d"])]);
    }

    proptest! {
        #[test]
        fn the_changes_turn_one_text_into_the_other(
            a in proptest::collection::vec("[ab]", 0..12), b in proptest::collection::vec("[ab]", 0..12)
        ) {
            let (a, b): (Vec<&str>, Vec<&str>) =
                (a.iter().map(String::as_str).collect(), b.iter().map(String::as_str).collect());
            let (mut made, mut at) = (Vec::new(), 0);
            for (line, ours, theirs) in changes(&a, &b) {
                made.extend_from_slice(&a[at..line]);
                prop_assert_eq!(&a[line..line + ours.len()], &ours[..]);
                made.extend(theirs);
                at = line + ours.len();
            }
            made.extend_from_slice(&a[at..]);
            prop_assert_eq!(made, b);
        }
    }
}
