//! State dictionaries in torch's legacy container: five pickles in a row, then the raw storages.
//!
//! The pickles are a magic number, a protocol number, system facts, the state dictionary and the list of storage keys.
//! Then, for each key in that order, an element count (i64) and the elements, both little-endian. A tensor is a view
//! of a storage: offset, shape and strides.

use std::collections::{BTreeMap, HashMap};

use super::{Data, Dialect, Id, Pickle, Tensor, Value, element_count};
use crate::error::UnpickleError;

const MAGIC: i128 = 0x1950_a86a_20f9_469c_fc6c;
const PROTOCOL: i128 = 1001;
const REBUILD: &str = "torch._utils._rebuild_tensor_v2";
const FLOATS: &str = "torch.FloatStorage";
const LONGS: &str = "torch.LongStorage";

const DIALECT: Dialect = Dialect {
    globals: &[REBUILD, FLOATS, LONGS, "collections.OrderedDict"],
    build_on: &["collections.OrderedDict"],
    persistent_ids: true,
};

/// Where the elements of one storage are in the file.
#[derive(Clone, Copy)]
struct Extent {
    start: usize,
    elements: u64,
    kind: &'static str,
}

/// Read every tensor of a state dictionary, by name.
pub fn read_state_dict(bytes: &[u8]) -> Result<BTreeMap<String, Tensor>, UnpickleError> {
    let magic = Pickle::read(bytes, 0, &DIALECT)?;
    if magic.int(magic.root)? != MAGIC {
        return Err(magic.malformed("the magic number is not that of a torch file"));
    }
    let protocol = Pickle::read(bytes, magic.end, &DIALECT)?;
    if protocol.int(protocol.root)? != PROTOCOL {
        return Err(protocol.malformed("the torch protocol is not 1001"));
    }
    let system = Pickle::read(bytes, protocol.end, &DIALECT)?;
    let state = Pickle::read(bytes, system.end, &DIALECT)?;
    let keys = Pickle::read(bytes, state.end, &DIALECT)?;

    let views = state
        .dict(state.root)?
        .iter()
        .map(|(name, tensor)| Ok((state.text(*name)?.to_owned(), View::read(&state, *tensor)?)))
        .collect::<Result<Vec<_>, UnpickleError>>()?;
    let kinds: HashMap<&str, &'static str> = views.iter().map(|(_, view)| (view.key.as_str(), view.kind)).collect();
    let storages = read_storages(bytes, &keys, &kinds)?;

    let mut left = bytes.len();
    views.iter().map(|(name, view)| Ok((name.clone(), view.gather(name, bytes, &storages, &mut left)?))).collect()
}

fn read_storages<'a>(
    bytes: &[u8],
    keys: &'a Pickle,
    kinds: &HashMap<&str, &'static str>,
) -> Result<HashMap<&'a str, Extent>, UnpickleError> {
    let mut storages = HashMap::new();
    let mut at = keys.end;
    for key in keys.list(keys.root)? {
        let key = keys.text(*key)?;
        let count = bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map(i64::from_le_bytes);
        let count = count.ok_or(UnpickleError::Truncated { what: "the size of a storage", at })?;
        let start = at + size_of::<i64>();
        let kind = *kinds.get(key).ok_or_else(|| keys.malformed(format!("storage {key} belongs to no tensor")))?;
        let elements = u64::try_from(count)
            .map_err(|_| UnpickleError::Malformed { problem: "a storage size is negative".into(), at })?;
        let thing = format!("storage {key}");
        element_count(&thing, &[elements], element_bytes(kind), bytes.len() - start)?;
        storages.insert(key, Extent { start, elements, kind });
        at = start + (elements * element_bytes(kind)) as usize;
    }
    Ok(storages)
}

fn element_bytes(kind: &str) -> u64 {
    if kind == LONGS { 8 } else { 4 }
}

/// One tensor as the state dictionary describes it.
struct View {
    key: String,
    kind: &'static str,
    offset: u64,
    shape: Vec<u64>,
    strides: Vec<u64>,
}

