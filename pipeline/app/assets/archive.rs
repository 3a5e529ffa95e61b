//! Take one member, by its exact name, out of a wheel (zip) or a source archive (tar.gz).
//!
//! The place it is written to never comes from the archive, so no name in it can reach another path.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use flate2::read::GzDecoder;

use super::manifest::Form;
use super::store::write_error;

/// Write `member` of `archive` to `target`. More than `limit_bytes` is an error: the archive is not what it claims.
pub fn extract(archive: &Path, form: Form, member: &str, limit_bytes: u64, target: &Path) -> Result<()> {
    let open = || format!("open {}", archive.display());
    let file = BufReader::new(File::open(archive).with_context(open)?);
    match form {
        Form::Wheel => {
            let mut zip = zip::ZipArchive::new(file).with_context(open)?;
            let entry = zip.by_name(member).with_context(|| format!("find {member} in {}", archive.display()))?;
            if !entry.is_file() {
                bail!("{member} in {} is not a plain file", archive.display());
            }
            copy(entry, member, limit_bytes, target)
        }
        Form::Sdist => {
            let mut tar = tar::Archive::new(GzDecoder::new(file));
            for entry in tar.entries().with_context(open)? {
                let entry = entry.with_context(open)?;
                if entry.path_bytes().as_ref() != member.as_bytes() {
                    continue;
                }
                if !entry.header().entry_type().is_file() {
                    bail!("{member} in {} is not a plain file", archive.display());
                }
                return copy(entry, member, limit_bytes, target);
            }
            bail!("find {member} in {}: there is no such member", archive.display())
        }
    }
}

fn copy(entry: impl Read, member: &str, limit_bytes: u64, target: &Path) -> Result<()> {
    let mut source = Failing { inner: entry.take(limit_bytes + 1), failed: false };
    let mut file = File::create(target).map_err(|error| write_error(error, target))?;
    let copied = match io::copy(&mut source, &mut file) {
        Ok(copied) => copied,
        Err(error) if source.failed => return Err(error).with_context(|| format!("unpack {member}")),
        Err(error) => return Err(write_error(error, target)),
    };
    if copied > limit_bytes {
        bail!("unpack {member}: it is larger than the {limit_bytes} bytes it should have");
    }
    file.sync_all().map_err(|error| write_error(error, target))
}

/// Remembers that the reading side failed, so that a damaged archive and a full disk get different messages.
struct Failing<R> {
    inner: R,
    failed: bool,
}

impl<R: Read> Read for Failing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.inner.read(buffer);
        self.failed |= result.is_err();
        result
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::PathBuf;

    use super::*;

    fn wheel(dir: &Path, members: &[(&str, &[u8])]) -> PathBuf {
        let path = dir.join("a.whl");
        let mut zip = zip::ZipWriter::new(File::create(&path).unwrap());
        for (name, content) in members {
            zip.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(content).unwrap();
        }
        zip.finish().unwrap();
        path
    }

    fn sdist(dir: &Path, members: &[(&str, tar::EntryType, &[u8])]) -> PathBuf {
        let path = dir.join("a.tar.gz");
        let gzip = flate2::write::GzEncoder::new(File::create(&path).unwrap(), flate2::Compression::fast());
        let mut tar = tar::Builder::new(gzip);
        for (name, kind, content) in members {
            let mut header = tar::Header::new_gnu();
            // Written as raw bytes: the safe setter refuses the very names this test is about.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            tar.append(&header, *content).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap();
        path
    }

    #[test]
    fn one_named_member_is_taken_and_nothing_else_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let regular = tar::EntryType::Regular;
        let wheel = wheel(dir.path(), &[("../evil", b"no"), ("p/a.bin", b"yes"), ("p/a.bin.txt", b"no")]);
        let sdist = sdist(dir.path(), &[("../evil", regular, b"no"), ("p/a.bin", regular, b"yes")]);
        for (archive, form) in [(wheel, Form::Wheel), (sdist, Form::Sdist)] {
            let target = inner.join("out");
            extract(&archive, form, "p/a.bin", 3, &target).unwrap();
            assert_eq!(fs::read(&target).unwrap(), b"yes");
            assert!(!dir.path().join("evil").exists());
            assert_eq!(fs::read_dir(&inner).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_missing_member_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let wheel = wheel(dir.path(), &[("other", b"x")]);
        let sdist = sdist(dir.path(), &[("other", tar::EntryType::Regular, b"x")]);
        for (archive, form) in [(wheel, Form::Wheel), (sdist, Form::Sdist)] {
            let error = extract(&archive, form, "p/a.bin", 3, &dir.path().join("out")).unwrap_err();
            assert!(format!("{error:#}").contains("p/a.bin"), "{error:#}");
        }
    }

    #[test]
    fn a_member_larger_than_expected_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let wheel = wheel(dir.path(), &[("bomb", &[0; 5000])]);
        let error = extract(&wheel, Form::Wheel, "bomb", 4999, &dir.path().join("out")).unwrap_err();
        assert!(error.to_string().contains("larger than the 4999 bytes"), "{error:#}");
    }

    #[test]
    fn a_link_in_the_place_of_a_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let sdist = sdist(dir.path(), &[("p/a.bin", tar::EntryType::Symlink, b"")]);
        let error = extract(&sdist, Form::Sdist, "p/a.bin", 3, &dir.path().join("out")).unwrap_err();
        assert!(error.to_string().contains("not a plain file"), "{error:#}");
    }

    #[test]
    fn a_truncated_archive_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let noise: Vec<u8> = (0..40_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let whole_wheel = wheel(dir.path(), &[("p/a.bin", &noise)]);
        let whole_sdist = sdist(dir.path(), &[("p/a.bin", tar::EntryType::Regular, &noise)]);
        for (archive, form) in [(whole_wheel, Form::Wheel), (whole_sdist, Form::Sdist)] {
            let bytes = fs::read(&archive).unwrap();
            fs::write(&archive, &bytes[..bytes.len() / 2]).unwrap();
            assert!(extract(&archive, form, "p/a.bin", 40_000, &dir.path().join("out")).is_err());
        }
    }
}
