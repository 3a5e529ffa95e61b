//! The run as it goes: one line rewritten on a terminal, a plain line every few seconds elsewhere.

use std::io::{self, IsTerminal, Write};

use contract::series::SeriesRow;
use runner::Progress;

/// Plain output shows every fifth second.
const PLAIN_EVERY: u64 = 5;

/// Shows progress on standard error.
pub struct Show {
    terminal: bool,
    rows: u64,
    last_disk_bytes: Option<(i64, u64)>,
}

impl Show {
    pub fn new() -> Self {
        Show { terminal: io::stderr().is_terminal(), rows: 0, last_disk_bytes: None }
    }

    pub fn show(&mut self, progress: &Progress<'_>) {
        let mut out = io::stderr().lock();
        let written = match progress {
            Progress::Word(word) => writeln!(out, "{word}"),
            Progress::Row { row, phase_started_ns, phase_ends_ns } => {
                self.rows += 1;
                let disk = self.disk_mib_per_second(row);
                let line = line(row, *phase_started_ns, *phase_ends_ns, disk);
                match self.terminal {
                    true => write!(out, "\r\x1b[2K{line}").and_then(|()| out.flush()),
                    false if self.rows % PLAIN_EVERY == 1 => writeln!(out, "{line}"),
                    false => Ok(()),
                }
            }
        };
        // Nobody may be reading; the run goes on.
        drop(written);
    }

    /// Leaves the rewritten line standing.
    pub fn end(&self) {
        if self.terminal {
            eprintln!();
        }
    }

    /// Written MiB/s over all watched devices since the last row.
    fn disk_mib_per_second(&mut self, row: &SeriesRow) -> Option<f64> {
        let host = row.host.as_ref().filter(|host| !host.devices.is_empty())?;
        let bytes = host.devices.values().map(|device| device.total.write_bytes).sum();
        let before = self.last_disk_bytes.replace((row.mono_ns, bytes))?;
        let seconds = (row.mono_ns - before.0) as f64 / 1e9;
        (seconds > 0.0).then(|| bytes.saturating_sub(before.1) as f64 / f64::from(1 << 20) / seconds)
    }
}

fn line(row: &SeriesRow, started_ns: i64, ends_ns: Option<i64>, disk: Option<f64>) -> String {
    let seconds = |ns: i64| ns.max(0) / 1_000_000_000;
    let left = ends_ns.map(|end| format!("/{} s", seconds(end - started_ns))).unwrap_or_else(|| " s".into());
    let frames = &row.frames;
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let age = row.end_to_end_p99_ns.or(row.handed_p99_ns).map(|ns| format!("{:.0} ms", ns as f64 / 1e6));
    format!(
        "{:>7} {:>3}{left} | offered {} published {} delivered {} inferred {} dropped {} late {} | lag {} | p99 {} | disk {} MiB/s",
        row.phase.name(),
        seconds(row.run_ns - started_ns),
        frames.offered,
        frames.acked,
        frames.delivered,
        frames.inferred,
        frames.dropped,
        frames.late,
        or_dash(row.lag_frames.map(|lag| format!("{lag:.0}"))),
        or_dash(age),
        or_dash(disk.map(|rate| format!("{rate:.1}"))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::phases::Phase;
    use contract::series::FrameFigures;

    #[test]
    fn a_missing_figure_is_a_dash() {
        let row = SeriesRow {
            mono_ns: 0,
            run_ns: 12_000_000_000,
            phase: Phase::Main,
            frames: FrameFigures { offered: 7, ..FrameFigures::default() },
            end_to_end_p99_ns: None,
            handed_p99_ns: None,
            ack_p99_ns: None,
            lag_frames: None,
            lag_seconds: None,
            lag_by_stage: Default::default(),
            host: None,
        };
        let line = line(&row, 2_000_000_000, Some(62_000_000_000), None);
        assert!(line.contains("main  10/60 s | offered 7"), "{line}");
        assert!(line.ends_with("lag - | p99 - | disk - MiB/s"), "{line}");
    }
}
