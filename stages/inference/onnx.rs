//! Write ONNX models: the few protobuf messages a classifier needs, encoded by hand.
//!
//! Only writing is needed (ONNX Runtime does the reading), and only a dozen message types, so a generated protobuf
//! binding would be a large dependency for a small job. Weights are streamed, because a ResNet50 holds 102 MB of them.

use std::io::{self, Write};

use half::f16;

/// Operator set of the graphs written here: old enough for every runtime in use, new enough for `Clip` with inputs.
const OPSET: u64 = 13;
/// Intermediate representation version that goes with opset 13.
const IR_VERSION: u64 = 8;

/// How weights are stored in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// 32-bit floats, as they are used.
    Float32,
    /// 16-bit floats followed by a `Cast` to 32 bits: half the size, the arithmetic stays 32-bit.
    Float16,
}

/// Element type codes of `TensorProto.DataType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    Float32 = 1,
    Int64 = 7,
    Float16 = 10,
}

/// One dimension of a declared input or output.
#[derive(Debug, Clone)]
pub enum Dim {
    Fixed(u64),
    /// A free dimension and its name.
    Free(&'static str),
}

/// An attribute of a node.
#[derive(Debug, Clone)]
pub enum Attribute {
    Int(i64),
    Ints(Vec<i64>),
}

/// A constant tensor of the graph.
#[derive(Debug)]
struct Initializer {
    name: String,
    shape: Vec<u64>,
    element: Element,
    raw: Vec<u8>,
}

/// A graph under construction. Names are the wiring: an input is the output of an earlier node or an initializer.
#[derive(Debug)]
pub struct Graph {
    name: String,
    storage: Storage,
    nodes: Vec<u8>,
    node_count: usize,
    initializers: Vec<Initializer>,
    ports: Vec<u8>,
    metadata: Vec<u8>,
}

impl Graph {
    /// An empty graph whose float weights are kept as `storage` says.
    pub fn new(name: &str, storage: Storage) -> Self {
        Self {
            name: name.to_owned(),
            storage,
            nodes: Vec::new(),
            node_count: 0,
            initializers: Vec::new(),
            ports: Vec::new(),
            metadata: Vec::new(),
        }
    }

    /// Declare a graph input.
    pub fn input(&mut self, name: &str, element: Element, shape: &[Dim]) {
        put_message(&mut self.ports, 11, &value_info(name, element, shape));
    }

    /// Declare a graph output.
    pub fn output(&mut self, name: &str, element: Element, shape: &[Dim]) {
        put_message(&mut self.ports, 12, &value_info(name, element, shape));
    }

    /// Add a key and value that the loader can read back.
    pub fn metadata(&mut self, key: &str, value: &str) {
        let mut entry = Vec::new();
        put_text(&mut entry, 1, key);
        put_text(&mut entry, 2, value);
        put_message(&mut self.metadata, 14, &entry);
    }

    /// Add a float weight; returns the name to use as a node input.
    pub fn weight(&mut self, name: &str, shape: &[u64], values: &[f32]) -> String {
        match self.storage {
            Storage::Float32 => {
                self.constant(name, shape, values);
            }
            Storage::Float16 => {
                let raw = values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect();
                let stored = format!("{name}:f16");
                self.push(stored.clone(), shape, Element::Float16, raw);
                self.node("Cast", &[&stored], name, &[("to", Attribute::Int(Element::Float32 as i64))]);
            }
        }
        name.to_owned()
    }

    /// Add a float constant that is always stored in 32 bits (a bound of `Clip`, say).
    pub fn constant(&mut self, name: &str, shape: &[u64], values: &[f32]) {
        let raw = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.push(name.to_owned(), shape, Element::Float32, raw);
    }

    /// Add a node with one output, which is also its name; returns that output.
    pub fn node(&mut self, op: &str, inputs: &[&str], output: &str, attributes: &[(&str, Attribute)]) -> String {
        let mut node = Vec::new();
        for input in inputs {
            put_text(&mut node, 1, input);
        }
        put_text(&mut node, 2, output);
        put_text(&mut node, 3, output);
        put_text(&mut node, 4, op);
        for (name, value) in attributes {
            put_message(&mut node, 5, &attribute(name, value));
        }
        put_message(&mut self.nodes, 1, &node);
        self.node_count += 1;
        output.to_owned()
    }

    /// Write the model file.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let mut name = Vec::new();
        put_text(&mut name, 2, &self.name);
        let heads: Vec<Vec<u8>> = self.initializers.iter().map(Initializer::head).collect();
        let tensors_bytes: usize =
            self.initializers.iter().zip(&heads).map(|(t, head)| message_len(head.len() + t.raw.len())).sum();
        let graph_bytes = self.nodes.len() + name.len() + tensors_bytes + self.ports.len();

        let mut model = Vec::new();
        put_int(&mut model, 1, IR_VERSION);
        put_text(&mut model, 2, "reelbench");
        let mut opset = Vec::new();
        put_int(&mut opset, 2, OPSET);
        put_message(&mut model, 8, &opset);
        model.extend_from_slice(&self.metadata);
        put_key(&mut model, 7, 2);
        put_varint(&mut model, graph_bytes as u64);

        out.write_all(&model)?;
        out.write_all(&self.nodes)?;
        out.write_all(&name)?;
        for (tensor, head) in self.initializers.iter().zip(&heads) {
            let mut key = Vec::new();
            put_key(&mut key, 5, 2);
            put_varint(&mut key, (head.len() + tensor.raw.len()) as u64);
            out.write_all(&key)?;
            out.write_all(head)?;
            out.write_all(&tensor.raw)?;
        }
        out.write_all(&self.ports)
    }

