//! /proc/diskstats: lines, counters and the difference between two readings.
//!
//! Field meanings: Documentation/admin-guide/iostats.rst of the kernel. A sector is always 512 bytes here, whatever the
//! device's own block size is.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::error::DiskError;
use crate::root::ProcRoot;

pub const SECTOR_BYTES: u64 = 512;

/// Counters of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpCounters {
    pub completed: u64,
    pub merged: u64,
    pub sectors: u64,
    /// 32-bit in the kernel: wraps.
    pub time_ms: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushCounters {
    pub completed: u64,
    pub time_ms: u64,
}

/// One device's counters since it appeared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    pub reads: OpCounters,
    pub writes: OpCounters,
    /// A gauge, not a counter. Signed: some kernels have shown small negative values.
    pub in_flight: i64,
    pub io_time_ms: u64,
    pub weighted_ms: u64,
    /// Absent before Linux 4.18.
    pub discards: Option<OpCounters>,
    /// Absent before Linux 5.5.
    pub flushes: Option<FlushCounters>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub major: u32,
    pub minor: u32,
    pub name: String,
    pub counters: Counters,
}

/// What happened between two readings. Same shape as the counters; `in_flight` is the later reading's gauge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta(pub Counters);

/// Parse the whole file.
pub fn parse(text: &str) -> Result<Vec<Line>, DiskError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(index, line)| parse_line(index + 1, line)).collect()
}

/// Read and parse the host's file.
pub fn read_all(root: &ProcRoot) -> Result<Vec<Line>, DiskError> {
    parse(&root.proc_text("diskstats")?)
}

/// The counters of one device in a reading.
pub fn counters_of<'a>(lines: &'a [Line], device: &str) -> Option<&'a Counters> {
    lines.iter().find(|line| line.name == device).map(|line| &line.counters)
}

fn parse_line(line: usize, text: &str) -> Result<Line, DiskError> {
    let malformed =
        |problem| DiskError::Malformed { file: "/proc/diskstats", line, problem, text: text.trim().to_owned() };
    let mut words = text.split_ascii_whitespace();
    let major = words.next().and_then(|word| word.parse().ok()).ok_or_else(|| malformed("no major number"))?;
    let minor = words.next().and_then(|word| word.parse().ok()).ok_or_else(|| malformed("no minor number"))?;
    let name = words.next().ok_or_else(|| malformed("no device name"))?.to_owned();
    let mut fields = Vec::with_capacity(17);
    for (index, word) in words.take(17).enumerate() {
        // Field 9 (index 8), requests in flight, is the only one that can be negative.
        let field = if index == 8 { word.parse::<i64>().ok().map(i64::cast_unsigned) } else { word.parse().ok() };
        fields.push(field.ok_or_else(|| malformed("a field is not a number"))?);
    }
    // Kernels know 11, 15 or 17 fields; later ones may append more, which are ignored.
    if fields.len() < 11 {
        return Err(malformed("fewer than 11 fields after the name"));
    }
    Ok(Line { major, minor, name, counters: counters(&fields) })
}

fn counters(fields: &[u64]) -> Counters {
    let op = |at: usize| OpCounters {
        completed: fields[at],
        merged: fields[at + 1],
        sectors: fields[at + 2],
        time_ms: fields[at + 3],
    };
    Counters {
        reads: op(0),
        writes: op(4),
        in_flight: fields[8].cast_signed(),
        io_time_ms: fields[9],
        weighted_ms: fields[10],
        discards: (fields.len() >= 15).then(|| op(11)),
        flushes: (fields.len() >= 17).then(|| FlushCounters { completed: fields[15], time_ms: fields[16] }),
    }
}

/// Milliseconds are `unsigned int` in the kernel, so their difference is taken modulo 2^32.
fn millis_since(earlier: u64, later: u64) -> u64 {
    later.wrapping_sub(earlier) & u64::from(u32::MAX)
}

/// A 64-bit counter cannot run through half its range between two readings: that is a counter which started anew.
fn count_since(earlier: u64, later: u64) -> Option<u64> {
    let count = later.wrapping_sub(earlier);
    (count <= u64::MAX / 2).then_some(count)
}

impl OpCounters {
    fn since(&self, earlier: &Self) -> Option<Self> {
        Some(Self {
            completed: count_since(earlier.completed, self.completed)?,
            merged: count_since(earlier.merged, self.merged)?,
            sectors: count_since(earlier.sectors, self.sectors)?,
            time_ms: millis_since(earlier.time_ms, self.time_ms),
        })
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.completed = self.completed.saturating_add(other.completed);
        self.merged = self.merged.saturating_add(other.merged);
        self.sectors = self.sectors.saturating_add(other.sectors);
        self.time_ms = self.time_ms.saturating_add(other.time_ms);
    }