impl View {
    fn read(state: &Pickle, tensor: Id) -> Result<Self, UnpickleError> {
        let (arguments, _) = state.call(tensor, REBUILD)?;
        let [storage, offset, shape, strides, ..] = arguments else {
            return Err(state.malformed("a tensor has too few arguments"));
        };
        let Value::Persistent(id) = state.value(*storage) else {
            return Err(state.malformed("a tensor has no storage"));
        };
        let [tag, kind, key, ..] = state.tuple(*id)? else {
            return Err(state.malformed("a storage reference has too few parts"));
        };
        let kind = match state.value(*kind) {
            Value::Global(kind @ (FLOATS | LONGS)) => *kind,
            _ => return Err(state.malformed("a storage is of no supported type")),
        };
        let view = Self {
            key: state.text(*key)?.to_owned(),
            kind,
            offset: state.size(*offset)?,
            shape: state.sizes(*shape)?,
            strides: state.sizes(*strides)?,
        };
        if state.text(*tag)? != "storage" || view.shape.len() != view.strides.len() {
            return Err(state.malformed("a tensor is described inconsistently"));
        }
        Ok(view)
    }

    /// Copy the elements out. `left` bounds the bytes of all tensors together by the length of the file, so that many
    /// views of one storage cannot multiply it.
    fn gather(
        &self,
        name: &str,
        bytes: &[u8],
        storages: &HashMap<&str, Extent>,
        left: &mut usize,
    ) -> Result<Tensor, UnpickleError> {
        let malformed = |problem: String| UnpickleError::Malformed { problem, at: 0 };
        let extent = storages.get(self.key.as_str());
        let extent = extent.ok_or_else(|| malformed(format!("tensor {name}: storage {} is missing", self.key)))?;
        let thing = format!("tensor {name}");
        let count = element_count(&thing, &self.shape, element_bytes(self.kind), *left)?;
        *left -= count * element_bytes(self.kind) as usize;
        if extent.kind != self.kind || !self.fits(extent.elements, count) {
            return Err(malformed(format!("tensor {name} reaches outside its storage")));
        }
        let positions = Positions::new(&self.shape, &self.strides, self.offset, count);
        let data = if self.kind == LONGS {
            Data::Int64(positions.map(|p| i64::from_le_bytes(element(bytes, extent.start, p))).collect())
        } else {
            Data::Float32(positions.map(|p| f32::from_le_bytes(element(bytes, extent.start, p))).collect())
        };
        Ok(Tensor { shape: self.shape.clone(), data })
    }

    /// Whether the last element of the view is inside a storage of `elements`.
    fn fits(&self, elements: u64, count: usize) -> bool {
        let last = self.shape.iter().zip(&self.strides).try_fold(u128::from(self.offset), |last, (dim, stride)| {
            last.checked_add(u128::from(dim.saturating_sub(1)).checked_mul(u128::from(*stride))?)
        });
        count == 0 || last.is_some_and(|last| last < u128::from(elements))
    }
}

fn element<const N: usize>(bytes: &[u8], start: usize, position: u64) -> [u8; N] {
    let at = start + position as usize * N;
    bytes[at..at + N].try_into().expect("the view was checked to lie inside its storage")
}

/// Storage positions of a view's elements in row-major order.
struct Positions<'a> {
    shape: &'a [u64],
    strides: &'a [u64],
    index: Vec<u64>,
    position: u64,
    left: usize,
}

impl<'a> Positions<'a> {
    fn new(shape: &'a [u64], strides: &'a [u64], offset: u64, count: usize) -> Self {
        Self { shape, strides, index: vec![0; shape.len()], position: offset, left: count }
    }
}

