//! Disks by phase, device bytes against what was published, write debt, and the broker.

use contract::phases::Phase;
use contract::summary::{BrokerFacts, DiskPhase, Summary};

use super::Section;
use crate::figures::WHOLE_RUN;
use crate::grid::Grid;
use crate::text::{BLANK, bytes, bytes_or_blank, fixed_or_blank, percent_or_blank, short_or_blank};
use crate::truth::{StorageTruth, storage_truth};

/// Phases in the order they run, as named in `disks[].phases`.
const PHASES: [Phase; 7] =
    [Phase::Init, Phase::Ready, Phase::WarmUp, Phase::Main, Phase::Drain, Phase::Sync, Phase::End];

pub fn disks(summary: &Summary) -> Option<Section> {
    let heads = [
        "<device",
        "<phase",
        "+>seconds",
        ">r/s",
        ">w/s",
        ">rMiB/s",
        ">wMiB/s",
        ">rKiB",
        ">wKiB",
        ">r_await",
        ">w_await",
        ">aqu-sz",
        ">util",
        "+>read",
        "+>written",
    ];
    let mut grid = Grid::new(&heads);
    for disk in &summary.disks {
        for name in PHASES.map(Phase::name).into_iter().chain([WHOLE_RUN]) {
            if let Some(phase) = disk.phases.get(name) {
                grid.push(disk_row(&disk.device, name, phase));
            }
        }
    }
    Section::new(
        "disks",
        "Disks",
        "averages over all seconds of a phase (all: the whole run); requests in KiB, await in ms",
    )
    .lines(nonzero(summary))
    .grid(grid)
    .shown()
}

fn disk_row(device: &str, name: &str, phase: &DiskPhase) -> Vec<String> {
    let mut row = vec![device.to_owned(), name.to_owned(), fixed_or_blank(Some(phase.seconds), 1)];
    let figures = [
        phase.read_iops,
        phase.write_iops,
        phase.read_mib_per_second,
        phase.write_mib_per_second,
        phase.read_request_kib,
        phase.write_request_kib,
        phase.read_await_ms,
        phase.write_await_ms,
        phase.queue,
    ];
    row.extend(figures.map(short_or_blank));
    row.push(percent_or_blank(phase.utilisation));
    row.extend([phase.read_bytes, phase.write_bytes].map(bytes));
    row
}

/// The second kind of average: published studies discard idle seconds, so both are shown and named.
fn nonzero(summary: &Summary) -> Vec<String> {
    let main = summary.disks.iter().filter_map(|disk| Some((disk, disk.phases.get(Phase::Main.name())?)));
    main.filter(|(_, phase)| phase.write_mib_per_second_nonzero.is_some() || phase.write_iops_nonzero.is_some())
        .map(|(disk, phase)| {
            format!(
                "{} in main: {} w/s and {} MiB/s written over all seconds; {} and {} over seconds with writes only",
                disk.device,
                short_or_blank(phase.write_iops),
                short_or_blank(phase.write_mib_per_second),
                short_or_blank(phase.write_iops_nonzero),
                short_or_blank(phase.write_mib_per_second_nonzero)
            )
        })
        .collect()
}

pub fn truth(summary: &Summary) -> Option<Section> {
    let truth = storage_truth(summary);
    let mut grid = Grid::new(&["<what", ">bytes", ">per payload byte", ">per payload byte and replica"]);
    let row = |name: String, bytes: Option<u64>, per_payload: Option<f64>, per_replica: Option<f64>| {
        let ratio = |value| fixed_or_blank(value, 3);
        vec![name, bytes_or_blank(bytes), ratio(per_payload), ratio(per_replica)]
    };
    if truth.payload_bytes.is_some() || truth.log_bytes.is_some() || truth.device_bytes.is_some() {
        let over =
            |part: Option<u64>, whole: Option<u64>| Some(part? as f64 / whole.filter(|whole| *whole > 0)? as f64);
        let payload = truth.payload_bytes;
        grid.push(row("payload published".into(), payload, over(payload, payload), None));
        let replicated = truth.replicated_bytes;
        grid.push(row(
            "payload x replicas".into(),
            replicated,
            over(replicated, payload),
            over(replicated, replicated),
        ));
        grid.push(row(
            "logs, all replicas".into(),
            truth.log_bytes,
            over(truth.log_bytes, payload),
            truth.log_overhead(),
        ));
        let device = format!("written to {}", truth.device.as_deref().unwrap_or("the device"));
        grid.push(row(device, truth.device_bytes, truth.per_payload_byte(), truth.amplification()));
    }
    Section::new("device-bytes", "Device bytes", "against what was published, over the whole run, sync included")
        .lines(truth_lines(summary, &truth))
        .grid(grid)
        .shown()
}

fn truth_lines(summary: &Summary, truth: &StorageTruth) -> Vec<String> {
    let mut lines = Vec::new();
    if truth.device_bytes.is_some() {
        lines.push("the whole device counts, other writers too".to_owned());
    }
    if let Some(why) = &truth.why_blank {
        lines.push(format!("device bytes are blank: {why}"));
    }
    lines.extend(summary.sync.as_ref().map(|sync| {
        let took = match sync.seconds {
            Some(seconds) => format!("sync took {} s", short_or_blank(Some(seconds))),
            None => "sync did not return before its deadline".to_owned(),
        };
        let error = sync.error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
        let (before, after) = (bytes_or_blank(sync.dirty_before_bytes), bytes_or_blank(sync.dirty_after_bytes));
        format!("write debt: {took}{error}; dirty before {before}, after {after}")
    }));
    lines.extend(
        summary
            .storage
            .iter()
            .filter(|storage| storage.ram)
            .map(|storage| format!("{} is in memory: no figure here is of a disk", storage.path)),
    );
    lines
}

pub fn broker(summary: &Summary) -> Option<Section> {
    let broker = summary.broker.as_ref()?;
    let version = broker.version.as_deref().unwrap_or(BLANK);
    let died = if broker.died { "; it DIED in the run" } else { "" };
    let dir = broker.data_dir.as_ref().map(|dir| format!("; data in {dir}")).unwrap_or_default();
    Section::new("broker", "Broker", "")
        .line(broker_label(broker))
        .line(format!("version {version}, {} node(s) at {}{dir}{died}", broker.nodes, broker.bootstrap_servers))
        .shown()
}

/// What its numbers stand for.
pub fn broker_label(broker: &BrokerFacts) -> String {
    let own = broker.kind == "built-in";
    match (&broker.label, own) {
        (_, true) => "built-in broker; its numbers do not stand for Apache Kafka".to_owned(),
        (Some(label), false) => format!("{} broker; {label}", broker.kind),
        (None, false) => format!("{} broker", broker.kind),
    }
}
