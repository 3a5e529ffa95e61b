//! What the books cost: CPU time a frame of ledger, counters and histograms, in a source and in a consuming stage, and of one
//! delta a second. Prints the share of one core at a frame rate: `bench_books [frames a second, default 7200]`.

use contract::clock::thread_cpu_ns;
use contract::latency::{Chain, Step};
use contract::ledger::Ledger;
use contract::phases::{Phase, Phases};
use contract::recorder::{FrameRef, Outcome, Recorder};

const STREAMS: u32 = 300;
const FRAMES: u64 = 600_000;
const DELTAS: u64 = 50;

fn recorder(folder: &std::path::Path, name: &str, with_ledger: bool) -> Recorder {
    let topics = vec!["frames".to_owned()];
    let ledger = with_ledger.then(|| Ledger::create(&folder.join(name), &topics).expect("the folder is writable"));
    let phases = Phases::default();
    phases.announce(Phase::Main, 0);
    Recorder::new(topics, ledger, phases, 1_000_000_000)
}

fn frame(k: u64) -> FrameRef {
    let due_ns = k as i64 * 1000;
    FrameRef { topic: 0, stream: (k % u64::from(STREAMS)) as u32, seq: k / u64::from(STREAMS), due_ns, bytes: 10_000 }
}

/// CPU nanoseconds a frame.
fn cost(work: impl Fn(u64)) -> f64 {
    let before = thread_cpu_ns();
    (0..FRAMES).for_each(work);
    (thread_cpu_ns() - before) as f64 / FRAMES as f64
}

fn source(recorder: &Recorder) -> f64 {
    cost(|k| {
        let of = frame(k);
        recorder.offered(of, 1000);
        for step in [Step::Blocked, Step::SelfLag, Step::Enqueue] {
            recorder.step(step, of.due_ns, 1000 + (k % 977) as i64);
        }
        recorder.acked(of, of.due_ns + 2_000_000);
    })
}

fn consumer(recorder: &Recorder) -> f64 {
    cost(|k| {
        let of = frame(k);
        recorder.seen((of.stream % 12) as i32, (k / 12) as i64, of, true, of.due_ns + 1_000_000);
        let mut chain = Chain {
            due_ns: of.due_ns,
            blocked_ns: 0,
            self_lag_ns: 1000,
            enqueue_ns: 500,
            produced_ns: of.due_ns + 1500,
            handed_ns: of.due_ns + 1_000_000,
            preprocessed_ns: of.due_ns + 1_000_000,
            batched_ns: of.due_ns + 1_000_000,
            end_ns: of.due_ns + 1_000_000,
        };
        chain.end_ns += (k % 977) as i64;
        chain.record(recorder);
        recorder.done(of, Outcome::Audited, chain.end_ns);
        recorder.position(0, (of.stream % 12) as i32, (k / 12) as i64);
    })
}

/// CPU nanoseconds of one delta as JSON.
fn delta(recorder: &Recorder) -> f64 {
    let before = thread_cpu_ns();
    for n in 0..DELTAS {
        let text = serde_json::to_vec(&recorder.delta(n, 0)).expect("a delta is JSON");
        std::hint::black_box(text);
    }
    (thread_cpu_ns() - before) as f64 / DELTAS as f64
}

fn main() {
    let rate: f64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(7200.0);
    let folder = std::env::temp_dir().join(format!("bench-books-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    for (name, work) in [("source", source as fn(&Recorder) -> f64), ("consumer", consumer)] {
        let with = recorder(&folder, name, true);
        let (with_ledger, without) = (work(&with), work(&recorder(&folder, name, false)));
        let second = delta(&with);
        let share = (with_ledger * rate + second) / 1e9 * 100.0;
        #[expect(clippy::print_stdout, reason = "a bench prints its result")]
        {
            println!(
                "{name:<9} {with_ledger:>6.0} ns/frame ({without:.0} without ledger), delta {:.2} ms: {share:.2} % of one core at {rate} frames/s",
                second / 1e6
            );
        }
    }
    let _ = std::fs::remove_dir_all(folder);
}
