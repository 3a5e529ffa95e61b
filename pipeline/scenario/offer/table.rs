//! The offer as text: two aligned tables and a few lines.

use std::fmt;

use super::Offer;

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_table(
            f,
            &["stage", "kind", "mode", "streams", "frames/s", "KB/frame", "MB/s", "CPU"],
            3,
            self.stage_rows(),
        )?;
        if !self.topics.is_empty() {
            let header = ["topic", "partitions", "replication", "frames/s", "MB/s", "MB/s with replicas", "GB on disk"];
            writeln!(f)?;
            write_table(f, &header, 1, self.topic_rows())?;
            writeln!(f)?;
            self.write_totals(f)?;
        } else {
            writeln!(f)?;
        }
        if let Some(cpu_seconds) = self.cpu_seconds_per_second {
            let all = self.stages.iter().all(|stage| stage.demand.cpu_seconds_per_second.is_some());
            let how = if all { "about" } else { "at least" };
            writeln!(f, "CPU   {how} {cpu_seconds:.2} of {}, without the broker", self.cpus)?;
        }
        for stage in &self.stages {
            for note in &stage.demand.notes {
                writeln!(f, "note  {}: {note}", stage.id)?;
            }
        }
        Ok(())
    }
}

impl Offer {
    fn stage_rows(&self) -> Vec<Vec<String>> {
        let row = |stage: &super::StageOffer| {
            let demand = &stage.demand;
            let kind =
                if stage.instances == 1 { stage.kind.clone() } else { format!("{} x{}", stage.kind, stage.instances) };
            vec![
                stage.id.clone(),
                kind,
                demand.mode.clone().unwrap_or_else(absent),
                demand.streams.map_or_else(absent, |streams| streams.to_string()),
                figure(demand.frames_per_second, 1.0, 1),
                figure(demand.frame_bytes.map(|bytes| bytes as f64), 1e3, 1),
                figure(stage.bytes_per_second, 1e6, 1),
                figure(demand.cpu_seconds_per_second, 1.0, 2),
            ]
        };
        self.stages.iter().map(row).collect()
    }

    fn topic_rows(&self) -> Vec<Vec<String>> {
        let row = |topic: &super::TopicOffer| {
            let replicated = topic.bytes_per_second.map(|bytes| bytes * f64::from(topic.replication));
            vec![
                topic.name.clone(),
                topic.partitions.to_string(),
                topic.replication.to_string(),
                figure(topic.frames_per_second, 1.0, 1),
                figure(topic.bytes_per_second, 1e6, 1),
                figure(replicated, 1e6, 1),
                figure(topic.disk_bytes.map(|bytes| bytes as f64), 1e9, 2),
            ]
        };
        self.topics.iter().map(row).collect()
    }

    fn write_totals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.frames_per_second, self.bytes_per_second, self.replicated_bytes_per_second) {
            (Some(frames), Some(bytes), Some(replicated)) => {
                let (mb, with_replicas) = (bytes / 1e6, replicated / 1e6);
                writeln!(f, "load  {frames:.1} frames/s, {mb:.1} MB/s, with replicas {with_replicas:.1} MB/s")?;
            }
            _ => writeln!(f, "load  unpaced or unknown: as fast as the broker takes it")?,
        }
        match self.disk_bytes_complete {
            true => write!(f, "disk  {} after", bytes(self.disk_bytes))?,
            false => write!(f, "disk  as much as the broker takes in")?,
        }
        write!(f, " {} s of warm-up and main", self.seconds)?;
        write!(f, "; budget {}", bytes(self.disk_budget_bytes))?;
        if let Some(free) = self.free_bytes {
            write!(f, ", free {}, floor {}", bytes(free), bytes(self.free_space_floor_bytes))?;
        }
        writeln!(f)
    }
}

/// Bytes in GB as the table shows them.
pub(super) fn bytes(bytes: u64) -> String {
    format!("{:.2} GB", bytes as f64 / 1e9)
}

fn absent() -> String {
    "-".into()
}

fn figure(value: Option<f64>, unit: f64, decimals: usize) -> String {
    value.map_or_else(absent, |value| format!("{:.decimals$}", value / unit))
}

/// The first `words` columns to the left, figures to the right.
fn write_table(f: &mut fmt::Formatter<'_>, header: &[&str], words: usize, rows: Vec<Vec<String>>) -> fmt::Result {
    let header: Vec<String> = header.iter().map(|title| (*title).to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&header).chain(&rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    for row in all {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column < words { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}
