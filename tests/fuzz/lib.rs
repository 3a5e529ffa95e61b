//! What the fuzz targets share: their seeds, written from code instead of kept as binary files.

use std::path::PathBuf;

/// Folder for the seeds of the target that is started.
pub const SEEDS_VARIABLE: &str = "FUZZ_SEEDS";

/// Writes the seeds of a target where the environment asks for them; runs before the fuzzer looks there.
pub fn write_seeds(seeds: &[Vec<u8>]) {
    let Some(folder) = std::env::var_os(SEEDS_VARIABLE).map(PathBuf::from) else { return };
    for (number, seed) in seeds.iter().enumerate() {
        let path = folder.join(format!("seed-{number:02}"));
        std::fs::write(&path, seed).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
    }
}

/// Takes fields off the front of a fuzzer's input; zeros when it has ended.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let taken = self.slice(N);
        let mut array = [0; N];
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    pub fn byte(&mut self) -> u8 {
        u8::from_be_bytes(self.array())
    }

    /// At most `count` bytes.
    pub fn slice(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}
