//! The `audit` stage: reads a topic back, so that every frame is known to have arrived. The input checks CRC, order and
//! duplicates; this stage closes the latency chain at the moment a frame was handed over.

use std::time::Duration;

use contract::latency::Chain;
use contract::recorder::{FrameRef, Outcome};
use contract::stage::{Demand, Ports, Stage};
use contract::{Cx, Delivery, Io, Next, StageError};
use schemars::JsonSchema;
use serde::Deserialize;

/// How long one look at the input may take; bounds the reaction to a failure elsewhere.
const WAIT: Duration = Duration::from_millis(100);

/// `config:` of kind `audit`; it has no settings.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {}

pub struct Audit;

impl Stage for Audit {
    type Config = Config;
    const KIND: &'static str = "audit";
    const ABOUT: &'static str = "reads a topic back and accounts for every frame";
    const PORTS: Ports = Ports::Sink;

    fn demand(_config: &Config) -> Result<Demand, StageError> {
        Ok(Demand::default())
    }

    fn open(_config: Config, _cx: &Cx) -> Result<Self, StageError> {
        Ok(Audit)
    }

    fn run(self, io: Io, cx: &Cx) -> Result<(), StageError> {
        let mut input = io.input.ok_or_else(|| StageError::config(&*cx.stage_id, "kind audit needs `from`"))?;
        let completer = input.completer();
        loop {
            match input.next(WAIT)? {
                Next::Item(delivery) => {
                    note(&delivery, cx);
                    completer.complete(delivery.receipt);
                }
                Next::Idle => {}
                Next::Closed => break,
            }
        }
        input.close()
    }
}

fn note(delivery: &Delivery, cx: &Cx) {
    let frame = &delivery.frame;
    Chain::of(delivery).record(&cx.recorder);
    let of = FrameRef {
        topic: delivery.receipt.topic,
        stream: frame.stream,
        seq: frame.seq,
        due_ns: frame.due_ns,
        bytes: frame.payload.len() as u64,
    };
    cx.recorder.done(of, Outcome::Audited, delivery.handed_ns);
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::recorder::Counter;
    use contract::testing::{Feed, assert_stage_contract, context, frame};

    const ENTRY: contract::StageEntry = contract::StageEntry::of::<Audit>();

    fn frames(n: u64) -> Vec<contract::Frame> {
        (0..n).map(|seq| frame(seq, seq as i64 * 1_000, vec![1; 100].into())).collect()
    }

    #[test]
    fn the_audit_stage_keeps_the_stage_contract() {
        assert_stage_contract(&ENTRY, serde_json::json!({}), frames(50));
        assert_stage_contract(&ENTRY, serde_json::json!({}), Vec::new());
    }

    #[test]
    fn every_frame_is_done_with_a_chain() {
        let folder = tempfile::tempdir().unwrap();
        let cx = context(folder.path(), &["frames"]);
        let (feed, done) = Feed::new(&cx, frames(50));
        Audit.run(Io { input: Some(feed), output: None }, &cx).unwrap();
        assert_eq!(cx.recorder.get(Counter::Done), 50);
        assert_eq!(done.receipts().len(), 50);
        let delta = cx.recorder.delta(0, 0);
        let outside = delta.steps[&contract::latency::Step::EndToEnd].outside.as_ref().unwrap();
        assert_eq!(contract::histogram::NsHistogram::from_text(outside).unwrap().count(), 50);
    }

    #[test]
    fn a_stage_without_input_is_a_configuration_error() {
        let folder = tempfile::tempdir().unwrap();
        let cx = context(folder.path(), &["frames"]);
        let error = Audit.run(Io::default(), &cx).unwrap_err();
        assert_eq!(error.code, contract::error::ErrorCode::Config);
    }
}
