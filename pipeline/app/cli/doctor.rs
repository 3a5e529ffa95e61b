//! `reelbench doctor`: what this host lacks for which feature.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use contract::host::HostProbe;
use serde::Serialize;

use crate::cli::Format;
use crate::output;

/// Say what this host lacks, and for which feature
#[derive(Args)]
#[command(after_help = "Examples:\n  reelbench doctor\n  reelbench doctor --dir /mnt/drive-under-test")]
pub struct DoctorArgs {
    /// Folder where broker data would live
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// One thing looked for.
#[derive(Serialize)]
struct Finding {
    feature: &'static str,
    found: bool,
    observed: String,
    /// What to do; empty when found.
    remedy: String,
}

fn finding(feature: &'static str, found: bool, observed: impl Into<String>, remedy: &str) -> Finding {
    Finding { feature, found, observed: observed.into(), remedy: if found { String::new() } else { remedy.to_owned() } }
}

pub fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let findings = look(&args.dir);
    match args.format {
        Format::Json => output::print_json(&findings)?,
        Format::Text => output::print(&text(&findings))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn look(dir: &Path) -> Vec<Finding> {
    let probe = disk::DiskProbe::default();
    let (host, storage) = (probe.host_facts(), probe.storage_facts(dir));
    let sample = probe.sampler().sample();
    let library = inference::find_library(&inference::assets_dir());
    let free_gib = storage.free_bytes.map(|bytes| format!("{:.1} GiB free", bytes as f64 / f64::from(1 << 30)));
    let device = storage.device.clone().or_else(|| storage.no_device_reason.clone()).unwrap_or_default();
    let clips = ["bbb-1080p24.mp4", "bbb-2160p60.mp4"].iter().all(|clip| inference::assets_dir().join(clip).exists());
    vec![
        finding("host", true, format!("{} cores, kernel {}", host.cores, host.kernel), ""),
        finding(
            "inference: ONNX Runtime",
            library.is_ok(),
            library.map_or_else(|error| error.to_string(), |path| path.display().to_string()),
            "run `reelbench assets fetch`, or set ORT_DYLIB_PATH",
        ),
        finding(
            "quick start: demo clips",
            clips,
            inference::assets_dir().display().to_string(),
            "run `reelbench assets fetch`",
        ),
        finding("disk figures: block device", storage.device.is_some(), device, "put broker data on a block device"),
        finding(
            "disk figures: not in RAM",
            !storage.ram,
            storage.file_system.clone().unwrap_or_default(),
            "put broker data on a disk: RAM says nothing of one",
        ),
        finding(
            "disk space",
            storage.free_bytes.is_some_and(|bytes| bytes > 8 << 30),
            free_gib.unwrap_or_else(|| "unknown".into()),
            "the quick start writes about 5 GiB: free some space or name another `--out`",
        ),
        finding("pressure figures (PSI)", sample.pressure.is_some(), "", "boot with psi=1; without it they are blank"),
        finding(
            "block traces (tracefs)",
            Path::new("/sys/kernel/tracing/instances").exists(),
            "/sys/kernel/tracing",
            "mount it as root: mount -t tracefs tracefs /sys/kernel/tracing",
        ),
    ]
}

fn text(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let mark = if finding.found { "ok     " } else { "missing" };
        let remedy =
            if finding.remedy.is_empty() { String::new() } else { format!("\n          -> {}", finding.remedy) };
        format!("{mark}  {:<30} {}{remedy}", finding.feature, finding.observed)
    };
    findings.iter().map(line).collect::<Vec<_>>().join("\n")
}
