//! Figures of one process: CPU, memory, threads, bytes.
//!
//! `write_bytes` counts when a page is dirtied, not when the disk takes it: right for "who wrote", wrong for "what
//! reached the disk".

use std::fs;

use serde::{Deserialize, Serialize};

use crate::root::ProcRoot;

/// Counters of /proc/PID/io.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIo {
    /// Bytes fetched from storage.
    pub read_bytes: u64,
    /// Bytes dirtied for storage.
    pub write_bytes: u64,
    /// Dirtied bytes that were deleted before they reached storage.
    pub cancelled_write_bytes: u64,
    /// Bytes asked for by system calls, whatever served them: cache, pipes, sockets.
    pub call_read_bytes: u64,
    pub call_write_bytes: u64,
}

/// One reading of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessCounters {
    pub pid: u32,
    pub name: String,
    /// As in ps: R, S, D (waiting for the disk), Z (ended, not yet reaped), ...
    pub state: char,
    /// Clock ticks after boot; another value means the pid was given to another process.
    pub start_ticks: u64,
    pub user_seconds: f64,
    pub system_seconds: f64,
    pub threads: u64,
    pub rss_bytes: u64,
    /// Highest RSS so far.
    pub rss_peak_bytes: Option<u64>,
    pub swap_bytes: Option<u64>,
    /// Page faults that needed the disk.
    pub major_faults: u64,
    /// Absent when the process belongs to another user.
    pub io: Option<ProcessIo>,
}

impl ProcessCounters {
    pub fn cpu_seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }
}

/// Reads processes below a root.
#[derive(Debug, Clone)]
pub struct ProcessReader {
    root: ProcRoot,
    ticks_per_second: f64,
    page_bytes: u64,
}

impl ProcessReader {
    pub fn new(root: &ProcRoot) -> Self {
        let auxiliary = fs::read(root.proc.join("self/auxv")).unwrap_or_default();
        Self {
            root: root.clone(),
            // 100 on every architecture Rust supports with a standard library; the kernel's word is better.
            ticks_per_second: auxiliary_value(&auxiliary, AT_CLKTCK).unwrap_or(100) as f64,
            page_bytes: auxiliary_value(&auxiliary, AT_PAGESZ).unwrap_or(4096),
        }
    }

    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// `None` when there is no such process (any more).
    pub fn read(&self, pid: u32) -> Option<ProcessCounters> {
        let stat = self.root.proc_optional(&format!("{pid}/stat"))?;
        let mut counters = self.parse_stat(pid, &stat)?;
        if let Some(status) = self.root.proc_optional(&format!("{pid}/status")) {
            counters.rss_peak_bytes = kib_line(&status, "VmHWM:");
            counters.swap_bytes = kib_line(&status, "VmSwap:");
        }
        counters.io = self.root.proc_optional(&format!("{pid}/io")).and_then(|text| parse_io(&text));
        Some(counters)
    }

    fn parse_stat(&self, pid: u32, stat: &str) -> Option<ProcessCounters> {
        // The name may hold blanks and brackets of its own: it ends at the last one.
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // proc(5) counts from 1 with pid and name in front: field n is fields[n - 3].
        let number = |n: usize| fields.get(n - 3)?.parse::<u64>().ok();
        Some(ProcessCounters {
            pid,
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            start_ticks: number(22)?,
            user_seconds: number(14)? as f64 / self.ticks_per_second,
            system_seconds: number(15)? as f64 / self.ticks_per_second,
            threads: number(20)?,
            rss_bytes: number(24)?.saturating_mul(self.page_bytes),
            rss_peak_bytes: None,
            swap_bytes: None,
            major_faults: number(12)?,
            io: None,
        })
    }
}

fn kib_line(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn parse_io(text: &str) -> Option<ProcessIo> {
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(name, _)| *name == key)?.1.trim().parse().ok()
    };
    Some(ProcessIo {
        read_bytes: value("read_bytes")?,
        write_bytes: value("write_bytes")?,
        cancelled_write_bytes: value("cancelled_write_bytes")?,
        call_read_bytes: value("rchar")?,
        call_write_bytes: value("wchar")?,
    })
}

