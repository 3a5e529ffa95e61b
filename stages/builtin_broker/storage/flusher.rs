//! The thread that forces closed segments to the device and writes their index files.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::error::BrokerError;
use crate::facts::{Counters, add};
use crate::storage::index::Index;

/// Closed segments waiting for the device. When it is full, the append that rolls waits: the device is the limit then.
const WAITING: usize = 64;

/// A closed segment: its replica files and where its index belongs.
pub(crate) struct ClosedSegment {
    pub files: Vec<Arc<File>>,
    pub index: Index,
    pub index_paths: Vec<PathBuf>,
}

/// What waits in the queue; `None` ends the thread after everything before it.
type Job = Option<ClosedSegment>;

/// Hands closed segments to the thread.
#[derive(Clone)]
pub(crate) struct Flusher {
    queue: Sender<Job>,
}

impl Flusher {
    pub fn start(counters: Arc<Counters>) -> Result<(Flusher, JoinHandle<()>), BrokerError> {
        let (queue, waiting) = bounded(WAITING);
        let name = "broker-flusher".to_owned();
        let thread = std::thread::Builder::new()
            .name(name.clone())
            .spawn(move || run(&waiting, &counters))
            .map_err(|source| BrokerError::Thread { name, source })?;
        Ok((Flusher { queue }, thread))
    }

    pub fn close(&self, segment: ClosedSegment) {
        if self.queue.send(Some(segment)).is_err() {
            tracing::error!("the flusher thread is gone; a closed segment was not forced to the device");
        }
    }

    /// Let the thread finish its queue and end.
    pub fn finish(&self) {
        // It fails only when the thread has ended already, which is what was asked for.
        let _ = self.queue.send(None);
    }
}

fn run(waiting: &Receiver<Job>, counters: &Counters) {
    while let Ok(Some(segment)) = waiting.recv() {
        if let Err(error) = force(&segment.files, counters) {
            tracing::error!(%error, "a closed segment could not be forced to the device");
        }
        // Retention or a deleted topic may have been faster.
        for path in segment.index_paths.iter().filter(|path| path.with_extension("log").exists()) {
            if let Err(error) = segment.index.write(path) {
                tracing::warn!(path = %path.display(), %error, "index file not written; it is rebuilt at the next start");
            }
        }
    }
}

/// Force replica files to the device, counting each.
pub(crate) fn force(files: &[Arc<File>], counters: &Counters) -> io::Result<()> {
    for file in files {
        file.sync_all()?;
        add(&counters.fsyncs, 1);
    }
    Ok(())
}