    fn push(&mut self, name: String, shape: &[u64], element: Element, raw: Vec<u8>) {
        self.initializers.push(Initializer { name, shape: shape.to_vec(), element, raw });
    }
}

impl Initializer {
    /// Everything of the tensor message up to the raw bytes, which are written last and never copied.
    fn head(&self) -> Vec<u8> {
        let mut head = Vec::new();
        for dim in &self.shape {
            put_int(&mut head, 1, *dim);
        }
        put_int(&mut head, 2, self.element as u64);
        put_text(&mut head, 8, &self.name);
        put_key(&mut head, 9, 2);
        put_varint(&mut head, self.raw.len() as u64);
        head
    }
}

fn value_info(name: &str, element: Element, shape: &[Dim]) -> Vec<u8> {
    let mut dims = Vec::new();
    for dim in shape {
        let mut one = Vec::new();
        match dim {
            Dim::Fixed(size) => put_int(&mut one, 1, *size),
            Dim::Free(name) => put_text(&mut one, 2, name),
        }
        put_message(&mut dims, 1, &one);
    }
    let mut tensor = Vec::new();
    put_int(&mut tensor, 1, element as u64);
    put_message(&mut tensor, 2, &dims);
    let mut kind = Vec::new();
    put_message(&mut kind, 1, &tensor);
    let mut info = Vec::new();
    put_text(&mut info, 1, name);
    put_message(&mut info, 2, &kind);
    info
}

fn attribute(name: &str, value: &Attribute) -> Vec<u8> {
    const INT: u64 = 2;
    const INTS: u64 = 7;
    let mut bytes = Vec::new();
    put_text(&mut bytes, 1, name);
    match value {
        Attribute::Int(value) => {
            put_int(&mut bytes, 3, value.cast_unsigned());
            put_int(&mut bytes, 20, INT);
        }
        Attribute::Ints(values) => {
            for value in values {
                put_int(&mut bytes, 8, value.cast_unsigned());
            }
            put_int(&mut bytes, 20, INTS);
        }
    }
    bytes
}

fn put_key(out: &mut Vec<u8>, field: u64, wire_type: u64) {
    put_varint(out, field << 3 | wire_type);
}

fn put_int(out: &mut Vec<u8>, field: u64, value: u64) {
    put_key(out, field, 0);
    put_varint(out, value);
}

fn put_text(out: &mut Vec<u8>, field: u64, text: &str) {
    put_message(out, field, text.as_bytes());
}

fn put_message(out: &mut Vec<u8>, field: u64, body: &[u8]) {
    put_key(out, field, 2);
    put_varint(out, body.len() as u64);
    out.extend_from_slice(body);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes of a field-5 message with `body` bytes: one for the key, then the length, then the body.
fn message_len(body: usize) -> usize {
    let mut length = Vec::new();
    put_varint(&mut length, body as u64);
    1 + length.len() + body
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Read (field, wire type, value or length) triples of one message level; the independent half of the check.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let mut value = 0;
            for shift in (0..64).step_by(7) {
                let byte = bytes[0];
                *bytes = &bytes[1..];
                value |= u64::from(byte & 0x7f) << shift;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            value
        }
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            if key & 7 == 0 {
                found.push((key >> 3, varint(&mut bytes).to_le_bytes().to_vec()));
            } else {
                assert_eq!(key & 7, 2, "only varints and length-delimited fields are written");
                let len = varint(&mut bytes) as usize;
                found.push((key >> 3, bytes[..len].to_vec()));
                bytes = &bytes[len..];
            }
        }
        found
    }

    fn one(fields: &[(u64, Vec<u8>)], number: u64) -> &[u8] {
        &fields.iter().find(|(n, _)| *n == number).unwrap().1
    }

    #[test]
    fn varints_match_the_protobuf_examples() {
        let mut out = Vec::new();
        put_varint(&mut out, 1);
        put_varint(&mut out, 150);
        put_varint(&mut out, u64::MAX);
        assert_eq!(out, [&[0x01, 0x96, 0x01][..], &[0xff; 9], &[0x01]].concat());
    }

    #[test]
    fn every_length_prefix_covers_exactly_its_message() {
        let mut graph = Graph::new("toy", Storage::Float16);
        graph.input("x", Element::Float32, &[Dim::Free("N"), Dim::Fixed(3)]);
        let weight = graph.weight("w", &[1, 3], &[1.0, -2.0, 0.5]);
        graph.node("Gemm", &["x", &weight], "y", &[("transB", Attribute::Int(1)), ("pads", Attribute::Ints(vec![-1]))]);
        graph.output("y", Element::Float32, &[Dim::Free("N"), Dim::Fixed(1)]);
        graph.metadata("reelbench.preset", "torch");
        let mut bytes = Vec::new();
        graph.write_to(&mut bytes).unwrap();

        let model = fields(&bytes);
        assert_eq!(one(&model, 1), 8u64.to_le_bytes());
        let body = fields(one(&model, 7));
        assert_eq!(body.iter().filter(|(n, _)| *n == 1).count(), 2, "a cast and a gemm");
        let tensor = fields(one(&body, 5));
        assert_eq!(one(&tensor, 2), 10u64.to_le_bytes(), "stored as 16-bit floats");
        assert_eq!(one(&tensor, 9), [0x00, 0x3c, 0x00, 0xc0, 0x00, 0x38], "1, -2 and 0.5 as IEEE half, little-endian");
        assert_eq!(one(&fields(one(&model, 14)), 2), b"torch");
    }

    proptest! {
        #[test]
        fn message_len_equals_what_is_written(body in 0usize..300_000) {
            let mut out = Vec::new();
            put_message(&mut out, 5, &vec![0; body]);
            prop_assert_eq!(out.len(), message_len(body));
        }
    }
}
