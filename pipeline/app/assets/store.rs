//! The assets folder: the state of each file by its hash, the cache beside it, and writes that appear whole or not at all.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::make;
use super::manifest::{Asset, Pin};

/// Archives, notes on what was made, and files on their way.
const CACHE: &str = ".cache";

/// How one file stands, found by reading all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Ok,
    Missing,
    /// It is there and is not what was fetched or made.
    Changed,
    /// It was made here by another recipe than the one in this version.
    Outdated,
}

impl std::fmt::Display for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(match self {
            State::Ok => "ok",
            State::Missing => "missing",
            State::Changed => "changed",
            State::Outdated => "outdated",
        })
    }
}

/// What was noted when a file was made here and passed its check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub recipe: String,
    pub bytes: u64,
    pub sha256: String,
}

/// Size and hash of a file as it lies on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    pub bytes: u64,
    pub sha256: String,
}

impl Fingerprint {
    pub fn matches(&self, pin: &Pin) -> bool {
        self.bytes == pin.bytes && self.sha256 == pin.sha256
    }
}

/// One assets folder.
pub struct Store {
    dir: PathBuf,
}

impl Store {
    pub fn new(dir: &Path) -> Self {
        Store { dir: dir.to_path_buf() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Where a downloaded archive is kept, so that a deleted file comes back without the network.
    pub fn archive_path(&self, sha256: &str) -> PathBuf {
        self.dir.join(CACHE).join("archives").join(sha256)
    }

    /// Folder of files on their way; on the same file system as the finished ones, so that a rename is atomic.
    pub fn temporary_dir(&self) -> PathBuf {
        self.dir.join(CACHE).join("tmp")
    }

    fn notes_path(&self) -> PathBuf {
        self.dir.join(CACHE).join("made.json")
    }

    /// The state of one asset, and its size if it is there.
    pub fn state(&self, asset: &Asset) -> Result<(State, Option<u64>)> {
        let Some(found) = fingerprint_if_present(&self.path(asset.name))? else {
            return Ok((State::Missing, None));
        };
        let state = match (asset.pin, self.notes().get(asset.name)) {
            (Some(pin), _) if found.matches(&pin) => State::Ok,
            (Some(_), _) | (None, None) => State::Changed,
            (None, Some(note)) if note.recipe != make::recipe(asset) => State::Outdated,
            (None, Some(note)) if note.sha256 == found.sha256 => State::Ok,
            (None, Some(_)) => State::Changed,
        };
        Ok((state, Some(found.bytes)))
    }

    /// Notes on files made here. An unreadable note file counts as empty: the files are then made again.
    fn notes(&self) -> BTreeMap<String, Note> {
        fs::read(self.notes_path()).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Remember a file made here.
    pub fn note(&self, asset: &Asset, found: &Fingerprint) -> Result<()> {
        let mut notes = self.notes();
        let note = Note { recipe: make::recipe(asset), bytes: found.bytes, sha256: found.sha256.clone() };
        notes.insert(asset.name.to_owned(), note);
        let temporary = self.temporary_dir().join("made.json");
        let text = serde_json::to_vec_pretty(&notes).context("write the notes on made files")?;
        File::create(&temporary)
            .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
            .map_err(|error| write_error(error, &temporary))?;
        self.publish(&temporary, &self.notes_path())
    }

    /// Make the folders, take the lock that keeps two fetches apart, and clear what an interrupted one left behind.
    /// The lock lasts as long as the returned file.
    pub fn open_for_writing(&self, waiting: impl FnOnce()) -> Result<File> {
        let cache = self.dir.join(CACHE);
        for dir in [self.dir.clone(), cache.clone(), cache.join("archives")] {
            fs::create_dir_all(&dir).map_err(|error| write_error(error, &dir))?;
        }
        let path = cache.join("lock");
        let lock = File::create(&path).map_err(|error| write_error(error, &path))?;
        if lock.try_lock().is_err() {
            waiting();
            lock.lock().with_context(|| format!("lock {}", path.display()))?;
        }
        let temporary = self.temporary_dir();
        if temporary.exists() {
            fs::remove_dir_all(&temporary).map_err(|error| write_error(error, &temporary))?;
        }
        fs::create_dir_all(&temporary).map_err(|error| write_error(error, &temporary))?;
        Ok(lock)
    }

    /// Move a finished file into its place in one step.
    pub fn publish(&self, from: &Path, to: &Path) -> Result<()> {
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(|error| write_error(error, parent))?;
        }
        fs::rename(from, to).map_err(|error| write_error(error, to))
    }

    /// Refuse early when the file system cannot hold what is to come.
    pub fn require_space(&self, wanted_bytes: u64) -> Result<()> {
        let stat = rustix::fs::statvfs(&self.dir)
            .with_context(|| format!("read the free space of the file system of {}", self.dir.display()))?;
        let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free_bytes < wanted_bytes {
            bail!(
                "{} has {} MiB free, the assets need {} MiB: free some space, or choose another folder with --dir",
                self.dir.display(),
                free_bytes >> 20,
                wanted_bytes.div_ceil(1 << 20)
            );
        }
        Ok(())
    }
}

/// Size and SHA-256 of a file.
pub fn fingerprint(path: &Path) -> Result<Fingerprint> {
    fingerprint_if_present(path)?.with_context(|| format!("{} is missing", path.display()))
}

fn fingerprint_if_present(path: &Path) -> Result<Option<Fingerprint>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("open {}", path.display())),
    };
    let mut hash = Sha256::new();
    let mut buffer = vec![0_u8; 256 * 1024];
    let mut bytes = 0_u64;
    loop {
        let read = file.read(&mut buffer).with_context(|| format!("read {}", path.display()))?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        hash.update(&buffer[..read]);
    }
    let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some(Fingerprint { bytes, sha256 }))
}