impl Iterator for Positions<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let current = self.position;
        for axis in (0..self.shape.len()).rev() {
            self.index[axis] += 1;
            if self.index[axis] < self.shape[axis] {
                self.position += self.strides[axis];
                break;
            }
            self.index[axis] = 0;
            self.position -= (self.shape[axis] - 1) * self.strides[axis];
        }
        Some(current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state dictionary with one float tensor `w` (a view) and one counter `n`, written as torch does.
    fn file(offset: u8, shape: [u8; 2], strides: [u8; 2], declared: i64, elements: &[f32]) -> Vec<u8> {
        let mut out = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}.".to_vec();
        out.extend_from_slice(b"\x80\x02ccollections\nOrderedDict\n)Rq\x00(");
        for (name, kind, key, count) in [("w", "Float", "11", elements.len() as u8), ("n", "Long", "22", 1)] {
            let (offset, shape, strides) = if name == "w" { (offset, shape, strides) } else { (0, [1, 1], [1, 1]) };
            out.extend_from_slice(format!("X\x01\0\0\0{name}ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\n{kind}Storage\nX\x02\0\0\0{key}X\x03\0\0\0cpu").as_bytes());
            out.extend_from_slice(&[b'K', count, b'N', b't', b'Q', b'K', offset]);
            out.extend_from_slice(&[b'K', shape[0], b'K', shape[1], 0x86, b'K', strides[0], b'K', strides[1], 0x86]);
            out.extend_from_slice(b"\x89ccollections\nOrderedDict\n)RtR");
        }
        out.extend_from_slice(b"u}X\x09\0\0\0_metadataNsb.\x80\x02](X\x02\0\0\x0011X\x02\0\0\x0022e.");
        out.extend_from_slice(&declared.to_le_bytes());
        out.extend(elements.iter().flat_map(|v| v.to_le_bytes()));
        out.extend_from_slice(&1i64.to_le_bytes());
        out.extend_from_slice(&7i64.to_le_bytes());
        out
    }

    const SIX: [f32; 6] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];

    #[test]
    fn offset_and_strides_are_honoured() {
        let tensors = read_state_dict(&file(1, [2, 2], [1, 3], 6, &SIX)).unwrap();
        assert_eq!(tensors["w"], Tensor { shape: vec![2, 2], data: Data::Float32(vec![1.0, 4.0, 2.0, 5.0]) });
        assert_eq!(tensors["n"].data, Data::Int64(vec![7]));
    }

    #[test]
    fn a_storage_count_larger_than_the_file_is_refused() {
        for declared in [1_000, i64::MAX, i64::MAX / 4 + 1] {
            let error = read_state_dict(&file(0, [2, 3], [3, 1], declared, &SIX)).unwrap_err();
            assert!(matches!(error, UnpickleError::TooLarge { .. }), "{error}");
        }
        let error = read_state_dict(&file(0, [2, 3], [3, 1], -1, &SIX)).unwrap_err();
        assert!(matches!(error, UnpickleError::Malformed { .. }), "{error}");
    }

    #[test]
    fn a_view_outside_its_storage_is_refused() {
        for (offset, strides) in [(1, [3, 1]), (0, [4, 1]), (6, [0, 0]), (0, [255, 255])] {
            let error = read_state_dict(&file(offset, [2, 3], strides, 6, &SIX)).unwrap_err();
            assert!(error.to_string().contains("outside its storage"), "{error}");
        }
    }

    #[test]
    fn a_view_that_repeats_its_storage_cannot_exceed_the_file() {
        let error = read_state_dict(&file(0, [255, 255], [0, 0], 6, &SIX)).unwrap_err();
        assert!(matches!(error, UnpickleError::TooLarge { .. }), "{error}");
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = file(0, [2, 3], [3, 1], 6, &SIX);
        for len in 0..bytes.len() {
            assert!(read_state_dict(&bytes[..len]).is_err(), "accepted the first {len} bytes");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_changed_byte_never_panics(at in 0usize..500, value in proptest::num::u8::ANY) {
            let mut bytes = file(0, [2, 3], [3, 1], 6, &SIX);
            let at = at % bytes.len();
            bytes[at] = value;
            let _ = read_state_dict(&bytes);
        }
    }
}
