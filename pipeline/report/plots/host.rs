//! Charts of disks, CPU, pressure and memory.

use std::collections::BTreeMap;

use contract::host::{CpuSample, DeviceSample, MemorySample, PressureSample};
use contract::series::SeriesRow;

use super::{dashed, line, rates, values};
use crate::charts::lines::{Band, Limit, Line, LineChart, Points};
use crate::charts::{Caption, Figure};
use crate::load::RunFolder;

const MIB: f64 = (1u64 << 20) as f64;
/// Devices drawn, the most written first.
const DEVICES_SHOWN: usize = 3;
/// Processes drawn one by one; the rest are one area.
const PROCESSES_SHOWN: usize = 7;

const THROUGHPUT: Caption<'static> = Caption {
    id: "chart-throughput",
    title: "Disk throughput",
    about: "Whole devices, beside the payload that was offered",
};
const IOPS: Caption<'static> =
    Caption { id: "chart-iops", title: "Disk operations", about: "Requests completed each second" };
const AWAIT: Caption<'static> = Caption {
    id: "chart-await",
    title: "Disk latency",
    about: "Mean time of a request (await); a gap is a second without requests",
};
const QUEUE: Caption<'static> =
    Caption { id: "chart-queue", title: "Disk queue", about: "Mean requests in flight (aqu-sz)" };
const REQUEST: Caption<'static> =
    Caption { id: "chart-request", title: "Request size", about: "Mean size of a request" };

pub fn disk_figures(folder: &RunFolder, bands: &[Band]) -> Vec<Option<Figure>> {
    let draw = |caption, unit, means, lines| {
        LineChart { caption, unit, lines, bands, limit: None, stacked: false, means }.figure()
    };
    let mib = |of: fn(&DeviceSample) -> Option<f64>| move |device: &DeviceSample| of(device).map(|bytes| bytes / MIB);
    let mut throughput = both(folder, mib(|d| d.write_bytes_per_second), mib(|d| d.read_bytes_per_second));
    if !throughput.is_empty() {
        let payload = rates(folder, |row| Some(row.frames.offered_bytes as f64 / MIB));
        throughput.push(dashed("payload offered", 7, payload));
    }
    let iops = both(folder, |d| d.writes_per_second, |d| d.reads_per_second);
    let ms =
        |of: fn(&DeviceSample) -> Option<f64>| move |device: &DeviceSample| of(device).map(|seconds| seconds * 1e3);
    let waits = both(folder, ms(|d| d.write_await_seconds), ms(|d| d.read_await_seconds));
    let queue = devices(folder).into_iter().enumerate();
    let queue = queue.map(|(index, name)| line(&name, index * 2, of_device(folder, &name, |d| d.queue))).collect();
    let kib =
        |of: fn(&DeviceSample) -> Option<f64>| move |device: &DeviceSample| of(device).map(|bytes| bytes / 1024.0);
    let sizes = both(folder, kib(|d| d.write_request_bytes), kib(|d| d.read_request_bytes));
    vec![
        draw(THROUGHPUT, "MiB/s", true, throughput),
        draw(IOPS, "IOPS", true, iops),
        draw(AWAIT, "ms", false, waits),
        draw(QUEUE, "requests", true, queue),
        draw(REQUEST, "KiB", false, sizes),
        write_debt(folder, bands),
    ]
}

pub fn host_figures(folder: &RunFolder, bands: &[Band]) -> Vec<Option<Figure>> {
    vec![cpu(folder, bands), waiting(folder, bands)]
}

/// Devices of the series, the most written first.
fn devices(folder: &RunFolder) -> Vec<String> {
    let mut written: BTreeMap<&String, u64> = BTreeMap::new();
    for (name, device) in folder.series.iter().filter_map(|row| row.host.as_ref()).flat_map(|host| &host.devices) {
        written.insert(name, device.total.write_bytes);
    }
    let mut names: Vec<(&String, u64)> = written.into_iter().collect();
    names.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    names.into_iter().take(DEVICES_SHOWN).map(|(name, _)| name.clone()).collect()
}

fn of_device(folder: &RunFolder, name: &str, of: impl Fn(&DeviceSample) -> Option<f64>) -> Points {
    values(folder, |row| row.host.as_ref()?.devices.get(name).and_then(&of))
}