    pub fn bytes(&self) -> u64 {
        self.sectors.saturating_mul(SECTOR_BYTES)
    }
}

impl Counters {
    /// The difference to an earlier reading of the same device; `None` when the counters started anew in between
    /// (another device under the same name). Compare `diskseq` first where the kernel has it.
    pub fn since(&self, earlier: &Self) -> Option<Delta> {
        let discards = match (&self.discards, &earlier.discards) {
            (Some(now), Some(then)) => Some(now.since(then)?),
            _ => None,
        };
        let flushes = match (&self.flushes, &earlier.flushes) {
            (Some(now), Some(then)) => Some(FlushCounters {
                completed: count_since(then.completed, now.completed)?,
                time_ms: millis_since(then.time_ms, now.time_ms),
            }),
            _ => None,
        };
        Some(Delta(Self {
            reads: self.reads.since(&earlier.reads)?,
            writes: self.writes.since(&earlier.writes)?,
            in_flight: self.in_flight,
            io_time_ms: millis_since(earlier.io_time_ms, self.io_time_ms),
            weighted_ms: millis_since(earlier.weighted_ms, self.weighted_ms),
            discards,
            flushes,
        }))
    }
}

impl Delta {
    /// Sum consecutive differences. Time sums kept so do not wrap: each difference was taken before 2^32 ms had passed.
    pub fn add(&mut self, other: &Self) {
        let (sum, more) = (&mut self.0, &other.0);
        sum.reads.add(&more.reads);
        sum.writes.add(&more.writes);
        sum.in_flight = more.in_flight;
        sum.io_time_ms = sum.io_time_ms.saturating_add(more.io_time_ms);
        sum.weighted_ms = sum.weighted_ms.saturating_add(more.weighted_ms);
        if let Some(discards) = &more.discards {
            sum.discards.get_or_insert_default().add(discards);
        }
        if let Some(flushes) = &more.flushes {
            let total = sum.flushes.get_or_insert_default();
            total.completed = total.completed.saturating_add(flushes.completed);
            total.time_ms = total.time_ms.saturating_add(flushes.time_ms);
        }
    }
}

/// The whole disk a partition belongs to; `None` when the device is a whole disk or unknown to /sys.
pub fn partition_parent(root: &ProcRoot, device: &str) -> Option<String> {
    let dir = fs::canonicalize(root.block_dir(device)).ok()?;
    if !dir.join("partition").exists() {
        return None;
    }
    Some(dir.parent()?.file_name()?.to_str()?.replace('!', "/"))
}

