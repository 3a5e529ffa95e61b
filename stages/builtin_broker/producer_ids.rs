//! Producer ids: never given out twice, also not after a crash.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::durable;
use crate::error::BrokerError;
use crate::storage::partition::lock;

/// Ids reserved with one write; a crash skips the rest of them.
const BLOCK: i64 = 1_000;

#[derive(Debug, Serialize, Deserialize)]
struct Reserved {
    next_block: i64,
}

#[derive(Debug)]
struct State {
    next: i64,
    reserved_until: i64,
}

/// Gives out producer ids.
#[derive(Debug)]
pub(crate) struct ProducerIds {
    path: PathBuf,
    state: Mutex<State>,
}

impl ProducerIds {
    pub fn open(data_dir: &Path) -> Result<ProducerIds, BrokerError> {
        let path = data_dir.join("producer-ids.json");
        let next = durable::read_json::<Reserved>(&path)?.map_or(0, |reserved| reserved.next_block);
        Ok(ProducerIds { path, state: Mutex::new(State { next, reserved_until: next }) })
    }

    pub fn next(&self) -> io::Result<i64> {
        let mut state = lock(&self.state);
        if state.next == state.reserved_until {
            let next_block = state.reserved_until + BLOCK;
            durable::replace_json(&self.path, &Reserved { next_block })?;
            state.reserved_until = next_block;
        }
        state.next += 1;
        Ok(state.next - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_and_are_never_repeated_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let ids = ProducerIds::open(dir.path()).unwrap();
        assert_eq!((ids.next().unwrap(), ids.next().unwrap()), (0, 1));
        drop(ids);
        assert_eq!(ProducerIds::open(dir.path()).unwrap().next().unwrap(), BLOCK);
    }
}