/// A line for writes and one for reads of each device.
fn both(
    folder: &RunFolder,
    writes: impl Fn(&DeviceSample) -> Option<f64>,
    reads: impl Fn(&DeviceSample) -> Option<f64>,
) -> Vec<Line> {
    let pairs = devices(folder).into_iter().enumerate().flat_map(|(index, name)| {
        [
            line(&format!("{name} write"), index * 2, of_device(folder, &name, &writes)),
            line(&format!("{name} read"), index * 2 + 1, of_device(folder, &name, &reads)),
        ]
    });
    pairs.collect()
}

fn cpu(folder: &RunFolder, bands: &[Band]) -> Option<Figure> {
    let mut used: BTreeMap<&String, f64> = BTreeMap::new();
    let hosts = folder.series.iter().filter_map(|row| row.host.as_ref());
    for (role, process) in hosts.flat_map(|host| &host.processes) {
        *used.entry(role).or_default() += process.cpu.filter(|cpu| cpu.is_finite()).unwrap_or(0.0);
    }
    let mut roles: Vec<(&String, f64)> = used.into_iter().collect();
    roles.sort_by(|a, b| b.1.total_cmp(&a.1));
    let rest: Vec<&String> = roles.iter().skip(PROCESSES_SHOWN).map(|(role, _)| *role).collect();
    let of = |row: &SeriesRow, role: &String| row.host.as_ref()?.processes.get(role)?.cpu;
    let shown = roles.iter().take(PROCESSES_SHOWN).enumerate();
    let mut lines: Vec<Line> =
        shown.map(|(index, (role, _))| line(role, index, values(folder, |row| of(row, role)))).collect();
    if !rest.is_empty() {
        let sum = values(folder, |row| {
            let known: Vec<f64> = rest.iter().filter_map(|role| of(row, role)).collect();
            (!known.is_empty()).then(|| known.iter().sum())
        });
        lines.push(line(&format!("{} others", rest.len()), PROCESSES_SHOWN, sum));
    }
    let cores = folder.summary.as_ref().map(|summary| f64::from(summary.host.cores)).filter(|cores| *cores > 0.0);
    let limit = cores.map(|value| Limit { name: "all cores".into(), value });
    let caption = Caption {
        id: "chart-cpu",
        title: "CPU of each process",
        about: "Cores in use, stacked; what other processes of the host use is not in it",
    };
    LineChart { caption, unit: "cores", lines, bands, limit, stacked: true, means: true }.figure()
}

fn waiting(folder: &RunFolder, bands: &[Band]) -> Option<Figure> {
    let cpu = |of: fn(&CpuSample) -> f64| values(folder, move |row| Some(of(&row.host.as_ref()?.cpu?) * 100.0));
    let pressure = |of: fn(&PressureSample) -> Option<f64>| {
        let points = rates(folder, move |row| of(&row.host.as_ref()?.pressure?));
        points.into_iter().map(|(at, share)| (at, share.map(|share| share * 100.0))).collect::<Points>()
    };
    let lines = vec![
        line("CPU busy", 0, cpu(|cpu| cpu.user + cpu.system)),
        line("iowait", 1, cpu(|cpu| cpu.iowait)),
        line("steal", 3, cpu(|cpu| cpu.steal)),
        dashed("some task waits for I/O (PSI)", 5, pressure(|psi| psi.io_waiting_seconds)),
        dashed("all tasks wait for I/O (PSI)", 7, pressure(|psi| psi.io_stalled_seconds)),
        dashed("some task waits for CPU (PSI)", 2, pressure(|psi| psi.cpu_waiting_seconds)),
    ];
    let caption = Caption {
        id: "chart-waiting",
        title: "CPU, iowait, steal and pressure",
        about: "CPU figures as shares of all CPU time, pressure as shares of the time",
    };
    LineChart { caption, unit: "%", lines, bands, limit: None, stacked: false, means: true }.figure()
}

fn write_debt(folder: &RunFolder, bands: &[Band]) -> Option<Figure> {
    let of =
        |of: fn(&MemorySample) -> u64| values(folder, move |row| Some(of(&row.host.as_ref()?.memory?) as f64 / MIB));
    let lines = vec![line("Dirty", 1, of(|m| m.dirty_bytes)), line("Writeback", 0, of(|m| m.writeback_bytes))];
    let caption = Caption {
        id: "chart-dirty",
        title: "Write debt",
        about: "Memory that waits to be written (Dirty) or is being written (Writeback)",
    };
    LineChart { caption, unit: "MiB", lines, bands, limit: None, stacked: false, means: true }.figure()
}
