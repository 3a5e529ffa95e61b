//! Pickled weights: any bytes are refused or give tensors that are as large as their shapes say and no larger than the file.

#![no_main]

use fuzz::write_seeds;
use inference::unpickle::{Data, Tensor, numpy, torch};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: write_seeds(&seeds()), |bytes: &[u8]| {
    if let Ok(tensors) = torch::read_state_dict(bytes) {
        check(tensors.values(), bytes.len());
    }
    if let Ok(layers) = numpy::read_weights(bytes) {
        check(layers.values().flatten(), bytes.len());
    }
});

fn check<'a>(tensors: impl Iterator<Item = &'a Tensor>, file_bytes: usize) {
    let mut all_bytes = 0;
    for tensor in tensors {
        let (elements, element_bytes) = match &tensor.data {
            Data::Float32(values) => (values.len(), 4),
            Data::Int64(values) => (values.len(), 8),
        };
        assert_eq!(tensor.shape.iter().product::<u64>(), elements as u64, "{:?}", tensor.shape);
        all_bytes += elements * element_bytes;
    }
    assert!(all_bytes <= file_bytes, "{all_bytes} bytes of elements from a file of {file_bytes}");
}

fn text(text: &str) -> Vec<u8> {
    [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

/// One layer with one array of 2 x 2.
fn numpy_file() -> Vec<u8> {
    let mut out = b"\x80\x03}(".to_vec();
    out.extend(text("layer"));
    out.extend(b"](cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85C\x01b\x87R(K\x01K\x02K\x02\x86cnumpy\ndtype\n");
    out.extend(text("f4"));
    out.extend(b"K\0K\x01\x87R(K\x03");
    out.extend(text("<"));
    out.extend(b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89C\x10");
    out.extend([1.0_f32, 2.0, 3.0, 4.0].iter().flat_map(|float| float.to_le_bytes()));
    out.extend(b"tbeu.");
    out
}

/// One tensor of 2 x 2 over one storage.
fn torch_file() -> Vec<u8> {
    let mut out =
        b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}q\x00.".to_vec();
    out.extend(b"\x80\x02ccollections\nOrderedDict\n)R");
    out.extend(text("fc.weight"));
    out.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
    out.extend(text("storage"));
    out.extend(b"ctorch\nFloatStorage\n");
    out.extend([text("0"), text("cpu")].concat());
    out.extend(b"K\x04NtQK\0K\x02K\x02\x86K\x02K\x01\x86\x89ccollections\nOrderedDict\n)RtRs.\x80\x02](");
    out.extend(text("0"));
    out.extend(b"e.");
    out.extend(4_i64.to_le_bytes());
    out.extend([1.0_f32, 2.0, 3.0, 4.0].iter().flat_map(|float| float.to_le_bytes()));
    out
}

fn seeds() -> Vec<Vec<u8>> {
    let (numpy, torch) = (numpy_file(), torch_file());
    assert_eq!(numpy::read_weights(&numpy).map(|layers| layers.len()), Ok(1));
    assert_eq!(torch::read_state_dict(&torch).map(|tensors| tensors.len()), Ok(1));
    vec![numpy, torch]
}
