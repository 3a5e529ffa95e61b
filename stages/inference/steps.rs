//! The stage at work: threads, the queues between them, and the order in which they end.

use std::{
    sync::Arc,
    thread::{self, Builder, ScopedJoinHandle},
    time::Duration,
};

use contract::{Cx, Delivery, Input, Next, Output, StageError};
use crossbeam_channel::{Receiver, SendTimeoutError, Sender, TrySendError, bounded};

use crate::{
    batch::BatchQueue,
    classes::top_k,
    model::Model,
    preprocess::{Preprocessor, Target},
    results::Publisher,
    select::{Rule, Selector},
    signature::Weights,
    work::{Books, Work},
};

/// Frames waiting for one preprocessing thread: enough to keep it busy while the next is fetched, few enough to be
/// handed to another member of the group when this one dies.
const PREPROCESS_QUEUE: usize = 4;
/// How long a blocked or idle thread goes without looking for an abort.
const LOOK_AROUND: Duration = Duration::from_millis(100);
/// Time for the last delivery reports when nobody set a drain deadline.
const FLUSH_NS: i64 = 30_000_000_000;

/// Settings of a running stage, all checked.
pub(crate) struct Plan {
    pub rule: Rule,
    pub target: Target,
    pub batch_max: usize,
    pub batch_wait: Duration,
    pub preprocess_threads: u32,
    pub top_k: usize,
    pub drop_older_than_ns: Option<i64>,
    pub model_name: String,
    pub weights: Weights,
}

/// What the threads share.
struct Shared<'a> {
    plan: &'a Plan,
    books: Books<'a>,
    queue: BatchQueue<Work>,
    /// Input buffers on their way back: a fresh 600 KB one for every image would cost page faults.
    spare: (Sender<Vec<f32>>, Receiver<Vec<f32>>),
}

/// Work until the input closes or the stage is aborted, then end in order: input, preprocessing, running, output.
pub(crate) fn run(
    plan: Plan,
    model: Model,
    mut input: Box<dyn Input>,
    output: Option<Arc<dyn Output>>,
    cx: &Cx,
) -> Result<(), StageError> {
    // Two batches: one being gathered while the other is full and waits for the run to end.
    let capacity = plan.batch_max * 2;
    let shared = Shared {
        plan: &plan,
        books: Books::new(cx, input.completer()),
        queue: BatchQueue::new(plan.batch_max, plan.batch_wait, capacity),
        spare: bounded(capacity + plan.batch_max + plan.preprocess_threads as usize),
    };
    let publisher = output.clone().map(|output| Publisher::new(output, cx, &plan.model_name, plan.weights));
    let worked = thread::scope(|scope| {
        // A thread that cannot be started ends this block early; the scope then waits for those that were.
        let _guard = AbortOnDrop(&shared);
        let runner = spawn(scope, "infer-run".to_owned(), || run_batches(&shared, model, publisher))?;
        let mut senders = Vec::new();
        let mut preprocessors = Vec::new();
        for index in 0..plan.preprocess_threads {
            let (sender, receiver) = bounded(PREPROCESS_QUEUE);
            senders.push(sender);
            let name = format!("infer-preprocess-{index}");
            preprocessors.push(spawn(scope, name, || preprocess(&shared, receiver))?);
        }
        let taken = take_in(&shared, input.as_mut(), &senders);
        drop(senders);
        if cx.shutdown.is_aborting() {
            give_up(&shared);
        }
        let prepared = preprocessors.into_iter().map(join).collect::<Vec<_>>();
        shared.queue.close();
        let ran = join(runner);
        prepared.into_iter().fold(taken, Result::and).and(ran)
    });
    if let Some(output) = output {
        let deadline_ns = cx.drain_target().map_or_else(|| cx.clock.now_ns() + FLUSH_NS, |drain| drain.deadline_ns);
        output.flush(deadline_ns);
    }
    worked.and(input.close())
}

fn spawn<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: String,
    work: impl FnOnce() -> Result<(), StageError> + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, Result<(), StageError>>, StageError> {
    let place = name.clone();
    let spawned = Builder::new().name(name).spawn_scoped(scope, work);
    spawned.map_err(|error| StageError::limit(place, format!("start thread: {error}")))
}

fn join(thread: ScopedJoinHandle<'_, Result<(), StageError>>) -> Result<(), StageError> {
    let name = thread.thread().name().unwrap_or_default().to_owned();
    thread.join().unwrap_or_else(|_| Err(StageError::stage(name, "the thread panicked")))
}

/// Read the topic, count what is not selected, hand the rest on.
fn take_in(shared: &Shared<'_>, input: &mut dyn Input, senders: &[Sender<Work>]) -> Result<(), StageError> {
    let cx = shared.books.cx;
    let mut selector = Selector::new(shared.plan.rule, cx.random("select").next_u64());
    while !cx.shutdown.is_aborting() {
        match input.next(LOOK_AROUND)? {
            Next::Idle => {}
            Next::Closed => return Ok(()),
            Next::Item(delivery) if selector.selects(&delivery.frame) => hand_on(shared, *delivery, senders)?,
            Next::Item(delivery) => shared.books.not_selected(&delivery),
        }
        if let Some(failure) = cx.recorder.failure() {
            return Err(failure);
        }
    }
    Ok(())
}

