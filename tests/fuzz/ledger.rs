//! Ledger files: any bytes are refused or read, and what is read holds exactly the numbers whose bits are set.
//!
//! Input: one byte chooses. Even: the rest is a file. Odd: the rest describes chunks of a file, see [`Chunk::take`].

#![no_main]

use std::collections::BTreeMap;

use contract::ledger::{LedgerSets, SetKey};
use fuzz::{Input, write_seeds};
use libfuzzer_sys::fuzz_target;

const PAGE_BYTES: usize = 4096;
const CHUNK_BYTES: usize = 1024;
const HEADER_BYTES: usize = 32;
const BITS: u64 = ((CHUNK_BYTES - HEADER_BYTES) * 8) as u64;
const CHUNK_MAGIC: u32 = 0x5242_4c43;
const TOPICS: [&str; 2] = ["frames", "results"];
/// Few, because the numbers of all are listed one by one.
const MAX_CHUNKS: usize = 6;

fuzz_target!(init: write_seeds(&seeds()), |bytes: &[u8]| {
    let mut input = Input(bytes);
    if input.byte() % 2 == 0 {
        if let Some(sets) = LedgerSets::parse(input.0) {
            check_sets(&sets);
        }
        return;
    }
    let mut chunks = Vec::new();
    while !input.is_empty() && chunks.len() < MAX_CHUNKS {
        chunks.push(Chunk::take(&mut input));
    }
    check_chunks(&chunks);
});

struct Chunk {
    /// Without it the chunk was being written when its process was killed.
    whole: bool,
    mark: u8,
    reason: u8,
    topic: u16,
    lane: u32,
    first: u64,
    /// Repeated to fill the bits.
    pattern: Vec<u8>,
}

impl Chunk {
    fn take(input: &mut Input<'_>) -> Self {
        let flags = input.byte();
        let [mark, reason, topic, lane] = input.array();
        // Both ends of the range of numbers, and chunks that overlap, are within reach of a change of few bytes.
        let first = match flags & 3 {
            0 => u64::from(u16::from_le_bytes(input.array())),
            1 => u64::MAX - u64::from(u16::from_le_bytes(input.array())),
            2 => u64::from(input.byte()) * BITS,
            _ => u64::from_le_bytes(input.array()),
        };
        let pattern_bytes = usize::from(flags >> 3 & 7) + 1;
        let mut pattern = input.slice(pattern_bytes).to_vec();
        pattern.resize(pattern_bytes, 0);
        Chunk { whole: flags & 4 == 0, mark, reason, topic: topic.into(), lane: lane.into(), first, pattern }
    }

    fn bytes(&self) -> Vec<u8> {
        let magic = if self.whole { CHUNK_MAGIC } else { 0 };
        let mut bytes = vec![self.mark, self.reason];
        bytes.extend(self.topic.to_le_bytes());
        bytes.extend(self.lane.to_le_bytes());
        bytes.extend(self.first.to_le_bytes());
        bytes.extend(magic.to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend(self.pattern.iter().cycle().take(CHUNK_BYTES - HEADER_BYTES));
        bytes
    }

    /// The numbers whose bits are set.
    fn numbers(&self) -> impl Iterator<Item = u64> {
        let set = |bit: &u64| {
            let byte = self.pattern[(bit / 8) as usize % self.pattern.len()];
            byte & 1 << (bit % 8) != 0
        };
        (0..BITS).filter(set).map(|bit| self.first + bit)
    }
}

fn file_of(chunks: &[Chunk]) -> Vec<u8> {
    let names = serde_json::to_vec(&TOPICS).expect("names are texts");
    let mut file = b"RBLEDG01".to_vec();
    file.extend((names.len() as u64).to_le_bytes());
    file.extend(names);
    file.resize(PAGE_BYTES, 0);
    chunks.iter().for_each(|chunk| file.extend(chunk.bytes()));
    file
}

fn check_chunks(chunks: &[Chunk]) {
    let sets = LedgerSets::parse(&file_of(chunks));
    let read: Vec<&Chunk> = chunks.iter().filter(|chunk| chunk.whole).collect();
    let sound = |chunk: &&Chunk| {
        let known = (1..=7).contains(&chunk.mark) && usize::from(chunk.topic) < TOPICS.len();
        known && chunk.first.checked_add(BITS).is_some()
    };
    let Some(sets) = sets else {
        assert!(!read.iter().all(sound), "a sound file is refused");
        return;
    };
    assert!(read.iter().all(sound), "an unsound file is read");
    check_sets(&sets);
    let mut expected: BTreeMap<(u8, u8, &str, u32), Vec<u64>> = BTreeMap::new();
    for chunk in read {
        let key = (chunk.mark, chunk.reason, TOPICS[usize::from(chunk.topic)], chunk.lane);
        expected.entry(key).or_default().extend(chunk.numbers());
    }
    assert_eq!(sets.0.len(), expected.len());
    for (key, mut numbers) in expected {
        numbers.sort_unstable();
        numbers.dedup();
        let of_key = |found: &SetKey| (found.mark as u8, found.reason, found.topic.as_str(), found.lane) == key;
        let (_, set) = sets.0.iter().find(|(found, _)| of_key(found)).expect("every key is there");
        assert_eq!(set.len(), numbers.len() as u64);
        assert!(numbers.iter().all(|number| set.contains(*number)));
    }
}

/// What holds for every set that was read.
fn check_sets(sets: &LedgerSets) {
    let mut merged = sets.clone();
    merged.merge(sets);
    assert_eq!(&merged, sets, "merging a ledger into itself changes nothing");
    for (key, set) in &sets.0 {
        assert!(set.ranges().iter().all(|(start, end)| start < end));
        assert!(set.ranges().is_sorted_by(|left, right| left.1 < right.0), "ranges are sorted, apart and maximal");
        assert!(sets.lanes(key.mark, &key.topic).contains(&key.lane));
        let all = sets.get(key.mark, &key.topic, key.lane);
        assert!(set.difference(&all).is_empty());
        assert!(sets.count_reason(key.mark, key.reason, &key.topic) >= set.len());
        assert!(sets.count(key.mark, &key.topic) >= all.len());
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let chunk = |mark, first, pattern: &[u8]| Chunk {
        whole: true,
        mark,
        reason: 0,
        topic: 0,
        lane: 3,
        first,
        pattern: pattern.to_vec(),
    };
    let file = file_of(&[chunk(1, 0, &[0xff]), chunk(5, BITS, &[0x0f, 0, 0xff])]);
    assert!(LedgerSets::parse(&file).is_some(), "the layout is another one");
    vec![
        [&[0], &file[..]].concat(),
        // Two neighbouring chunks of one set, one chunk of another.
        vec![1, 2, 1, 0, 0, 3, 0, 0xff, 2, 1, 0, 0, 3, 1, 0x7f, 0x0a, 4, 2, 1, 9, 1, 0x55, 0xaa],
        // Near the largest number; torn.
        vec![1, 1, 6, 0, 0, 0, 0, 0xff, 0xff, 4, 6, 0, 0, 0, 0, 0, 1],
    ]
}
