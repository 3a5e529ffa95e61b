//! The ports of the virtual nodes, and the threads that accept and serve connections.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::connection;
use crate::error::BrokerError;
use crate::facts::add;
use crate::options::BrokerOptions;
use crate::serve::{Endpoint, Shared};
use crate::storage::partition::lock;
use crate::waiters::Waiter;

/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Time that requests in work have when the broker stops.
const GRACE: Duration = Duration::from_secs(5);
const GRACE_STEP: Duration = Duration::from_millis(10);

/// A connection that can be ended from outside.
struct Open {
    stream: TcpStream,
    waiter: Arc<Waiter>,
    thread: Option<JoinHandle<()>>,
}

/// All open connections.
#[derive(Default)]
pub(crate) struct Connections {
    open: Mutex<HashMap<u64, Open>>,
    next_id: AtomicU64,
}

impl Connections {
    fn serve(self: &Arc<Self>, shared: &Arc<Shared>, node: u16, stream: TcpStream) -> io::Result<()> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let waiter = Arc::new(Waiter::default());
        // The lock is held until the entry is complete, so that the thread cannot remove it before.
        let mut open = lock(&self.open);
        if open.len() >= shared.options.max_connections {
            add(&shared.counters.connections_refused, 1);
            return Ok(());
        }
        let (connections, thread_shared, thread_waiter) = (Arc::clone(self), Arc::clone(shared), Arc::clone(&waiter));
        let thread_stream = stream.try_clone()?;
        let thread = thread::Builder::new().name(format!("broker-{node}-conn-{id}")).spawn(move || {
            let ended = connection::serve(&thread_stream, &thread_shared, node, &thread_waiter);
            if ended.is_ordinary() {
                tracing::debug!(node, id, "connection ended: {ended}");
            } else {
                tracing::warn!(node, id, "connection ended: {ended}");
            }
            // The registry holds the socket too, so dropping this half would not tell the client.
            let _ = thread_stream.shutdown(Shutdown::Both);
            lock(&connections.open).remove(&id);
        })?;
        open.insert(id, Open { stream, waiter, thread: Some(thread) });
        add(&shared.counters.connections, 1);
        Ok(())
    }

    /// End all connections: requests in work are answered, then nothing more is read.
    pub fn end(&self) {
        let threads: Vec<JoinHandle<()>> = {
            let mut open = lock(&self.open);
            for connection in open.values() {
                // A socket that is gone already is as good as ended.
                let _ = connection.stream.shutdown(Shutdown::Read);
                connection.waiter.wake();
            }
            open.values_mut().filter_map(|connection| connection.thread.take()).collect()
        };
        self.cut_off_slow_clients();
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a connection thread panicked");
            }
        }
    }
}

impl Connections {
    /// A client that does not take its response must not hold up the end.
    fn cut_off_slow_clients(&self) {
        for _ in 0..GRACE.as_millis() / GRACE_STEP.as_millis() {
            if lock(&self.open).is_empty() {
                return;
            }
            thread::sleep(GRACE_STEP);
        }
        for (id, connection) in lock(&self.open).iter() {
            tracing::warn!(id, "cutting off a connection that did not end");
            // As above: gone already is as good as ended.
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
    }
}

/// The bound ports, node 1 first.
pub(crate) struct Listeners {
    sockets: Vec<Arc<TcpListener>>,
    addresses: Vec<SocketAddr>,
}

impl Listeners {
    pub fn bind(options: &BrokerOptions) -> Result<Listeners, BrokerError> {
        let (mut sockets, mut addresses) = (Vec::new(), Vec::new());
        for node in 1..=options.nodes {
            let mut address = options.listen;
            if address.port() != 0 {
                address.set_port(address.port() + node - 1);
            }
            let failed = |source| BrokerError::Listen { node, address, source };
            let socket = TcpListener::bind(address).map_err(failed)?;
            addresses.push(socket.local_addr().map_err(failed)?);
            sockets.push(Arc::new(socket));
        }
        Ok(Listeners { sockets, addresses })
    }

    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What clients are told.
    pub fn endpoints(&self, options: &BrokerOptions) -> Vec<Endpoint> {
        let host = |address: &SocketAddr| options.advertised_host.clone().unwrap_or_else(|| address.ip().to_string());
        let numbered = (1..).zip(&self.addresses);
        numbered.map(|(node, address)| Endpoint { node, host: host(address), port: address.port() }).collect()
    }

    /// Accept on every port, each on its own thread.
    pub fn start(&self, shared: &Arc<Shared>, all: &Arc<Connections>) -> Result<Vec<JoinHandle<()>>, BrokerError> {
        let mut threads = Vec::new();
        for (node, socket) in (1..).zip(&self.sockets) {
            let (socket, shared, all) = (Arc::clone(socket), Arc::clone(shared), Arc::clone(all));
            let name = format!("broker-{node}-accept");
            let thread = thread::Builder::new()
                .name(name.clone())
                .spawn(move || accept(&socket, &shared, &all, node))
                .map_err(|source| BrokerError::Thread { name, source })?;
            threads.push(thread);
        }
        Ok(threads)
    }

    /// Make every accept return: on Linux a listening socket that is shut down wakes who waits on it.
    pub fn close(&self) {
        for socket in &self.sockets {
            if let Err(error) = rustix::net::shutdown(socket, rustix::net::Shutdown::Both) {
                tracing::warn!(%error, "cannot shut down a listening socket");
            }
        }
    }
}

fn accept(socket: &TcpListener, shared: &Arc<Shared>, all: &Arc<Connections>, node: u16) {
    loop {
        let accepted = socket.accept();
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
        if let Err(error) = accepted.and_then(|(stream, _)| all.serve(shared, node, stream)) {
            tracing::warn!(node, %error, "cannot accept a connection");
            thread::sleep(ACCEPT_PAUSE);
        }
    }
}
