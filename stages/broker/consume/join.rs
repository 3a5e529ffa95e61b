//! Keeps a member in its group until a stage begins to read: rebalances are answered by whoever polls, and other members wait
//! for the answer. Thread `consume-join`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use contract::StageError;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Message, Offset};

use super::bell::Bell;
use super::member::Member;

const LISTEN: Duration = Duration::from_millis(20);
const SEEK: Duration = Duration::from_secs(1);

pub(crate) struct Joining {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Joining {
    pub(crate) fn start(consumer: Arc<BaseConsumer<Member>>, bell: Arc<Bell>) -> Result<Self, StageError> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = std::thread::Builder::new()
            .name("consume-join".into())
            .spawn(move || {
                while !told.load(Ordering::Acquire) {
                    serve(&consumer, &bell);
                }
            })
            .map_err(|error| StageError::limit("thread consume-join", error.to_string()))?;
        Ok(Joining { stop, thread: Some(thread) })
    }
}

/// What is assigned is paused, so this serves only the group; an error is seen again by the reader.
fn serve(consumer: &BaseConsumer<Member>, bell: &Bell) {
    match consumer.poll(Duration::ZERO) {
        Some(Ok(message)) => {
            let back = Offset::Offset(message.offset());
            if let Err(error) = consumer.seek(message.topic(), message.partition(), back, SEEK) {
                tracing::error!(%error, "a record read before the start cannot be put back");
            }
        }
        Some(Err(_)) => {}
        None => bell.wait(LISTEN),
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("thread consume-join ended by a panic");
        }
    }
}
