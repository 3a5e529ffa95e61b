//! Fetch: wait until enough is there, then read whole batches straight into the response.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_request::FetchPartition;

use crate::api::code;
use crate::clock;
use crate::facts::add;
use crate::serve::Caller;
use crate::storage::partition::{LEADER_EPOCH, Partition};

/// Longest poll, whatever the client asks for: a thread is bound as long.
const WAIT_MAX_MS: u64 = 30_000;
/// Largest response, except for a single batch that is larger.
const RESPONSE_MAX_BYTES: usize = 64 << 20;
/// Isolation level of consumers that want committed data only.
const READ_COMMITTED: i8 = 1;

/// A requested partition, found or not.
struct Target<'a> {
    asked: &'a FetchPartition,
    partition: Result<Arc<Partition>, i16>,
}

impl Target<'_> {
    /// The partition, if the offset asked for can be served; the error is the code to answer.
    fn check(&self) -> Result<&Arc<Partition>, i16> {
        let partition = self.partition.as_ref().map_err(|error| *error)?;
        if partition.is_deleted() {
            return Err(code::UNKNOWN_TOPIC_OR_PARTITION);
        }
        if self.asked.current_leader_epoch > LEADER_EPOCH {
            return Err(code::UNKNOWN_LEADER_EPOCH);
        }
        let (start, end) = partition.bounds();
        if (start..=end).contains(&self.asked.fetch_offset) { Ok(partition) } else { Err(code::OFFSET_OUT_OF_RANGE) }
    }
}

/// Answer into `out`, behind the response header.
pub(super) fn answer(caller: &Caller<'_>, version: i16, request: &FetchRequest, out: &mut Vec<u8>) {
    out.extend(0_i32.to_be_bytes());
    if version >= 7 {
        let session_error = if request.session_id == 0 { code::NONE } else { code::FETCH_SESSION_ID_NOT_FOUND };
        out.extend(session_error.to_be_bytes());
        out.extend(0_i32.to_be_bytes());
        if session_error != code::NONE {
            out.extend(0_i32.to_be_bytes());
            return;
        }
    }
    let targets: Vec<Vec<Target<'_>>> = request
        .topics
        .iter()
        .map(|topic| {
            let led = |asked: &FetchPartition| caller.shared.topics.led_by(caller.node, &topic.topic, asked.partition);
            let target = |asked| Target { asked, partition: led(asked) };
            topic.partitions.iter().map(target).collect()
        })
        .collect();
    wait_for_data(caller, request, &targets);
    let mut budget = usize::try_from(request.max_bytes).unwrap_or(0).min(RESPONSE_MAX_BYTES);
    let mut sent_bytes = 0;
    put_length(out, request.topics.len());
    for (topic, targets) in request.topics.iter().zip(&targets) {
        put_text(out, &topic.topic);
        put_length(out, targets.len());
        for target in targets {
            let bytes = put_partition(version, request.isolation_level, target, budget, sent_bytes == 0, out);
            budget = budget.saturating_sub(bytes);
            sent_bytes += bytes;
        }
    }
    add(&caller.shared.counters.bytes_fetched, sent_bytes as u64);
}

fn wait_for_data(caller: &Caller<'_>, request: &FetchRequest, targets: &[Vec<Target<'_>>]) {
    let wanted = u64::try_from(request.min_bytes).unwrap_or(0);
    let wait_ms = u64::try_from(request.max_wait_ms).unwrap_or(0).min(WAIT_MAX_MS);
    let deadline_ms = clock::monotonic_ms() + wait_ms;
    let mut looked_twice = false;
    let mut registered: Vec<&Arc<Partition>> = Vec::new();
    loop {
        let now_ms = clock::monotonic_ms();
        let stopping = caller.shared.stopping.load(Ordering::Acquire);
        if stopping || now_ms >= deadline_ms || is_enough(targets, wanted) {
            break;
        }
        if looked_twice {
            caller.waiter.sleep(Duration::from_millis(deadline_ms - now_ms));
        } else {
            looked_twice = true;
            // Data that came before the registration is seen by looking once more.
            registered = distinct_partitions(targets);
            registered.iter().for_each(|partition| partition.waiters.add(caller.waiter));
        }
    }
    registered.iter().for_each(|partition| partition.waiters.remove(caller.waiter));
}

/// Each partition once, however often a hostile request names it.
fn distinct_partitions<'a>(targets: &'a [Vec<Target<'_>>]) -> Vec<&'a Arc<Partition>> {
    let mut partitions: Vec<_> = targets.iter().flatten().filter_map(|target| target.partition.as_ref().ok()).collect();
    partitions.sort_by_key(|partition| Arc::as_ptr(partition));
    partitions.dedup_by_key(|partition| Arc::as_ptr(partition));
    partitions
}

/// An error is told at once; otherwise the wanted bytes must be there.
fn is_enough(targets: &[Vec<Target<'_>>], wanted: u64) -> bool {
    let mut available = 0;
    for target in targets.iter().flatten() {
        match target.check() {
            Ok(partition) => available += partition.available_bytes(target.asked.fetch_offset),
            Err(_) => return true,
        }
    }
    available >= wanted
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    // The numbers of elements come from a decoded request, which limits them.
    out.extend(i32::try_from(length).unwrap_or(0).to_be_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend(i16::try_from(text.len()).unwrap_or(0).to_be_bytes());
    out.extend(text.as_bytes());
}

/// One partition of the response; returns the bytes of batches in it.
fn put_partition(
    version: i16,
    isolation: i8,
    target: &Target<'_>,
    budget: usize,
    first: bool,
    out: &mut Vec<u8>,
) -> usize {
    let checked = target.check();
    let error = checked.as_ref().err().copied().unwrap_or(code::NONE);
    let (start, end) = checked.as_ref().map_or((-1, -1), |partition| partition.bounds());
    out.extend(target.asked.partition.to_be_bytes());
    let error_at = out.len();
    out.extend(error.to_be_bytes());
    out.extend(end.to_be_bytes());
    // Without transactions everything is stable.
    out.extend(end.to_be_bytes());
    if version >= 5 {
        out.extend(start.to_be_bytes());
    }
    // Aborted transactions: none, or null for who does not ask.
    out.extend(if isolation == READ_COMMITTED { 0_i32 } else { -1 }.to_be_bytes());
    if version >= 11 {
        out.extend((-1_i32).to_be_bytes());
    }
    let length_at = out.len();
    put_length(out, 0);
    let Ok(partition) = checked else { return 0 };
    let max_bytes = usize::try_from(target.asked.partition_max_bytes).unwrap_or(0).min(budget);
    match partition.read(target.asked.fetch_offset, max_bytes, first, out) {
        Ok(bytes) => {
            let length = i32::try_from(bytes).unwrap_or(0);
            out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
            bytes
        }
        Err(problem) => {
            tracing::error!(partition = partition.placement.name(), %problem, "cannot read; answering storage error");
            out[error_at..error_at + 2].copy_from_slice(&code::STORAGE_ERROR.to_be_bytes());
            0
        }
    }
}
