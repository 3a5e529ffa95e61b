//! Each second: the books of all instances and the look at the host, as one row of the time series.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use contract::clock::{mono_ns, real_ns};
use contract::histogram::NsHistogram;
use contract::host::{HostSample, HostSampler, ProcessSample};
use contract::latency::Step;
use contract::phases::Phase;
use contract::recorder::{Counter, Gauge};
use contract::series::{FrameFigures, SeriesRow};

use crate::fleet::Fleet;
use crate::verdict::slope;

/// Windows that must agree before a run counts as steady.
const WINDOWS: usize = 3;
const WINDOW_NS: i64 = 5_000_000_000;
/// Rates of the windows differ by at most this share.
const RATE_SPREAD: f64 = 0.05;
/// A p99 is noisy by nature: windows agree when the largest is at most twice the smallest.
const P99_SPREAD: f64 = 2.0;

/// What the watcher must know of the stages.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    pub sources: Vec<String>,
    pub consumers: Vec<String>,
}

impl Roles {
    fn is_source(&self, stage_id: &str) -> bool {
        self.sources.iter().any(|id| id == stage_id)
    }
    fn is_consumer(&self, stage_id: &str) -> bool {
        self.consumers.iter().any(|id| id == stage_id)
    }
}

pub struct Watch {
    roles: Roles,
    sampler: Option<Box<dyn HostSampler>>,
    file: BufWriter<File>,
    pub rows: Vec<SeriesRow>,
    /// Latest figures by role; a dead process keeps its last ones.
    pub processes: BTreeMap<String, ProcessSample>,
    /// Age of the newest frame by consuming stage, each second: (run_ns, seconds).
    lag_seconds: BTreeMap<String, Vec<(i64, f64)>>,
    earlier: BTreeMap<Step, NsHistogram>,
    wall_minus_mono_ns: i64,
    /// Largest movement of the wall clock against the monotonic one.
    pub wall_step_ns: i64,
}

impl Watch {
    pub fn new(roles: Roles, sampler: Box<dyn HostSampler>, path: &Path) -> io::Result<Self> {
        Ok(Watch {
            roles,
            sampler: Some(sampler),
            file: BufWriter::new(File::create(path)?),
            rows: Vec::new(),
            processes: BTreeMap::new(),
            lag_seconds: BTreeMap::new(),
            earlier: BTreeMap::new(),
            wall_minus_mono_ns: real_ns() - mono_ns(),
            wall_step_ns: 0,
        })
    }

    pub fn watch_process(&mut self, role: &str, pid: u32) {
        if let Some(sampler) = &mut self.sampler {
            sampler.watch_process(role, pid);
        }
    }

    pub fn watch_path(&mut self, path: &Path) {
        if let Some(sampler) = &mut self.sampler {
            sampler.watch_path(path);
        }
    }

    /// Looks at the host on a blocking thread, because a stuck disk can make /proc reads wait.
    pub async fn sample(&mut self) -> Option<HostSample> {
        let mut sampler = self.sampler.take()?;
        let looked = tokio::task::spawn_blocking(move || {
            let sample = sampler.sample();
            (sampler, sample)
        });
        let (sampler, sample) = looked.await.ok()?;
        self.sampler = Some(sampler);
        for (role, process) in &sample.processes {
            // A process that has just ended still tells its CPU time, but no memory: the largest size seen is kept.
            let peak = self.processes.get(role).map_or(0, |known| known.rss_bytes);
            self.processes
                .insert(role.clone(), ProcessSample { rss_bytes: peak.max(process.rss_bytes), ..process.clone() });
        }
        Some(sample)
    }

    /// Adds a row from the fleet's current books.
    pub async fn row(&mut self, fleet: &Fleet, run_ns: i64, phase: Phase) -> io::Result<&SeriesRow> {
        let host = self.sample().await;
        let moved = real_ns() - mono_ns() - self.wall_minus_mono_ns;
        if moved.abs() > self.wall_step_ns.abs() {
            self.wall_step_ns = moved;
        }
        let lag_by_stage = self.lags(fleet, run_ns);
        let latest = self.lag_seconds.values().filter_map(|points| points.last().map(|(_, lag)| *lag));
        let lag_seconds = latest.reduce(f64::max);
        let row = SeriesRow {
            mono_ns: mono_ns(),
            run_ns,
            phase,
            frames: self.figures(fleet),
            end_to_end_p99_ns: self.rolling_p99(fleet, Step::EndToEnd),
            handed_p99_ns: self.rolling_p99(fleet, Step::Handed),
            ack_p99_ns: self.rolling_p99(fleet, Step::Ack),
            lag_frames: lag_by_stage.values().copied().reduce(|a, b| a + b),
            lag_seconds,
            lag_by_stage,
            host,
        };
        serde_json::to_writer(&mut self.file, &row)?;
        self.file.write_all(b"\n")?;
        // A row a second: flushed, so that an unfinished folder can be reported.
        self.file.flush()?;
        self.rows.push(row);
        Ok(&self.rows[self.rows.len() - 1])
    }

    fn figures(&self, fleet: &Fleet) -> FrameFigures {
        let source = |counter| fleet.sum(counter, |instance| self.roles.is_source(&instance.stage.stage_id));
        let consumer = |counter| fleet.sum(counter, |instance| self.roles.is_consumer(&instance.stage.stage_id));
        FrameFigures {
            scheduled: source(Counter::Scheduled),
            offered: source(Counter::Offered),
            offered_bytes: source(Counter::OfferedBytes),
            acked: source(Counter::Acked),
            acked_bytes: source(Counter::AckedBytes),
            delivered: consumer(Counter::Delivered),
            inferred: consumer(Counter::Inferred),
            dropped: source(Counter::Dropped),
            late: consumer(Counter::Late),
        }
    }

