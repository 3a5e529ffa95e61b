//! Small files that are replaced as a whole: written beside, forced to the device, renamed over.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::{Serialize, de::DeserializeOwned};

use crate::error::BrokerError;

/// Replace a file so that a reader after any crash sees the old or the new content, never a mixture.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("tmp");
    let mut file = File::create(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    match path.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

/// Replace a JSON file.
pub(crate) fn replace_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(value).map_err(io::Error::other)?;
    replace(path, &text)
}

/// Read a JSON file; `None` when it does not exist.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, BrokerError> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(BrokerError::directory(path, "read"))?,
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| BrokerError::Damaged { path: path.to_owned(), problem: error.to_string() })
}