/// Name the place and, where the cause is known, the way out.
pub fn write_error(error: io::Error, path: &Path) -> anyhow::Error {
    let remedy = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ": the disk is full; free some space, or choose another folder with --dir"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ": not writable by this user; choose another folder with --dir"
        }
        _ => "",
    };
    anyhow::Error::new(error).context(format!("write {}{remedy}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::manifest::{Clip, Need, Origin, Package};
    use super::*;

    /// SHA-256 of the three bytes `abc`, from FIPS 180-4.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    const CARRIER: Package =
        Package { name: "carrier", version: "1", form: super::super::manifest::Form::Wheel, bytes: 0, sha256: ABC };

    const PINNED: Asset = Asset {
        name: "sub/abc.bin",
        about: "",
        licence: "",
        need: Need::Base,
        origin: Origin::Member { package: &CARRIER, member: "abc" },
        pin: Some(Pin { bytes: 3, sha256: ABC }),
    };

    const MADE: Asset = Asset {
        name: "clip.mp4",
        origin: Origin::Clip(Clip { from: "a.mp4", width_px: 2, height_px: 2, fps: 1, frames: 1 }),
        pin: None,
        ..PINNED
    };

    fn store() -> (tempfile::TempDir, Store, File) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(&dir.path().join("assets"));
        let lock = store.open_for_writing(|| panic!("nobody else holds the lock")).unwrap();
        (dir, store, lock)
    }

    fn put(store: &Store, name: &str, content: &[u8]) {
        let path = store.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn a_pinned_file_is_ok_only_with_exactly_its_bytes() {
        let (_dir, store, _lock) = store();
        assert_eq!(store.state(&PINNED).unwrap(), (State::Missing, None));
        put(&store, PINNED.name, b"abd");
        assert_eq!(store.state(&PINNED).unwrap(), (State::Changed, Some(3)));
        put(&store, PINNED.name, b"abc");
        assert_eq!(store.state(&PINNED).unwrap(), (State::Ok, Some(3)));
    }

    #[test]
    fn a_made_file_is_held_to_the_hash_noted_when_it_was_made() {
        let (_dir, store, _lock) = store();
        put(&store, MADE.name, b"frames");
        assert_eq!(store.state(&MADE).unwrap().0, State::Changed, "a file nobody noted is not trusted");
        store.note(&MADE, &fingerprint(&store.path(MADE.name)).unwrap()).unwrap();
        assert_eq!(store.state(&MADE).unwrap().0, State::Ok);
        put(&store, MADE.name, b"framed");
        assert_eq!(store.state(&MADE).unwrap().0, State::Changed);
    }

    #[test]
    fn another_recipe_makes_a_made_file_outdated() {
        let (_dir, store, _lock) = store();
        put(&store, MADE.name, b"frames");
        store.note(&MADE, &fingerprint(&store.path(MADE.name)).unwrap()).unwrap();
        let faster = Asset {
            origin: Origin::Clip(Clip { from: "a.mp4", width_px: 2, height_px: 2, fps: 2, frames: 1 }),
            ..MADE
        };
        assert_eq!(store.state(&faster).unwrap().0, State::Outdated);
    }

    #[test]
    fn unreadable_notes_count_as_none() {
        let (_dir, store, _lock) = store();
        put(&store, MADE.name, b"frames");
        fs::write(store.notes_path(), b"{ half").unwrap();
        assert_eq!(store.state(&MADE).unwrap().0, State::Changed);
    }

    #[test]
    fn what_an_interrupted_fetch_left_behind_is_cleared() {
        let (_dir, store, lock) = store();
        let left = store.temporary_dir().join("half");
        fs::write(&left, b"ha").unwrap();
        drop(lock);
        let _lock = store.open_for_writing(|| ()).unwrap();
        assert!(!left.exists());
    }

    #[test]
    fn too_little_space_is_refused_before_anything_is_fetched() {
        let (_dir, store, _lock) = store();
        store.require_space(1).unwrap();
        let message = store.require_space(1 << 60).unwrap_err().to_string();
        assert!(message.contains("MiB free") && message.contains("--dir"), "{message}");
    }
}
