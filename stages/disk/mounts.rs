//! /proc/self/mountinfo: which mount a path is on.

use std::path::{Path, PathBuf};

use crate::error::DiskError;

/// One line of mountinfo (proc(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub id: u64,
    pub major: u32,
    pub minor: u32,
    /// The folder of the file system that is mounted here: not `/` for a bind mount or a btrfs subvolume.
    pub root: String,
    pub mount_point: PathBuf,
    pub options: String,
    pub fs_type: String,
    pub source: String,
    pub super_options: String,
}

impl Mount {
    /// The value of `key=` among the options of the file system.
    pub fn super_option(&self, key: &str) -> Option<String> {
        let options = split_options(&self.super_options);
        options.iter().find_map(|option| option.strip_prefix(key)?.strip_prefix('=').map(str::to_owned))
    }
}

/// Options are separated by commas; overlayfs escapes a comma inside a path as `\,`.
fn split_options(text: &str) -> Vec<String> {
    let mut options = vec![String::new()];
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let escaped = if character == '\\' { characters.next() } else { None };
        match (character, escaped) {
            (',', _) => options.push(String::new()),
            (_, Some(escaped)) => options.last_mut().expect("starts with one element").push(escaped),
            (other, None) => options.last_mut().expect("starts with one element").push(other),
        }
    }
    options
}

/// Parse the whole file, in its order: a later mount on the same point covers an earlier one.
pub fn parse_mountinfo(text: &str) -> Result<Vec<Mount>, DiskError> {
    let parsed = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = parsed.map(|(index, line)| {
        parse_line(line).ok_or_else(|| DiskError::Malformed {
            file: "/proc/self/mountinfo",
            line: index + 1,
            problem: "not a mount",
            text: line.to_owned(),
        })
    });
    parsed.collect()
}

fn parse_line(line: &str) -> Option<Mount> {
    // Between the mount options and the dash stands any number of optional fields.
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ');
    let id = left.next()?.parse().ok()?;
    let _parent: u64 = left.next()?.parse().ok()?;
    let (major, minor) = left.next()?.split_once(':')?;
    let (root, mount_point, options) = (left.next()?, left.next()?, left.next()?);
    // An empty source leaves two spaces in a row, so no splitting by white space here.
    let mut right = right.splitn(3, ' ');
    let (fs_type, source, super_options) = (right.next()?, right.next()?, right.next().unwrap_or(""));
    Some(Mount {
        id,
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        root: unescape(root),
        mount_point: PathBuf::from(unescape(mount_point)),
        options: options.to_owned(),
        fs_type: fs_type.to_owned(),
        source: unescape(source),
        super_options: unescape(super_options.trim_end()),
    })
}

/// Blank, tab, newline, backslash and `#` are written as three octal digits.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits =
            bytes.get(at + 1..at + 4).filter(|digits| bytes[at] == b'\\' && digits.iter().all(u8::is_ascii_digit));
        match digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 4;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// The mount that holds an absolute path without symbolic links. `mount_id` is what the kernel says (statx); it alone
/// is right when one mount hides another, and the longest mount point is the answer without it.
pub fn mount_of<'a>(mounts: &'a [Mount], path: &Path, mount_id: Option<u64>) -> Option<&'a Mount> {
    if let Some(mount) = mount_id.and_then(|id| mounts.iter().find(|mount| mount.id == id)) {
        return Some(mount);
    }
    let holding = mounts.iter().filter(|mount| path.starts_with(&mount.mount_point));
    // `max_by_key` returns the last of equals: the mount on top.
    holding.max_by_key(|mount| mount.mount_point.components().count())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::proptest;

    use super::{mount_of, parse_mountinfo, unescape};

    const TEXT: &str = "\
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
28 27 0:40 / /run rw,nosuid - tmpfs tmpfs rw,size=10k
29 27 254:0 /srv/disk\\040one /mnt/with\\040blank ro - ext4 /dev/vda rw
30 27 8:1 / /data rw - xfs /dev/sda1 rw,noquota
31 27 8:17 / /data rw - xfs /dev/sdb1 rw,noquota
32 27 0:50 / /none rw - tmpfs  rw
33 27 0:51 / /o rw - overlay overlay rw,lowerdir=/l1:/l2,upperdir=/up\\134,per/diff,workdir=/w
";

    #[test]
    fn optional_fields_escapes_and_an_empty_source_are_read() {
        let mounts = parse_mountinfo(TEXT).unwrap();
        assert_eq!(mounts.len(), 7);
        assert_eq!((mounts[0].major, mounts[0].minor, mounts[0].fs_type.as_str()), (254, 0, "ext4"));
        assert_eq!(mounts[0].super_options, "rw,discard");
        assert_eq!(mounts[2].mount_point, Path::new("/mnt/with blank"));
        assert_eq!(mounts[2].root, "/srv/disk one");
        assert_eq!((mounts[5].source.as_str(), mounts[5].super_options.as_str()), ("", "rw"));
    }

    #[test]
    fn an_option_may_hold_an_escaped_comma() {
        let mounts = parse_mountinfo(TEXT).unwrap();
        assert_eq!(mounts[6].super_option("upperdir").as_deref(), Some("/up,per/diff"));
        assert_eq!(mounts[6].super_option("lowerdir").as_deref(), Some("/l1:/l2"));
        assert_eq!(mounts[6].super_option("upper"), None);
    }

    #[test]
    fn the_longest_and_topmost_mount_holds_a_path() {
        let mounts = parse_mountinfo(TEXT).unwrap();
        let id = |path: &str| mount_of(&mounts, Path::new(path), None).unwrap().id;
        assert_eq!(id("/home/x"), 27);
        assert_eq!(id("/runner"), 27, "/run must not match by letters alone");
        assert_eq!(id("/run/x"), 28);
        assert_eq!(id("/data/kafka"), 31, "the later mount covers the earlier one");
        assert_eq!(mount_of(&mounts, Path::new("/data/kafka"), Some(30)).unwrap().id, 30);
        assert_eq!(mount_of(&mounts, Path::new("/data/kafka"), Some(999)).unwrap().id, 31);
    }

    #[test]
    fn a_line_without_a_dash_is_named() {
        let text = parse_mountinfo("27 1 254:0 / / rw ext4 /dev/vda rw\n").unwrap_err().to_string();
        assert!(text.contains("line 1"), "{text}");
    }

    #[test]
    fn only_three_octal_digits_are_an_escape() {
        assert_eq!(unescape("a\\040b\\04\\999\\"), "a b\\04\\999\\");
        assert_eq!(unescape("\\303\\244"), "ä");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[0-9a-z:/\\\\ ,=\n-]{0,200}") {
            let _ = parse_mountinfo(&text);
        }
    }
}
