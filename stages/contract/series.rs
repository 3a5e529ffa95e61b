//! The time series of a run: one row each second, one JSON object a line in `series.jsonl`. Missing is absent, never 0.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::host::HostSample;
use crate::phases::Phase;

/// One second of a run. Frame figures are cumulative; rates are for the reader to take.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct SeriesRow {
    pub mono_ns: i64,
    /// Nanoseconds since t0; negative before it.
    pub run_ns: i64,
    pub phase: Phase,
    pub frames: FrameFigures,
    /// p99 over the samples since the last row, not cumulative; absent with fewer than 100 of them.
    pub end_to_end_p99_ns: Option<i64>,
    /// Due until handed to the consuming stage, of every frame.
    #[serde(default)]
    pub handed_p99_ns: Option<i64>,
    pub ack_p99_ns: Option<i64>,
    pub lag_frames: Option<f64>,
    pub lag_seconds: Option<f64>,
    /// Lag by consuming stage.
    #[serde(default)]
    pub lag_by_stage: BTreeMap<String, f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<HostSample>,
}

/// Frame counts over all stages, cumulative since t0.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct FrameFigures {
    pub scheduled: u64,
    pub offered: u64,
    pub offered_bytes: u64,
    pub acked: u64,
    pub acked_bytes: u64,
    pub delivered: u64,
    pub inferred: u64,
    pub dropped: u64,
    pub late: u64,
}
