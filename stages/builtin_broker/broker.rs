//! The broker as its owner sees it: start, address, facts, stop.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::clock;
use crate::coordinator::Coordinator;
use crate::data_dir::DataDir;
use crate::error::BrokerError;
use crate::facts::{BrokerFacts, Counters};
use crate::listeners::{Connections, Listeners};
use crate::offsets::Offsets;
use crate::options::BrokerOptions;
use crate::producer_ids::ProducerIds;
use crate::serve::Shared;
use crate::storage::flusher::Flusher;
use crate::storage::partition::{StorageContext, lock};
use crate::storage::space::Space;
use crate::topics::Topics;

/// A running broker. Dropping it stops it too, but cannot tell when that fails.
pub struct Broker {
    shared: Arc<Shared>,
    listeners: Listeners,
    connections: Arc<Connections>,
    accepting: Vec<JoinHandle<()>>,
    /// Timer of the groups, maintenance, flusher.
    background: Vec<JoinHandle<()>>,
    maintenance_end: Arc<EndSignal>,
    flusher: Flusher,
    halted: bool,
}

/// Tells the maintenance thread to end.
#[derive(Default)]
struct EndSignal {
    ended: Mutex<bool>,
    changed: Condvar,
}

impl EndSignal {
    fn end(&self) {
        *lock(&self.ended) = true;
        self.changed.notify_all();
    }

    /// Sleep; true when the end was signalled.
    fn sleep(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(lock(&self.ended), time, |ended| !*ended);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Broker {
    /// Lock the directory, recover its partitions, listen, and serve.
    pub fn start(options: BrokerOptions) -> Result<Broker, BrokerError> {
        options.check()?;
        raise_open_files();
        // Ports before partitions: a busy port must not cost a scan, nor look like a crash to the next start.
        let data = DataDir::open(&options.data_dir, options.nodes)?;
        let listeners = Listeners::bind(&options)?;
        let counters = Arc::new(Counters::default());
        let (flusher, flusher_thread) = Flusher::start(Arc::clone(&counters))?;
        let space = Arc::new(Space::new(&data.path, options.disk_floor_bytes));
        let context = StorageContext { counters: Arc::clone(&counters), flusher: flusher.clone(), space };
        let shared = Arc::new(Shared {
            endpoints: listeners.endpoints(&options),
            topics: Topics::open(&data, &options, context)?,
            offsets: Offsets::open(&data.path)?,
            coordinator: Coordinator::new(options.initial_rebalance_delay_ms, Arc::clone(&counters)),
            producer_ids: ProducerIds::open(&data.path)?,
            counters,
            stopping: AtomicBool::new(false),
            data,
            options,
        });
        let timer_shared = Arc::clone(&shared);
        let timer = spawn("broker-groups", move || timer_shared.coordinator.run_timer())?;
        let maintenance_end = Arc::new(EndSignal::default());
        let (maintained, end) = (Arc::clone(&shared), Arc::clone(&maintenance_end));
        let maintenance = spawn("broker-maintenance", move || maintain(&maintained, &end))?;
        let connections = Arc::new(Connections::default());
        let accepting = listeners.start(&shared, &connections)?;
        let addresses = listeners.addresses();
        tracing::info!(?addresses, data_dir = %shared.data.path.display(), "built-in broker ready");
        let background = vec![timer, maintenance, flusher_thread];
        Ok(Broker { shared, listeners, connections, accepting, background, maintenance_end, flusher, halted: false })
    }

    /// Advertised addresses of all nodes, for `bootstrap.servers`.
    pub fn bootstrap_servers(&self) -> String {
        let address = |endpoint: &crate::serve::Endpoint| {
            // A bare IPv6 address needs brackets before its port.
            let host = &endpoint.host;
            if host.contains(':') { format!("[{host}]:{}", endpoint.port) } else { format!("{host}:{}", endpoint.port) }
        };
        self.shared.endpoints.iter().map(address).collect::<Vec<_>>().join(",")
    }

    /// Listening addresses, node 1 first.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.addresses().to_vec()
    }

    /// What the broker did so far.
    pub fn facts(&self) -> BrokerFacts {
        self.shared.counters.snapshot()
    }

    /// Finish the requests in work, close the files, and leave the mark that makes the next start fast.
    pub fn stop(mut self) -> Result<BrokerFacts, BrokerError> {
        self.halt()?;
        Ok(self.facts())
    }

    fn halt(&mut self) -> Result<(), BrokerError> {
        self.halted = true;
        self.shared.stopping.store(true, Ordering::Release);
        self.listeners.close();
        join_all(std::mem::take(&mut self.accepting));
        self.shared.coordinator.stop();
        self.connections.end();
        self.maintenance_end.end();
        self.flusher.finish();
        join_all(std::mem::take(&mut self.background));
        let data_path = &self.shared.data.path;
        self.shared.offsets.force().map_err(BrokerError::directory(data_path, "force committed offsets in"))?;
        self.shared.topics.close()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.halted {
            return;
        }
        if let Err(error) = self.halt() {
            tracing::error!(%error, "the built-in broker did not stop cleanly");
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, BrokerError> {
    let failed = |source| BrokerError::Thread { name: name.to_owned(), source };
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(failed)
}

fn join_all(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        let name = thread.thread().name().unwrap_or_default().to_owned();
        if thread.join().is_err() {
            tracing::error!(name, "thread panicked");
        }
    }
}

/// Time-based flushing and retention.
fn maintain(shared: &Shared, end: &EndSignal) {
    while !end.sleep(Duration::from_millis(shared.options.maintenance_ms)) {
        let now_ms = clock::monotonic_ms();
        for topic in shared.topics.all() {
            for partition in &topic.partitions {
                partition.force_if_old(now_ms);
                partition.retain();
            }
        }
    }
}

/// Every segment holds a file open; the usual soft limit of 1,024 is meant for programs that use select.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limits = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, maximum: limits.maximum }) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}