const AT_PAGESZ: u64 = 6;
const AT_CLKTCK: u64 = 17;

/// The auxiliary vector: pairs of native words (getauxval(3)), readable without a C call.
fn auxiliary_value(vector: &[u8], key: u64) -> Option<u64> {
    let word = size_of::<usize>();
    let mut words = vector.chunks_exact(word).map(|bytes| {
        let mut wide = [0_u8; 8];
        if cfg!(target_endian = "little") {
            wide[..word].copy_from_slice(bytes);
        } else {
            wide[8 - word..].copy_from_slice(bytes);
        }
        u64::from_ne_bytes(wide)
    });
    loop {
        let (found, value) = (words.next()?, words.next()?);
        if found == key {
            return Some(value).filter(|&value| value > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AT_CLKTCK, AT_PAGESZ, ProcessIo, ProcessReader, auxiliary_value};
    use crate::root::ProcRoot;
    use crate::root::fixture::Fixture;

    const STAT: &str = "4711 (a (b) c) S 1 4711 4711 0 -1 4194560 900 0 12 0 250 125 0 0 20 0 9 0 88000 1000000 256 \
                        18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
    const IO: &str = "rchar: 1000\nwchar: 2000\nsyscr: 1\nsyscw: 2\nread_bytes: 4096\nwrite_bytes: 8192\n\
                      cancelled_write_bytes: 512\n";

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let fixture = Fixture::new();
        fixture.file("proc/4711/stat", STAT).file("proc/4711/io", IO);
        fixture.file("proc/4711/status", "Name:\ta\nVmHWM:\t    2048 kB\nVmSwap:\t       4 kB\n");
        let process = ProcessReader::new(&fixture.root).read(4711).unwrap();
        assert_eq!((process.name.as_str(), process.state), ("a (b) c", 'S'));
        assert_eq!((process.user_seconds, process.system_seconds, process.cpu_seconds()), (2.5, 1.25, 3.75));
        assert_eq!((process.threads, process.start_ticks, process.major_faults), (9, 88000, 12));
        assert_eq!(process.rss_bytes, 256 * 4096);
        assert_eq!((process.rss_peak_bytes, process.swap_bytes), (Some(2 << 20), Some(4096)));
        let expected = ProcessIo {
            read_bytes: 4096,
            write_bytes: 8192,
            cancelled_write_bytes: 512,
            call_read_bytes: 1000,
            call_write_bytes: 2000,
        };
        assert_eq!(process.io, Some(expected));
    }

    #[test]
    fn an_unreadable_io_file_is_blank_and_a_missing_process_is_none() {
        let fixture = Fixture::new();
        fixture.file("proc/4711/stat", STAT);
        let reader = ProcessReader::new(&fixture.root);
        assert_eq!(reader.read(4711).unwrap().io, None);
        assert_eq!(reader.read(4712), None);
        fixture.file("proc/4711/stat", "4711 (cut");
        assert_eq!(reader.read(4711), None);
    }

    #[test]
    fn the_auxiliary_vector_tells_page_size_and_ticks() {
        let words: [usize; 6] = [6, 16384, 17, 250, 0, 0];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(auxiliary_value(&bytes, AT_PAGESZ), Some(16384));
        assert_eq!(auxiliary_value(&bytes, AT_CLKTCK), Some(250));
        assert_eq!(auxiliary_value(&bytes, 99), None);
        assert_eq!(auxiliary_value(&bytes[..3], AT_PAGESZ), None);
    }

    #[test]
    fn this_process_is_read_from_the_host() {
        let process = ProcessReader::new(&ProcRoot::default()).read(std::process::id()).unwrap();
        assert!(process.threads >= 1 && process.rss_bytes > 100_000, "{process:?}");
        assert!(process.rss_peak_bytes.unwrap() > 100_000 && process.start_ticks > 0, "{process:?}");
    }
}
