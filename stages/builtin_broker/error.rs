//! What can go wrong when the broker starts, stops or works on its directory.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Errors of the built-in broker. Errors of single requests are answered on the wire instead.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    #[error("built-in broker: option {option}: {problem}")]
    Option { option: &'static str, problem: String },
    #[error("data directory {} is in use by another broker (its lock is held); stop that broker or name another directory", path.display())]
    Locked { path: PathBuf },
    #[error("data directory {}: cannot {action}; the broker needs a directory it may read and write", path.display())]
    Directory { path: PathBuf, action: &'static str, source: io::Error },
    #[error(
        "listen on {address} for node {node}: the port is busy or not allowed; free it, name another, or use port 0"
    )]
    Listen { node: u16, address: SocketAddr, source: io::Error },
    #[error("{}: {problem}; the file was not written by this broker or is damaged, restore it or start with an empty directory", path.display())]
    Damaged { path: PathBuf, problem: String },
    #[error("start thread {name}")]
    Thread { name: String, source: io::Error },
    #[error(
        "data directory was written with {found} nodes, now {wanted} are asked for; start with --nodes {found} or use an empty directory"
    )]
    Nodes { found: u16, wanted: u16 },
}

impl BrokerError {
    /// A closure for `map_err` that names the path and what was attempted on it.
    pub(crate) fn directory(path: impl Into<PathBuf>, action: &'static str) -> impl FnOnce(io::Error) -> BrokerError {
        let path = path.into();
        move |source| BrokerError::Directory { path, action, source }
    }
}
