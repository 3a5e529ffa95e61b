//! Two runs side by side: each figure, both values, the difference, and what differs in scenario and host. One run each says
//! nothing about chance, and the comparison says that.

mod differences;
mod pairs;
mod show;

use serde::Serialize;

use crate::load::RunFolder;

/// The difference of two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub a: Side,
    pub b: Side,
    /// How far the figures can be trusted.
    pub note: &'static str,
    pub figures: Vec<FigurePair>,
    /// What was not the same: version, scenario, broker, host, drive.
    pub differences: Vec<Difference>,
}

/// One of the two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    pub name: String,
    pub folder: Option<String>,
    pub run_id: Option<String>,
    pub started: Option<String>,
    /// PASS, FAIL, INVALID; absent for an unfinished run.
    pub verdict: Option<&'static str>,
    /// Runs it stands for.
    pub n: u32,
}

/// One figure of both runs. A difference needs both values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FigurePair {
    pub id: String,
    pub unit: &'static str,
    pub a: Option<f64>,
    pub b: Option<f64>,
    /// b - a.
    pub difference: Option<f64>,
    /// (b - a) / a; absent when a is 0.
    pub relative: Option<f64>,
}

/// Something that is not the same in both runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// `run`, `scenario`, `broker`, `host`, `drive`.
    pub area: &'static str,
    pub what: String,
    pub a: Option<String>,
    pub b: Option<String>,
}

const NOTE: &str = "n = 1 run each: no difference here is shown to be more than chance";

pub fn compare(a: &RunFolder, b: &RunFolder) -> Comparison {
    Comparison {
        a: Side::of(a),
        b: Side::of(b),
        note: NOTE,
        figures: pairs::figures(a, b),
        differences: differences::differences(a, b),
    }
}

impl Side {
    fn of(folder: &RunFolder) -> Self {
        let summary = folder.summary.as_ref();
        Side {
            name: folder.name(),
            folder: folder.path.as_ref().map(|path| path.display().to_string()),
            run_id: summary.map(|summary| summary.run_id.clone()),
            started: summary.map(|summary| summary.started.clone()),
            verdict: summary.map(|summary| summary.verdict.status.name()),
            n: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn changed() -> RunFolder {
        let mut folder = fixture::folder();
        let summary = folder.summary.as_mut().unwrap();
        summary.scenario.seed = 43;
        summary.host.kernel = "6.12.0".into();
        summary.storage[0].device_facts.insert("queue/scheduler".into(), "none [mq-deadline]".into());
        summary.disks[0].phases.get_mut("main").unwrap().write_iops = Some(500.0);
        summary.audit.as_mut().unwrap().late = 0;
        folder.scenario = folder.scenario.map(|text| text.replace("streams: 3", "streams: 4"));
        folder
    }

    #[test]
    fn a_run_compared_with_itself_differs_in_nothing() {
        let folder = fixture::folder();
        let comparison = compare(&folder, &folder);
        assert_eq!(comparison.differences, []);
        assert!(comparison.figures.len() > 20, "{}", comparison.figures.len());
        assert!(comparison.figures.iter().all(|figure| figure.difference == Some(0.0)), "{:?}", comparison.figures);
    }

    #[test]
    fn what_differs_is_named_with_both_values() {
        let comparison = compare(&fixture::folder(), &changed());
        let found: Vec<(&str, &str)> =
            comparison.differences.iter().map(|difference| (difference.area, difference.what.as_str())).collect();
        assert_eq!(found[0], ("scenario", "seed"));
        assert!(found.contains(&("host", "kernel")) && found.contains(&("drive", "queue/scheduler")), "{found:?}");
        let line = comparison.differences.iter().find(|difference| difference.what.starts_with("line ")).unwrap();
        assert!(line.a.as_ref().unwrap().contains("streams: 3") && line.b.as_ref().unwrap().contains("streams: 4"));
        let iops = comparison.figures.iter().find(|figure| figure.id == "disk vda main w/s").unwrap();
        assert_eq!(iops.difference, iops.a.map(|a| 500.0 - a));
        let late = comparison.figures.iter().find(|figure| figure.id == "frames late").unwrap();
        assert_eq!(late.relative, Some(-1.0));
    }

    #[test]
    fn a_figure_of_one_run_alone_has_no_difference() {
        let mut without = fixture::folder();
        without.summary.as_mut().unwrap().disks.clear();
        let comparison = compare(&fixture::folder(), &without);
        let iops = comparison.figures.iter().find(|figure| figure.id == "disk vda main w/s").unwrap();
        assert_eq!((iops.a.is_some(), iops.b, iops.difference), (true, None, None));
    }

    #[test]
    fn no_form_of_it_claims_significance() {
        let comparison = compare(&fixture::folder(), &changed());
        for form in [comparison.text(), comparison.markdown(), comparison.json().to_string()] {
            assert!(form.contains("n = 1 run each"), "{form}");
        }
        let json = comparison.json();
        assert_eq!(json["figures"].as_array().unwrap().len(), comparison.figures.len());
        fixture::assert_golden("compare.txt", &comparison.text());
    }
}
