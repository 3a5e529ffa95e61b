//! Commits completed offsets at an interval, on thread `consume-commit`: a commit waits for the broker's answer, and neither
//! reading nor the work on frames waits for that.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use contract::StageError;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use rdkafka::consumer::BaseConsumer;

use super::member::{Books, Member};

/// How long the last commit may take; a broker that is gone does not answer.
const LAST_COMMIT: Duration = Duration::from_secs(5);

/// How the committing ends.
enum End {
    Commit,
    Leave,
}

pub(crate) struct Committer {
    tell: Sender<End>,
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    pub(crate) fn start(
        consumer: Arc<BaseConsumer<Member>>,
        books: Arc<Books>,
        interval: Duration,
    ) -> Result<Self, StageError> {
        let (tell, told) = bounded(1);
        let (ending, ended) = bounded(1);
        let thread = std::thread::Builder::new()
            .name("consume-commit".into())
            .spawn(move || {
                commit_until_told(&consumer, &books, interval, &told);
                // Let go of the consumer first: whoever waits may be about to take it down.
                drop(consumer);
                let _ = ending.try_send(());
            })
            .map_err(|error| StageError::limit("thread consume-commit", error.to_string()))?;
        Ok(Committer { tell, ended, thread: Some(thread) })
    }

    /// Commits what is complete a last time.
    pub(crate) fn finish(mut self) {
        let _ = self.tell.try_send(End::Commit);
        self.join();
    }

    fn join(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.ended.recv_timeout(LAST_COMMIT).is_err() && !thread.is_finished() {
            // The thread ends when the client library gives the commit up.
            tracing::warn!("the last commit is not answered within {} s", LAST_COMMIT.as_secs());
            return;
        }
        if thread.join().is_err() {
            tracing::error!("thread consume-commit ended by a panic");
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        let _ = self.tell.try_send(End::Leave);
        self.join();
    }
}

fn commit_until_told(consumer: &BaseConsumer<Member>, books: &Books, interval: Duration, told: &Receiver<End>) {
    loop {
        match told.recv_timeout(interval) {
            Err(RecvTimeoutError::Timeout) => books.commit(consumer),
            Ok(End::Commit) => {
                books.commit(consumer);
                return;
            }
            Ok(End::Leave) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