    fn lags(&mut self, fleet: &Fleet, run_ns: i64) -> BTreeMap<String, f64> {
        let mut frames = BTreeMap::new();
        for stage in &self.roles.consumers {
            let gauges = |gauge| fleet.of_stage(stage).filter_map(move |instance| instance.delta.gauge(gauge));
            if let Some(lag) = gauges(Gauge::LagFrames).reduce(|a, b| a + b) {
                frames.insert(stage.clone(), lag);
            }
            if let Some(age) = gauges(Gauge::LagSeconds).reduce(f64::max) {
                self.lag_seconds.entry(stage.clone()).or_default().push((run_ns, age));
            }
        }
        frames
    }

    /// p99 of a step over the samples since the last row; `None` with too few. `Ack` is taken from the sources alone.
    fn rolling_p99(&mut self, fleet: &Fleet, step: Step) -> Option<i64> {
        let mut now = NsHistogram::default();
        for instance in &fleet.instances {
            if (step == Step::Ack) == self.roles.is_source(&instance.stage.stage_id)
                && let Some(pair) = instance.delta.steps.get(&step)
            {
                for text in [&pair.main, &pair.outside].into_iter().flatten() {
                    now.merge(&NsHistogram::from_text(text).ok()?);
                }
            }
        }
        let newer = self.earlier.get(&step).map(|earlier| now.since(earlier));
        self.earlier.insert(step, now);
        newer.filter(|newer| newer.count() >= 100).and_then(|newer| newer.quantile(0.99))
    }

    /// Steady: the acknowledged rate agrees over the last windows, and so does the p99 where it is known.
    pub fn is_steady(&self, now_ns: i64) -> bool {
        let rates = self.window_rates(now_ns);
        let Some(rates) = rates else { return false };
        let (low, high) = min_max(&rates);
        if high <= 0.0 || high - low > RATE_SPREAD * high {
            return false;
        }
        let recent = self.rows.iter().filter(|row| row.run_ns > now_ns - WINDOW_NS * WINDOWS as i64);
        let p99: Vec<f64> = recent.filter_map(|row| row.ack_p99_ns).map(|ns| ns as f64).collect();
        let thirds: Vec<f64> = p99.chunks(p99.len().div_ceil(WINDOWS).max(1)).map(median).collect();
        let (low, high) = min_max(&thirds);
        thirds.len() < WINDOWS || high <= P99_SPREAD * low.max(1e6)
    }

    fn window_rates(&self, now_ns: i64) -> Option<Vec<f64>> {
        let at = |ns: i64| self.rows.iter().rev().find(|row| row.run_ns <= ns && row.run_ns >= 0);
        let edges = (0..=WINDOWS as i64).map(|window| at(now_ns - window * WINDOW_NS)).collect::<Option<Vec<_>>>()?;
        let rate = |pair: &[&SeriesRow]| {
            let frames = pair[0].frames.acked.saturating_sub(pair[1].frames.acked) as f64;
            frames / ((pair[0].run_ns - pair[1].run_ns).max(1) as f64 / 1e9)
        };
        Some(edges.windows(2).map(rate).collect())
    }

    /// Slope of each consuming stage's lag over main, with its 99 % half width.
    pub fn lag_slopes(&self, main_ns: i64, drain_ns: i64) -> Vec<(String, f64, f64)> {
        let of_stage = |(stage, points): (&String, &Vec<(i64, f64)>)| {
            let in_main = points.iter().filter(|(at, _)| (main_ns..drain_ns).contains(at));
            let points: Vec<_> = in_main.map(|(at, lag)| (*at as f64 / 1e9, *lag)).collect();
            slope(&points).map(|(slope, half_width)| (stage.clone(), slope, half_width))
        };
        self.lag_seconds.iter().filter_map(of_stage).collect()
    }

    /// Mean share of stolen CPU time in main.
    pub fn steal(&self) -> Option<f64> {
        let main = self.rows.iter().filter(|row| row.phase == Phase::Main);
        let steals: Vec<f64> = main.filter_map(|row| row.host.as_ref()?.cpu.map(|cpu| cpu.steal)).collect();
        (!steals.is_empty()).then(|| steals.iter().sum::<f64>() / steals.len() as f64)
    }
}

fn min_max(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Blind;
    impl HostSampler for Blind {
        fn watch_path(&mut self, _: &Path) {}
        fn watch_process(&mut self, _: &str, _: u32) {}
        fn sample(&mut self) -> HostSample {
            HostSample::default()
        }
    }

    fn watch(acked: impl Fn(i64) -> u64) -> Watch {
        let folder = tempfile::tempdir().unwrap();
        let mut watch = Watch::new(Roles::default(), Box::new(Blind), &folder.path().join("s")).unwrap();
        for second in 0..=16 {
            let frames = FrameFigures { acked: acked(second), ..FrameFigures::default() };
            watch.rows.push(SeriesRow {
                mono_ns: 0,
                run_ns: second * 1_000_000_000,
                phase: Phase::WarmUp,
                frames,
                end_to_end_p99_ns: None,
                handed_p99_ns: None,
                ack_p99_ns: None,
                lag_frames: None,
                lag_seconds: None,
                lag_by_stage: BTreeMap::new(),
                host: None,
            });
        }
        watch
    }

    #[test]
    fn a_constant_rate_is_steady_after_three_windows() {
        let watch = watch(|second| second as u64 * 120);
        assert!(!watch.is_steady(14_000_000_000));
        assert!(watch.is_steady(15_000_000_000));
    }

    #[test]
    fn a_rising_or_absent_rate_is_not_steady() {
        assert!(!watch(|second| (second * second) as u64).is_steady(16_000_000_000));
        assert!(!watch(|_| 0).is_steady(16_000_000_000));
    }
}
