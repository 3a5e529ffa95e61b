//! Find and load ONNX Runtime: one library and one environment a process.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use ort::environment::Environment;

use crate::error::{InferenceError, Result};

/// Names the library explicitly; wins over the assets folder.
pub const LIBRARY_VARIABLE: &str = "ORT_DYLIB_PATH";
const LIBRARY_PREFIX: &str = "libonnxruntime.so";

/// A loaded runtime. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Runtime {
    environment: Environment,
    library: PathBuf,
}

/// The library can be loaded once a process only, so the first caller decides which.
static LOADED: Mutex<Option<Runtime>> = Mutex::new(None);

impl Runtime {
    /// Load the library that [`find_library`] names, or return what is loaded already.
    pub fn load(assets_dir: &Path) -> Result<Self> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = &*loaded {
            return Ok(runtime.clone());
        }
        let library = find_library(assets_dir)?;
        let problem = |problem: String| InferenceError::Runtime { path: library.clone(), problem };
        let environment = ort::init_from(&library)
            .map_err(|error| problem(error.to_string()))?
            .with_name("reelbench")
            .with_telemetry(false)
            .build()
            .map_err(|error| problem(error.to_string()))?;
        let runtime = Self { environment, library };
        *loaded = Some(runtime.clone());
        Ok(runtime)
    }

    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The library file in use.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Version and build options as the library states them.
    pub fn build_info(&self) -> &'static str {
        ort::info()
    }
}

/// `ORT_DYLIB_PATH` if set (then it must exist), else the newest `libonnxruntime.so*` in the assets folder.
pub fn find_library(assets_dir: &Path) -> Result<PathBuf> {
    find(env::var_os(LIBRARY_VARIABLE).map(PathBuf::from), assets_dir)
}

fn find(named: Option<PathBuf>, assets_dir: &Path) -> Result<PathBuf> {
    if let Some(path) = named.filter(|path| !path.as_os_str().is_empty()) {
        if path.is_file() {
            return Ok(path);
        }
        let problem = format!("{LIBRARY_VARIABLE} names a file that does not exist");
        return Err(InferenceError::Runtime { path, problem });
    }
    let entries = fs::read_dir(assets_dir).into_iter().flatten().flatten();
    let candidates = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(LIBRARY_PREFIX));
    let newest = candidates.map(|entry| entry.path()).max_by_key(|path| version(path));
    newest.ok_or_else(|| InferenceError::NoRuntime { looked: assets_dir.join(format!("{LIBRARY_PREFIX}*")) })
}

/// The numbers after `.so.`, so that 1.32 is newer than 1.4.
fn version(path: &Path) -> Vec<u32> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.trim_start_matches(LIBRARY_PREFIX).split('.').filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_library_of_the_assets_folder_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["libonnxruntime.so.1.4.0", "libonnxruntime.so.1.32.0", "libonnxruntime.so.1.9.9", "other.so"] {
            fs::write(folder.path().join(name), b"").unwrap();
        }
        assert_eq!(find(None, folder.path()).unwrap(), folder.path().join("libonnxruntime.so.1.32.0"));
        let named = folder.path().join("other.so");
        assert_eq!(find(Some(named.clone()), folder.path()).unwrap(), named);
    }

    #[test]
    fn a_missing_library_names_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        for named in [None, Some(PathBuf::new()), Some(folder.path().join("absent.so"))] {
            let error = find(named, folder.path()).unwrap_err().to_string();
            assert!(error.contains("reelbench assets fetch") && error.contains("ORT_DYLIB_PATH"), "{error}");
        }
        assert!(find(None, Path::new("/nonexistent")).unwrap_err().to_string().contains("/nonexistent/libonnxruntime"));
    }
}
