//! The words every part of reelbench shares: frames and records, time, ledgers, latency, stages. No native library, no I/O
//! beyond the ledger file.

pub mod admin;
pub mod audit;
pub mod clock;
pub mod error;
pub mod flow;
pub mod frame;
pub mod histogram;
pub mod host;
pub mod intervals;
pub mod latency;
pub mod ledger;
pub mod metrics;
pub mod pace;
pub mod phases;
pub mod random;
pub mod recorder;
pub mod series;
pub mod shutdown;
pub mod stage;
pub mod summary;
pub mod testing;
pub mod units;
pub mod wire;

pub use clock::RunClock;
pub use error::StageError;
pub use flow::{Delivery, Input, Io, Next, Offer, Output, Receipt};
pub use frame::{Encoding, Frame, Geometry, Origin, Rational, RunId};
pub use recorder::{Counter, Recorder};
pub use shutdown::Shutdown;
pub use stage::{Cx, Demand, Ports, Registry, Stage, StageEntry};
pub use units::{ByteSize, Span};
