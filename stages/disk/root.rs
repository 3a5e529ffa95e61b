//! Where /proc and /sys are: the host's, a container's mount of them, or a fixture of a test.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::DiskError;

/// The two pseudo file systems every reader of this crate starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcRoot {
    pub proc: PathBuf,
    pub sys: PathBuf,
}

impl Default for ProcRoot {
    fn default() -> Self {
        Self { proc: PathBuf::from("/proc"), sys: PathBuf::from("/sys") }
    }
}

impl ProcRoot {
    /// `dir/proc` and `dir/sys`: a fixture, or the host's root mounted into a container.
    pub fn below(dir: &Path) -> Self {
        Self { proc: dir.join("proc"), sys: dir.join("sys") }
    }

    /// Whether these are the live ones: helper programs answer for the live host only.
    pub fn is_live(&self) -> bool {
        *self == Self::default()
    }

    /// A file of /proc the caller cannot do without.
    pub(crate) fn proc_text(&self, file: &str) -> Result<String, DiskError> {
        let path = self.proc.join(file);
        fs::read_to_string(&path).map_err(|source| DiskError::Read { path, source })
    }

    /// An optional file of /proc, trimmed.
    pub(crate) fn proc_optional(&self, file: &str) -> Option<String> {
        optional_text(&self.proc.join(file))
    }

    /// The folder of a block device, whole or partition. `cciss/c0d0` of /proc is `cciss!c0d0` in /sys.
    pub(crate) fn block_dir(&self, device: &str) -> PathBuf {
        self.sys.join("class/block").join(device.replace('/', "!"))
    }
}

/// An optional text file: `None` when it is absent, unreadable or empty. Reading /sys can fail in any way a driver
/// likes (EINVAL, EIO, EOPNOTSUPP); all of them mean "not offered".
pub(crate) fn optional_text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

pub(crate) fn optional_number(path: &Path) -> Option<u64> {
    optional_text(path)?.parse().ok()
}

/// A `0`/`1` attribute.
pub(crate) fn optional_flag(path: &Path) -> Option<bool> {
    match optional_text(path)?.as_str() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod fixture {
    //! A /proc and /sys made of plain files for the tests of this crate.

    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use crate::root::ProcRoot;

    pub struct Fixture {
        dir: tempfile::TempDir,
        pub root: ProcRoot,
    }

    impl Fixture {
        pub fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = ProcRoot::below(dir.path());
            fs::create_dir_all(&root.proc).unwrap();
            fs::create_dir_all(&root.sys).unwrap();
            Self { dir, root }
        }

        /// Write `text` to a path such as `proc/diskstats`.
        pub fn file(&self, path: &str, text: &str) -> &Self {
            let path = self.dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }

        pub fn remove(&self, path: &str) {
            let path = self.dir.path().join(path);
            if path.is_dir() {
                fs::remove_dir_all(path).unwrap();
            } else {
                fs::remove_file(path).unwrap();
            }
        }

        pub fn path(&self) -> &Path {
            self.dir.path()
        }

        /// A device folder as the kernel lays it out: the real folder under devices/, links from class/block and
        /// dev/block, and from block/ for a whole disk. `name` is `sda` or `sda/sda1`.
        pub fn device(&self, name: &str, number: &str) -> &Self {
            let sys = &self.root.sys;
            let real = sys.join("devices/bus/block").join(name);
            fs::create_dir_all(&real).unwrap();
            fs::write(real.join("dev"), format!("{number}\n")).unwrap();
            let last = name.rsplit('/').next().unwrap();
            let mut links = vec![format!("class/block/{last}"), format!("dev/block/{number}")];
            if name.contains('/') {
                fs::write(real.join("partition"), "1\n").unwrap();
            } else {
                links.push(format!("block/{last}"));
            }
            for link in links {
                let link = sys.join(link);
                fs::create_dir_all(link.parent().unwrap()).unwrap();
                symlink(&real, link).unwrap();
            }
            self
        }

        /// Make `lower` one of the devices that `upper` is stacked on.
        pub fn slave(&self, upper: &str, lower: &str) -> &Self {
            let slaves = self.root.sys.join("class/block").join(upper).join("slaves");
            fs::create_dir_all(&slaves).unwrap();
            let target = fs::canonicalize(self.root.sys.join("class/block").join(lower)).unwrap();
            symlink(target, slaves.join(lower)).unwrap();
            self
        }
    }
}