/// Whole devices only, sorted: adding partitions to them would count every byte twice.
pub fn whole_devices(root: &ProcRoot) -> Vec<String> {
    let Ok(entries) = fs::read_dir(root.sys.join("block")) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.map(|name| name.replace('!', "/")).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert_eq, proptest};

    use super::{Counters, FlushCounters, OpCounters, counters_of, parse, partition_parent, read_all, whole_devices};
    use crate::root::fixture::Fixture;

    const OLD: &str = "   8       0 sda 100 5 2048 40 200 6 4096 80 3 90 120\n";
    const DISCARDS: &str = "   8       0 sda 100 5 2048 40 200 6 4096 80 3 90 120 7 1 512 9\n";
    const FLUSHES: &str = "   8       0 sda 100 5 2048 40 200 6 4096 80 3 90 120 7 1 512 9 11 13\n";

    fn one(text: &str) -> Counters {
        let lines = parse(text).unwrap();
        assert_eq!(lines.len(), 1);
        lines[0].counters
    }

    #[test]
    fn eleven_fields_leave_discards_and_flushes_absent() {
        let counters = one(OLD);
        assert_eq!(counters.reads, OpCounters { completed: 100, merged: 5, sectors: 2048, time_ms: 40 });
        assert_eq!(counters.writes, OpCounters { completed: 200, merged: 6, sectors: 4096, time_ms: 80 });
        assert_eq!((counters.in_flight, counters.io_time_ms, counters.weighted_ms), (3, 90, 120));
        assert_eq!((counters.discards, counters.flushes), (None, None));
    }

    #[test]
    fn fifteen_fields_add_discards() {
        let counters = one(DISCARDS);
        assert_eq!(counters.discards, Some(OpCounters { completed: 7, merged: 1, sectors: 512, time_ms: 9 }));
        assert_eq!(counters.flushes, None);
    }

    #[test]
    fn seventeen_fields_add_flushes_and_further_ones_are_ignored() {
        let expected = Some(FlushCounters { completed: 11, time_ms: 13 });
        assert_eq!(one(FLUSHES).flushes, expected);
        assert_eq!(one(&format!("{} 99 98\n", FLUSHES.trim_end())).flushes, expected);
    }

    #[test]
    fn a_line_cut_short_or_not_numeric_is_an_error_that_names_it() {
        let short = parse("8 0 sda 1 2 3\n").unwrap_err().to_string();
        assert!(short.contains("line 1") && short.contains("fewer than 11"), "{short}");
        let text = parse(&format!("{OLD}   8 16 sdb 1 2 x 4 5 6 7 8 9 10 11\n")).unwrap_err().to_string();
        assert!(text.contains("line 2") && text.contains("sdb"), "{text}");
    }

    #[test]
    fn a_negative_queue_is_kept_as_the_kernel_shows_it() {
        assert_eq!(one("8 0 sda 0 0 0 0 0 0 0 0 -1 0 0").in_flight, -1);
    }

    #[test]
    fn millisecond_fields_wrap_at_32_bits() {
        let before = one("8 0 sda 10 0 80 4294967290 20 0 160 4294967295 0 4294967000 4294967295");
        let after = one("8 0 sda 12 0 96 4 21 0 168 0 1 704 99");
        let delta = after.since(&before).unwrap().0;
        assert_eq!(delta.reads, OpCounters { completed: 2, merged: 0, sectors: 16, time_ms: 10 });
        assert_eq!(delta.writes, OpCounters { completed: 1, merged: 0, sectors: 8, time_ms: 1 });
        assert_eq!((delta.io_time_ms, delta.weighted_ms, delta.in_flight), (1000, 100, 1));
    }

    #[test]
    fn counts_wrap_at_64_bits_but_a_fall_to_zero_is_a_new_device() {
        let near_end = format!("8 0 sda {} 0 0 0 0 0 0 0 0 0 0", u64::MAX - 4);
        assert_eq!(one("8 0 sda 5 0 0 0 0 0 0 0 0 0 0").since(&one(&near_end)).unwrap().0.reads.completed, 10);
        assert_eq!(one("8 0 sda 0 0 0 0 0 0 0 0 0 0 0").since(&one(OLD)), None);
    }

    #[test]
    fn a_summed_difference_does_not_wrap() {
        let ticks = ["0", "4000000000", "3705032704", "3410065408"];
        let readings: Vec<_> = ticks.iter().map(|ms| one(&format!("8 0 sda 0 0 0 0 0 0 0 0 0 0 {ms}"))).collect();
        let mut sum = super::Delta::default();
        for pair in readings.windows(2) {
            sum.add(&pair[1].since(&pair[0]).unwrap());
        }
        assert_eq!(sum.0.weighted_ms, 12_000_000_000);
    }

    #[test]
    fn partitions_know_their_disk_and_are_not_among_whole_devices() {
        let fixture = Fixture::new();
        fixture.device("sda", "8:0").device("sda/sda1", "8:1").device("nvme0n1", "259:0").device("dm-0", "253:0");
        fixture.device("cciss!c0d0", "104:0").device("cciss!c0d0/cciss!c0d0p1", "104:1");
        assert_eq!(partition_parent(&fixture.root, "sda1").as_deref(), Some("sda"));
        assert_eq!(partition_parent(&fixture.root, "cciss/c0d0p1").as_deref(), Some("cciss/c0d0"));
        assert_eq!(partition_parent(&fixture.root, "sda"), None);
        assert_eq!(whole_devices(&fixture.root), ["cciss/c0d0", "dm-0", "nvme0n1", "sda"]);
    }

    #[test]
    fn the_host_file_is_read_below_the_root() {
        let fixture = Fixture::new();
        assert!(read_all(&fixture.root).unwrap_err().to_string().contains("diskstats"));
        fixture.file("proc/diskstats", FLUSHES);
        let lines = read_all(&fixture.root).unwrap();
        assert_eq!(counters_of(&lines, "sda").unwrap().writes.bytes(), 4096 * 512);
        assert_eq!(counters_of(&lines, "sdb"), None);
    }

    proptest! {
        #[test]
        fn any_start_plus_any_step_gives_the_step_back(
            count in 0_u64.., step in 0_u64..u64::MAX / 2, millis in 0_u32.., millis_step in 0_u32..
        ) {
            let op = |completed, time_ms: u32| OpCounters { completed, time_ms: u64::from(time_ms), ..Default::default() };
            let before = Counters { reads: op(count, millis), ..Default::default() };
            let after = Counters {
                reads: op(count.wrapping_add(step), millis.wrapping_add(millis_step)),
                ..Default::default()
            };
            let delta = after.since(&before).unwrap().0.reads;
            prop_assert_eq!((delta.completed, delta.time_ms), (step, u64::from(millis_step)));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[0-9a-z \n-]{0,200}") {
            let _ = parse(&text);
        }
    }
}
