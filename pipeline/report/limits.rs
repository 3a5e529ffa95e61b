//! How near the run came to what could limit it: each figure as a share of its bound, the nearest first. Evidence, not a cause.

use contract::phases::Phase;
use contract::summary::Summary;

use crate::figures::{age, closed_loop, cpu_busy, data_device, main_disk};
use crate::load::RunFolder;
use crate::processes::{ProcessUse, processes};
use crate::text::{fixed, percent, short};

/// One bound and how much of it was used.
#[derive(Clone, Debug, PartialEq)]
pub struct Nearness {
    pub share: f64,
    pub words: String,
}

/// Nearest first.
pub fn nearest_limits(folder: &RunFolder) -> Vec<Nearness> {
    let mut limits: Vec<Nearness> = [cpu(folder), memory(folder)].into_iter().flatten().collect();
    if let Some(summary) = &folder.summary {
        limits.extend([p99_age(summary), disk_write(summary)].into_iter().flatten());
    }
    limits.retain(|limit| limit.share.is_finite());
    limits.sort_by(|a, b| b.share.total_cmp(&a.share));
    limits
}

/// Other processes of the host are named: a benchmark beside a build is not the system's fault.
fn cpu(folder: &RunFolder) -> Option<Nearness> {
    let share = cpu_busy(folder)?;
    let cores = folder.summary.as_ref().map(|summary| summary.host.cores).filter(|cores| *cores > 0);
    let run: f64 = processes(folder).values().filter_map(ProcessUse::cores).sum();
    let detail = match cores {
        Some(cores) => {
            let others = (share * f64::from(cores) - run).max(0.0);
            format!(" of {cores} cores (run {}, others {})", fixed(run, 2), fixed(others, 2))
        }
        None => format!(" (run {} cores)", fixed(run, 2)),
    };
    Some(Nearness { share, words: format!("CPU {}{detail}", percent(share)) })
}

fn p99_age(summary: &Summary) -> Option<Nearness> {
    let (_, stats) = age(summary)?;
    let deadline_ns = summary.scenario.deadline_ns;
    let p99 = stats.p99.filter(|_| deadline_ns > 0 && closed_loop(summary).is_none())?;
    let share = p99 as f64 / deadline_ns as f64;
    Some(Nearness { share, words: format!("p99 age {} of deadline", percent(share)) })
}

/// Against the short baseline of the same device, taken before the run.
fn disk_write(summary: &Summary) -> Option<Nearness> {
    let baseline = summary.baseline.as_ref()?;
    let bound = baseline.write_bytes_per_second.filter(|bound| *bound > 0.0)?;
    let (disk, phase) = main_disk(summary).filter(|(disk, _)| data_device(summary) == Some(disk.device.as_str()))?;
    if phase.seconds <= 0.0 {
        return None;
    }
    let share = phase.write_bytes as f64 / phase.seconds / bound;
    let mib = bound / f64::from(1 << 20);
    Some(Nearness { share, words: format!("{} {} of {} MiB/s baseline", disk.device, percent(share), short(mib)) })
}

/// Memory in use at the worst second of main.
fn memory(folder: &RunFolder) -> Option<Nearness> {
    let total = folder.summary.as_ref().map(|summary| summary.host.memory_bytes).filter(|total| *total > 0)?;
    let least =
        folder.rows(Phase::Main).filter_map(|row| row.host.as_ref()?.memory).map(|m| m.available_bytes).min()?;
    let share = 1.0 - (least.min(total) as f64 / total as f64);
    Some(Nearness { share, words: format!("memory {}", percent(share)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn the_nearest_limit_comes_first_and_unknown_ones_are_left_out() {
        let mut folder = fixture::folder();
        let limits = nearest_limits(&folder);
        assert!(limits.windows(2).all(|pair| pair[0].share >= pair[1].share), "{limits:?}");
        assert_eq!(limits.len(), 4, "{limits:?}");
        folder.series.clear();
        folder.summary.as_mut().unwrap().baseline = None;
        let words: Vec<String> = nearest_limits(&folder).into_iter().map(|limit| limit.words).collect();
        assert_eq!(words.len(), 1, "{words:?}");
        assert!(words[0].starts_with("p99 age"), "{words:?}");
    }
}
