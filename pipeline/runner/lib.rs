//! Puts stages together: starts their processes, gives them one clock and one set of phases, gathers their books, judges.

pub mod agent;
pub mod api;
mod audit;
mod books;
mod client;
mod control;
mod disks;
mod fleet;
mod launch;
mod options;
pub mod process;
mod run;
mod serve;
mod session;
pub mod topology;
mod verdict;
mod watch;

pub use books::{BUILT_IN_LABEL, folder_name};
pub use launch::end_with_parent;
pub use options::{Progress, RunError, RunOptions, Services};
pub use run::run;
