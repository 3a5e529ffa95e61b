//! The data directory: its lock, its identity, and where everything lies in it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::durable;
use crate::error::BrokerError;

/// What stays the same over the life of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    format: u32,
    /// Leaders and replicas are placed by the number of nodes, so it cannot change.
    nodes: u16,
    cluster_id: String,
}

const FORMAT: u32 = 1;

/// A locked data directory.
#[derive(Debug)]
pub(crate) struct DataDir {
    pub path: PathBuf,
    pub cluster_id: String,
    /// Holds the lock until it is dropped, also when the process is killed.
    _lock: File,
}

impl DataDir {
    /// Create the directory when absent, lock it, and check that it belongs to a broker of as many nodes.
    pub fn open(path: &Path, nodes: u16) -> Result<DataDir, BrokerError> {
        fs::create_dir_all(path).map_err(BrokerError::directory(path, "create"))?;
        let path = fs::canonicalize(path).map_err(BrokerError::directory(path, "resolve"))?;
        refuse_foreign(&path)?;
        let lock = File::create(path.join("lock")).map_err(BrokerError::directory(&path, "write to"))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(BrokerError::Locked { path }),
            result => result.map_err(|error| BrokerError::directory(&path, "lock")(error.into()))?,
        }
        let identity_path = path.join("identity.json");
        let identity = match durable::read_json::<Identity>(&identity_path)? {
            Some(identity) => identity,
            None => {
                let cluster_id = format!("reelbench-{:x}", clock::wall_ns());
                let identity = Identity { format: FORMAT, nodes, cluster_id };
                durable::replace_json(&identity_path, &identity)
                    .map_err(BrokerError::directory(&identity_path, "write"))?;
                identity
            }
        };
        if identity.format != FORMAT {
            let problem = format!("format {} is not {FORMAT}", identity.format);
            return Err(BrokerError::Damaged { path: identity_path, problem });
        }
        if identity.nodes != nodes {
            return Err(BrokerError::Nodes { found: identity.nodes, wanted: nodes });
        }
        for node in 1..=nodes {
            let dir = node_dir(&path, node);
            fs::create_dir_all(&dir).map_err(BrokerError::directory(dir, "create"))?;
        }
        Ok(DataDir { path, cluster_id: identity.cluster_id, _lock: lock })
    }
}

/// A folder with other contents is somebody else's: segments among them could not be told apart, nor removed safely.
fn refuse_foreign(path: &Path) -> Result<(), BrokerError> {
    let own = ["identity.json", "lock", "lost+found"];
    let entries = fs::read_dir(path).map_err(BrokerError::directory(path, "read"))?;
    let mut names = entries.flatten().map(|entry| entry.file_name());
    if path.join("identity.json").exists() || names.all(|name| own.iter().any(|own| name == *own)) {
        return Ok(());
    }
    let problem = "holds other files and no broker's identity: name an empty folder".to_owned();
    Err(BrokerError::Damaged { path: path.to_owned(), problem })
}

/// The replica directory of a node.
pub(crate) fn node_dir(data_dir: &Path, node: u16) -> PathBuf {
    data_dir.join(format!("broker-{node}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_brokers_cannot_share_a_directory_and_the_number_of_nodes_stays() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDir::open(dir.path(), 3).unwrap();
        assert!(matches!(DataDir::open(dir.path(), 3), Err(BrokerError::Locked { .. })));
        let cluster_id = first.cluster_id.clone();
        drop(first);
        assert_eq!(DataDir::open(dir.path(), 3).unwrap().cluster_id, cluster_id);
        assert!(matches!(DataDir::open(dir.path(), 2), Err(BrokerError::Nodes { found: 3, wanted: 2 })));
    }

    #[test]
    fn a_folder_of_other_files_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("precious"), "x").unwrap();
        let text = DataDir::open(dir.path(), 1).unwrap_err().to_string();
        assert!(text.contains("other files"), "{text}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_path_that_is_a_file_is_named_in_the_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "x").unwrap();
        let text = DataDir::open(&path, 1).unwrap_err().to_string();
        assert!(text.contains("file") && text.contains("cannot create"), "{text}");
    }
}