/// To the preprocessing thread of its stream: one stream on two threads could overtake itself.
fn hand_on(shared: &Shared<'_>, delivery: Delivery, senders: &[Sender<Work>]) -> Result<(), StageError> {
    let sender = &senders[delivery.frame.stream as usize % senders.len()];
    let mut work = Work::new(delivery);
    loop {
        match sender.send_timeout(work, LOOK_AROUND) {
            Ok(()) => return Ok(()),
            Err(SendTimeoutError::Timeout(back)) if shared.books.cx.shutdown.is_aborting() => {
                shared.books.dropped(&back, "aborted");
                return Ok(());
            }
            Err(SendTimeoutError::Timeout(back)) => work = back,
            Err(SendTimeoutError::Disconnected(back)) => {
                shared.books.dropped(&back, "stage stopped");
                return Err(StageError::stage("infer-preprocess", "the thread ended before its input did"));
            }
        }
    }
}

fn preprocess(shared: &Shared<'_>, work: Receiver<Work>) -> Result<(), StageError> {
    let cx = shared.books.cx;
    let preprocessor = Preprocessor::new(shared.plan.target);
    let mut preprocessor = preprocessor.map_err(|error| StageError::stage("infer-preprocess", error.to_string()))?;
    for mut work in work {
        if let Some(reason) = reason_to_drop(shared, &work) {
            shared.books.dropped(&work, reason);
            continue;
        }
        work.input = shared.spare.1.try_recv().unwrap_or_default();
        work.input.resize(shared.plan.target.floats(), 0.0);
        let payload = std::mem::take(&mut work.payload);
        match preprocessor.fill(work.frame.encoding, work.frame.geometry, &payload, &mut work.input) {
            Ok(()) => {
                drop(payload);
                work.chain.preprocessed_ns = cx.clock.now_ns();
                if let Err(back) = shared.queue.push(work.frame.stream, work) {
                    shared.books.dropped(&back, "aborted");
                }
            }
            Err(error) => {
                shared.books.failed(&work, "payload", &error.to_string());
                recycle(shared, work);
            }
        }
    }
    Ok(())
}

fn reason_to_drop(shared: &Shared<'_>, work: &Work) -> Option<&'static str> {
    let cx = shared.books.cx;
    if cx.shutdown.is_aborting() {
        return Some("aborted");
    }
    let age_ns = cx.clock.now_ns() - work.frame.due_ns;
    shared.plan.drop_older_than_ns.filter(|limit_ns| age_ns > *limit_ns).map(|_| "too old")
}

/// Run batch after batch until no more will come; the last step of every frame that got this far.
fn run_batches(shared: &Shared<'_>, mut model: Model, mut publisher: Option<Publisher>) -> Result<(), StageError> {
    // However this thread ends, nobody may wait for it in vain.
    let _guard = AbortOnDrop(shared);
    let (mut batch, mut gathered): (Vec<Work>, Vec<f32>) = (Vec::new(), Vec::new());
    let (mut runs, mut images) = (0u64, 0u64);
    while shared.queue.next_batch(&mut batch) {
        if shared.books.cx.shutdown.is_aborting() {
            batch.drain(..).for_each(|work| shared.books.dropped(&work, "aborted"));
            continue;
        }
        let batched_ns = shared.books.cx.clock.now_ns();
        batch.iter_mut().for_each(|work| work.chain.batched_ns = batched_ns);
        runs += 1;
        images += batch.len() as u64;
        run_one(shared, &mut model, &mut batch, &mut gathered, publisher.as_mut());
        let recorder = &shared.books.cx.recorder;
        recorder.fact("runs", runs);
        recorder.fact("images_per_run", images as f64 / runs as f64);
    }
    Ok(())
}

fn run_one(
    shared: &Shared<'_>,
    model: &mut Model,
    batch: &mut Vec<Work>,
    gathered: &mut Vec<f32>,
    mut publisher: Option<&mut Publisher>,
) {
    let output = match batch.as_slice() {
        // A single image needs no copy.
        [one] => model.run(&one.input),
        many => {
            gathered.clear();
            many.iter().for_each(|work| gathered.extend_from_slice(&work.input));
            model.run(gathered)
        }
    };
    match output {
        Ok(output) => {
            let best = top_k(&output, shared.plan.top_k, model.signature().label_offset);
            let end_ns = shared.books.cx.clock.now_ns();
            for (mut work, top) in batch.drain(..).zip(best) {
                work.chain.end_ns = end_ns;
                shared.books.inferred(&work);
                if let Some(publisher) = publisher.as_deref_mut() {
                    publisher.publish(&work, top);
                }
                shared.books.complete(&work);
                recycle(shared, work);
            }
        }
        Err(error) => {
            for work in batch.drain(..) {
                shared.books.failed(&work, "run", &error.to_string());
                recycle(shared, work);
            }
        }
    }
}

/// Keep the buffer for another image; a full pool lets it go.
fn recycle(shared: &Shared<'_>, work: Work) {
    match shared.spare.0.try_send(work.input) {
        Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
    }
}

/// Hand back whatever waits for the model.
fn give_up(shared: &Shared<'_>) {
    for work in shared.queue.abort() {
        shared.books.dropped(&work, "aborted");
    }
}

struct AbortOnDrop<'a>(&'a Shared<'a>);

impl Drop for AbortOnDrop<'_> {
    fn drop(&mut self) {
        give_up(self.0);
    }
}
