//! /proc/meminfo and /proc/vmstat: the page cache between the broker and the disk.

use serde::{Deserialize, Serialize};

use crate::root::ProcRoot;

/// Gauges in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    pub total_bytes: Option<u64>,
    pub available_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
    pub cached_bytes: Option<u64>,
    /// Written by processes, not yet being written to a disk.
    pub dirty_bytes: Option<u64>,
    /// Being written to a disk.
    pub writeback_bytes: Option<u64>,
    pub swap_total_bytes: Option<u64>,
    pub swap_free_bytes: Option<u64>,
}

impl Memory {
    pub fn read(root: &ProcRoot) -> Option<Self> {
        root.proc_optional("meminfo").map(|text| Self::parse(&text))
    }

    pub fn parse(text: &str) -> Self {
        let mut memory = Self::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let field = match key {
                "MemTotal" => &mut memory.total_bytes,
                "MemAvailable" => &mut memory.available_bytes,
                "MemFree" => &mut memory.free_bytes,
                "Cached" => &mut memory.cached_bytes,
                "Dirty" => &mut memory.dirty_bytes,
                "Writeback" => &mut memory.writeback_bytes,
                "SwapTotal" => &mut memory.swap_total_bytes,
                "SwapFree" => &mut memory.swap_free_bytes,
                _ => continue,
            };
            let kib = value.trim().strip_suffix("kB").and_then(|number| number.trim().parse::<u64>().ok());
            *field = kib.and_then(|kib| kib.checked_mul(1024));
        }
        memory
    }

    /// Dirty plus writeback: what the disk still owes.
    pub fn write_debt_bytes(&self) -> Option<u64> {
        Some(self.dirty_bytes?.saturating_add(self.writeback_bytes?))
    }
}

/// Counters of pages since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapCounters {
    pub pages_in: u64,
    pub pages_out: u64,
    pub major_faults: u64,
}

/// Activity over an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryActivity {
    pub swap_in_bytes_per_second: f64,
    pub swap_out_bytes_per_second: f64,
    pub major_faults_per_second: f64,
}

impl SwapCounters {
    pub fn read(root: &ProcRoot) -> Option<Self> {
        Self::parse(&root.proc_optional("vmstat")?)
    }

    pub fn parse(text: &str) -> Option<Self> {
        let value = |key: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(name, _)| *name == key)?.1.trim().parse().ok()
        };
        Some(Self { pages_in: value("pswpin")?, pages_out: value("pswpout")?, major_faults: value("pgmajfault")? })
    }

    pub fn since(&self, earlier: &Self, seconds: f64, page_bytes: u64) -> Option<MemoryActivity> {
        let rate = |now: u64, then: u64| Some(now.checked_sub(then)? as f64 / seconds);
        (seconds > 0.0).then_some(())?;
        Some(MemoryActivity {
            swap_in_bytes_per_second: rate(self.pages_in, earlier.pages_in)? * page_bytes as f64,
            swap_out_bytes_per_second: rate(self.pages_out, earlier.pages_out)? * page_bytes as f64,
            major_faults_per_second: rate(self.major_faults, earlier.major_faults)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Memory, SwapCounters};

    #[test]
    fn gauges_are_bytes_and_similar_names_are_not_confused() {
        let memory = Memory::parse(
            "MemTotal:       24684084 kB\nMemFree:        21075204 kB\nMemAvailable:   23682356 kB\nCached:          2732572 kB\n\
             SwapCached:            7 kB\nDirty:            136300 kB\nWriteback:           200 kB\nWritebackTmp:          9 kB\n\
             SwapTotal:             0 kB\nHugePages_Total:       3\n",
        );
        assert_eq!(memory.total_bytes, Some(24_684_084 * 1024));
        assert_eq!(memory.cached_bytes, Some(2_732_572 * 1024));
        assert_eq!(memory.write_debt_bytes(), Some(136_500 * 1024));
        assert_eq!((memory.swap_total_bytes, memory.swap_free_bytes), (Some(0), None));
    }

    #[test]
    fn an_unknown_debt_is_blank_not_zero() {
        assert_eq!(Memory::parse("Dirty: 5 kB\n").write_debt_bytes(), None);
    }

    #[test]
    fn swap_activity_is_a_rate() {
        let before = SwapCounters::parse("pswpin 10\npswpout 20\npgfault 5\npgmajfault 7\n").unwrap();
        let after = SwapCounters::parse("pswpin 12\npswpout 30\npgmajfault 11\n").unwrap();
        let activity = after.since(&before, 2.0, 4096).unwrap();
        assert_eq!((activity.swap_in_bytes_per_second, activity.swap_out_bytes_per_second), (4096.0, 20480.0));
        assert_eq!(activity.major_faults_per_second, 2.0);
        assert_eq!(after.since(&before, 0.0, 4096), None);
        assert_eq!(SwapCounters::parse("pgfault 5\n"), None);
    }
}
