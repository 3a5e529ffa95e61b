//! What sampling costs: CPU time of one look at the host, and its share of a core at one look a second.
//!
//! `cargo run --release -p disk --example sampler_cost [SAMPLES]`

use std::error::Error;
use std::io::{Write, stdout};
use std::process::{Command, Stdio};

use disk::{ProcRoot, Sampler, whole_devices};

/// As many processes as a small run has: broker, runner, a few stages.
const PROCESSES: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let samples = std::env::args().nth(1).map_or(Ok(2000), |text| text.parse::<u64>())?;
    let root = ProcRoot::default();
    let mut sampler = Sampler::new(&root);
    let devices = whole_devices(&root);
    for device in &devices {
        sampler.watch_device(device);
    }
    let mut children = Vec::new();
    for index in 0..PROCESSES {
        let child = Command::new("sleep").arg("600").stdout(Stdio::null()).spawn()?;
        sampler.watch_process(&format!("process-{index}"), child.id());
        children.push(child);
    }
    for _ in 0..samples {
        sampler.sample();
    }
    let cost = sampler.cost();
    let micros = cost.cpu_seconds * 1e6 / cost.samples as f64;
    writeln!(
        stdout(),
        "{} devices, {PROCESSES} processes: {micros:.0} us of CPU a sample, {:.3} % of a core at one sample a second ({} samples)",
        devices.len(),
        micros / 1e4,
        cost.samples
    )?;
    for mut child in children {
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}
