//! Weight files that are a pickled dictionary: layer name to a list of numpy arrays.

use std::collections::BTreeMap;

use super::{Data, Dialect, Id, Pickle, Tensor, Value, element_count};
use crate::error::UnpickleError;

const RECONSTRUCT: &str = "numpy.core.multiarray._reconstruct";
const DTYPE: &str = "numpy.dtype";

const DIALECT: Dialect =
    Dialect { globals: &[RECONSTRUCT, "numpy.ndarray", DTYPE], build_on: &[RECONSTRUCT, DTYPE], persistent_ids: false };

/// Read the arrays of every layer, by layer name.
pub fn read_weights(bytes: &[u8]) -> Result<BTreeMap<String, Vec<Tensor>>, UnpickleError> {
    let pickle = Pickle::read(bytes, 0, &DIALECT)?;
    let mut left = bytes.len();
    let mut layers = BTreeMap::new();
    for (name, arrays) in pickle.dict(pickle.root)? {
        let name = pickle.text(*name)?.to_owned();
        let arrays = pickle.list(*arrays)?.iter();
        let arrays =
            arrays.map(|array| read_array(&pickle, bytes, &name, *array, &mut left)).collect::<Result<_, _>>()?;
        layers.insert(name, arrays);
    }
    Ok(layers)
}

/// One array: state is (version, shape, dtype, column-major, raw bytes).
fn read_array(
    pickle: &Pickle,
    bytes: &[u8],
    layer: &str,
    array: Id,
    left: &mut usize,
) -> Result<Tensor, UnpickleError> {
    let (_, state) = pickle.call(array, RECONSTRUCT)?;
    let state = state.ok_or_else(|| pickle.malformed(format!("array of {layer} has no state")))?;
    let &[_, shape, dtype, column_major, raw] = pickle.tuple(state)? else {
        return Err(pickle.malformed(format!("array of {layer} has a state of the wrong length")));
    };
    if !matches!(pickle.value(column_major), Value::Bool(false)) {
        return Err(pickle.malformed(format!("array of {layer} is not in row-major order")));
    }
    check_dtype(pickle, layer, dtype)?;
    let shape = pickle.sizes(shape)?;
    let count = element_count(&format!("array of {layer}"), &shape, 4, *left)?;
    *left -= count * 4;
    let Value::Bytes { start, len } = *pickle.value(raw) else {
        return Err(pickle.malformed(format!("array of {layer} has no raw bytes")));
    };
    if len != count * 4 {
        return Err(pickle.malformed(format!("array of {layer} has {len} bytes for {count} floats")));
    }
    let (floats, _) = bytes[start..start + len].as_chunks::<4>();
    Ok(Tensor { shape, data: Data::Float32(floats.iter().map(|float| f32::from_le_bytes(*float)).collect()) })
}

/// Only little-endian 32-bit floats are read.
fn check_dtype(pickle: &Pickle, layer: &str, dtype: Id) -> Result<(), UnpickleError> {
    let (arguments, state) = pickle.call(dtype, DTYPE)?;
    let name = arguments.first().map(|name| pickle.text(*name)).transpose()?;
    let order = state.map(|state| pickle.tuple(state)).transpose()?.and_then(|state| state.get(1).copied());
    let order = order.map(|order| pickle.text(order)).transpose()?;
    if name == Some("f4") && order == Some("<") {
        return Ok(());
    }
    Err(pickle.malformed(format!("array of {layer} does not hold little-endian 32-bit floats")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One layer `a` with one array of shape (2, 2), as numpy pickles it.
    fn file(rows: u8, dtype: &str, order: char, floats: &[f32]) -> Vec<u8> {
        let mut out =
            b"\x80\x03}(X\x01\0\0\0a](cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85C\x01b\x87R"
                .to_vec();
        out.extend_from_slice(&[b'(', b'K', 1, b'K', rows, b'K', 2, 0x86]);
        out.extend_from_slice(b"cnumpy\ndtype\nX");
        out.extend_from_slice(&(dtype.len() as u32).to_le_bytes());
        out.extend_from_slice(dtype.as_bytes());
        out.extend_from_slice(b"K\0K\x01\x87R(K\x03X\x01\0\0\0");
        out.push(order as u8);
        out.extend_from_slice(b"NNNtb");
        out.extend_from_slice(b"\x89B");
        out.extend_from_slice(&(floats.len() as u32 * 4).to_le_bytes());
        out.extend(floats.iter().flat_map(|v| v.to_le_bytes()));
        out.extend_from_slice(b"tbeu.");
        out
    }

    const FOUR: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

    #[test]
    fn an_array_keeps_its_shape_and_values() {
        let layers = read_weights(&file(2, "f4", '<', &FOUR)).unwrap();
        assert_eq!(layers["a"], [Tensor { shape: vec![2, 2], data: Data::Float32(FOUR.to_vec()) }]);
    }

    #[test]
    fn other_element_types_and_byte_orders_are_refused() {
        for (dtype, order) in [("f8", '<'), ("f4", '>'), ("O8", '|')] {
            let error = read_weights(&file(2, dtype, order, &FOUR)).unwrap_err();
            assert!(error.to_string().contains("little-endian 32-bit floats"), "{error}");
        }
    }

    #[test]
    fn column_major_arrays_are_refused() {
        let mut bytes = file(2, "f4", '<', &FOUR);
        let flag = bytes.iter().position(|byte| *byte == 0x89).unwrap();
        bytes[flag] = 0x88;
        assert!(read_weights(&bytes).unwrap_err().to_string().contains("row-major"));
    }

    #[test]
    fn a_shape_that_disagrees_with_the_bytes_is_refused() {
        assert!(matches!(read_weights(&file(1, "f4", '<', &FOUR)), Err(UnpickleError::Malformed { .. })));
        assert!(matches!(read_weights(&file(255, "f4", '<', &FOUR)), Err(UnpickleError::TooLarge { .. })));
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = file(2, "f4", '<', &FOUR);
        for len in 0..bytes.len() {
            assert!(read_weights(&bytes[..len]).is_err(), "accepted the first {len} bytes");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_changed_byte_never_panics(at in 0usize..300, value in proptest::num::u8::ANY) {
            let mut bytes = file(2, "f4", '<', &FOUR);
            let at = at % bytes.len();
            bytes[at] = value;
            let _ = read_weights(&bytes);
        }
    }
}
