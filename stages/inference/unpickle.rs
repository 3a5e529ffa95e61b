//! Read a pickle without running it: a small interpreter that knows only the opcodes plain weight files use.
//!
//! A general unpickler calls whatever the file names, so a weight file could run any program. Here a `GLOBAL` outside a
//! short list is an error, `REDUCE` and `BUILD` only record what was asked for, every other opcode is refused, and
//! nothing read is larger than the file. The dialects on top ([`torch`], [`numpy`]) turn the recorded values into
//! tensors.

pub mod numpy;
pub mod torch;

use std::collections::HashMap;

use crate::error::UnpickleError;

/// A weight file of this project has about 10,000 values; the bound keeps a hostile one from filling memory.
const MAX_VALUES: usize = 1 << 20;

/// Handle of a value in the arena. Pickle memoises objects and fills them later, so values are shared by handle.
type Id = usize;

/// A tensor read from a weight file, contiguous in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    pub shape: Vec<u64>,
    pub data: Data,
}

/// Elements of a [`Tensor`].
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    Float32(Vec<f32>),
    Int64(Vec<i64>),
}

/// Which globals a dialect may name and what `BUILD` may touch.
struct Dialect {
    /// Allowed `module name` pairs, as the pickle spells them joined by a dot.
    globals: &'static [&'static str],
    /// The callables whose results `BUILD` may be applied to.
    build_on: &'static [&'static str],
    /// Whether storages arrive by persistent id.
    persistent_ids: bool,
}

/// A value of the pickle. Byte strings are positions in the file: nothing is copied.
#[derive(Debug, Clone)]
enum Value {
    None,
    Bool(bool),
    Int(i128),
    Text(String),
    Bytes {
        start: usize,
        len: usize,
    },
    List(Vec<Id>),
    Tuple(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Global(&'static str),
    Persistent(Id),
    /// A recorded call that was not made: the callable, its arguments, and what `BUILD` wanted to set.
    Call {
        callable: &'static str,
        arguments: Id,
        state: Option<Id>,
    },
}

/// The values of one pickle and the one it stands for.
struct Pickle {
    values: Vec<Value>,
    root: Id,
    /// First byte after `STOP`: torch writes several pickles in a row.
    end: usize,
}

impl Pickle {
    fn read(bytes: &[u8], start: usize, dialect: &Dialect) -> Result<Self, UnpickleError> {
        let mut machine = Machine {
            bytes,
            at: start,
            dialect,
            values: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
        };
        let root = machine.run()?;
        Ok(Self { values: machine.values, root, end: machine.at })
    }

    fn value(&self, id: Id) -> &Value {
        &self.values[id]
    }

    fn malformed(&self, problem: impl Into<String>) -> UnpickleError {
        UnpickleError::Malformed { problem: problem.into(), at: self.end }
    }

    fn text(&self, id: Id) -> Result<&str, UnpickleError> {
        match self.value(id) {
            Value::Text(text) => Ok(text),
            other => Err(self.malformed(format!("expected text, found {}", other.kind()))),
        }
    }

    fn int(&self, id: Id) -> Result<i128, UnpickleError> {
        match self.value(id) {
            Value::Int(value) => Ok(*value),
            other => Err(self.malformed(format!("expected a number, found {}", other.kind()))),
        }
    }

    fn size(&self, id: Id) -> Result<u64, UnpickleError> {
        u64::try_from(self.int(id)?).map_err(|_| self.malformed("a size or offset is negative or too large"))
    }

    fn tuple(&self, id: Id) -> Result<&[Id], UnpickleError> {
        match self.value(id) {
            Value::Tuple(items) => Ok(items),
            other => Err(self.malformed(format!("expected a tuple, found {}", other.kind()))),
        }
    }

    fn list(&self, id: Id) -> Result<&[Id], UnpickleError> {
        match self.value(id) {
            Value::List(items) => Ok(items),
            other => Err(self.malformed(format!("expected a list, found {}", other.kind()))),
        }
    }

    fn dict(&self, id: Id) -> Result<&[(Id, Id)], UnpickleError> {
        match self.value(id) {
            Value::Dict(items) => Ok(items),
            other => Err(self.malformed(format!("expected a dictionary, found {}", other.kind()))),
        }
    }

    /// The arguments and state of a recorded call of `wanted`.
    fn call(&self, id: Id, wanted: &str) -> Result<(&[Id], Option<Id>), UnpickleError> {
        match self.value(id) {
            Value::Call { callable, arguments, state } if *callable == wanted => Ok((self.tuple(*arguments)?, *state)),
            other => Err(self.malformed(format!("expected a call of {wanted}, found {}", other.kind()))),
        }
    }

    fn sizes(&self, id: Id) -> Result<Vec<u64>, UnpickleError> {
        self.tuple(id)?.iter().map(|id| self.size(*id)).collect()
    }
}

impl Value {
    fn kind(&self) -> &'static str {
        match self {
            Value::None => "None",
            Value::Bool(_) => "a truth value",
            Value::Int(_) => "a number",
            Value::Text(_) => "text",
            Value::Bytes { .. } => "bytes",
            Value::List(_) => "a list",
            Value::Tuple(_) => "a tuple",
            Value::Dict(_) => "a dictionary",
            Value::Global(_) => "a global",
            Value::Persistent(_) => "a persistent id",
            Value::Call { .. } => "another call",
        }
    }
}

/// The stack machine of one pickle.
struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    dialect: &'a Dialect,
    values: Vec<Value>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
}

impl Machine<'_> {
    fn run(&mut self) -> Result<Id, UnpickleError> {
        loop {
            let at = self.at;
            let opcode = self.take(1, "an opcode")?[0];
            if opcode == b'.' {
                let root = self.pop()?;
                return if self.stack.is_empty() {
                    Ok(root)
                } else {
                    Err(self.malformed("values are left over at the end"))
                };
            }
            if !self.scalar(opcode)? && !self.container(opcode)? && !self.object(opcode, at)? {
                return Err(UnpickleError::ForbiddenOpcode { opcode, at });
            }
        }
    }

    /// Opcodes that push a plain value or use the memo; `false` when `opcode` is none of them.
    fn scalar(&mut self, opcode: u8) -> Result<bool, UnpickleError> {
        match opcode {
            0x80 => match self.take(1, "the protocol")?[0] {
                2 | 3 => {}
                other => return Err(self.malformed(format!("protocol {other} is not supported"))),
            },
            b'N' => self.push(Value::None)?,
            0x88 | 0x89 => self.push(Value::Bool(opcode == 0x88))?,
            b'J' => {
                let value = i32::from_le_bytes(self.array("a number")?);
                self.push(Value::Int(value.into()))?;
            }
            b'K' => {
                let value = self.take(1, "a number")?[0];
                self.push(Value::Int(value.into()))?;
            }
            b'M' => {
                let value = u16::from_le_bytes(self.array("a number")?);
                self.push(Value::Int(value.into()))?;
            }
            0x8a => self.long()?,
            b'X' => self.unicode()?,
            b'C' => {
                let len = self.take(1, "a length")?[0];
                self.byte_string(len.into())?;
            }
            b'B' => {
                let len = u32::from_le_bytes(self.array("a length")?);
                self.byte_string(len as usize)?;
            }
            b'q' => {
                let slot = self.take(1, "a memo slot")?[0];
                self.memoise(slot.into())?;
            }
            b'r' => {
                let slot = u32::from_le_bytes(self.array("a memo slot")?);
                self.memoise(slot)?;
            }
            b'h' => {
                let slot = self.take(1, "a memo slot")?[0];
                self.recall(slot.into())?;
            }
            b'j' => {
                let slot = u32::from_le_bytes(self.array("a memo slot")?);
                self.recall(slot)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Opcodes that make or fill a list, tuple or dictionary; `false` when `opcode` is none of them.
    fn container(&mut self, opcode: u8) -> Result<bool, UnpickleError> {
        match opcode {
            b'(' => self.marks.push(self.stack.len()),
            b'}' => self.push(Value::Dict(Vec::new()))?,
            b']' => self.push(Value::List(Vec::new()))?,
            b')' => self.push(Value::Tuple(Vec::new()))?,
            0x85..=0x87 => {
                let items = self.pop_many(usize::from(opcode - 0x84))?;
                self.push(Value::Tuple(items))?;
            }
            b't' => {
                let items = self.pop_to_mark()?;
                self.push(Value::Tuple(items))?;
            }
            b'e' => {
                let items = self.pop_to_mark()?;
                let top = self.top()?;
                match &mut self.values[top] {
                    Value::List(list) => list.extend(items),
                    _ => return Err(self.malformed("items are appended to something that is no list")),
                }
            }
            b's' => {
                let pair = self.pop_many(2)?;
                self.set_items(&pair)?;
            }
            b'u' => {
                let items = self.pop_to_mark()?;
                self.set_items(&items)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Opcodes that name a global or record a call; `false` when `opcode` is none of them.
    fn object(&mut self, opcode: u8, at: usize) -> Result<bool, UnpickleError> {
        match opcode {
            b'c' => {
                let name = format!("{}.{}", self.line()?, self.line()?);
                let allowed = self.dialect.globals.iter().find(|global| **global == name);
                let global = allowed.ok_or(UnpickleError::ForbiddenGlobal { name, at })?;
                self.push(Value::Global(global))?;
            }
            b'R' => self.reduce()?,
            b'b' => self.build()?,
            b'Q' if self.dialect.persistent_ids => {
                let id = self.pop()?;
                self.push(Value::Persistent(id))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Record a call. An ordered dictionary is one of our own values, so that it can be filled.
    fn reduce(&mut self) -> Result<(), UnpickleError> {
        let arguments = self.pop()?;
        let callable = self.pop()?;
        let empty = matches!(&self.values[arguments], Value::Tuple(items) if items.is_empty());
        match self.values[callable] {
            Value::Global("collections.OrderedDict") if empty => self.push(Value::Dict(Vec::new())),
            Value::Global(callable) => self.push(Value::Call { callable, arguments, state: None }),
            _ => Err(self.malformed("something that is no allowed global is called")),
        }
    }

    fn build(&mut self) -> Result<(), UnpickleError> {
        let new_state = self.pop()?;
        let top = self.top()?;
        let allowed = self.dialect.build_on;
        match &mut self.values[top] {
            Value::Call { callable, state, .. } if allowed.contains(callable) && state.is_none() => {
                *state = Some(new_state)
            }
            // An ordered dictionary's attributes (torch keeps version numbers there) carry no weights.
            Value::Dict(_) if allowed.contains(&"collections.OrderedDict") => {}
            _ => return Err(self.malformed("state is set on something that must not have any")),
        }
        Ok(())
    }

    fn set_items(&mut self, items: &[Id]) -> Result<(), UnpickleError> {
        let top = self.top()?;
        match &mut self.values[top] {
            Value::Dict(dict) if items.len().is_multiple_of(2) => {
                dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
                Ok(())
            }
            _ => Err(self.malformed("items are set on something that is no dictionary")),
        }
    }

    fn long(&mut self) -> Result<(), UnpickleError> {
        let len = usize::from(self.take(1, "a length")?[0]);
        let digits = self.take(len, "a number")?;
        let mut wide = match digits.last() {
            Some(last) if last & 0x80 != 0 => [0xff; 16],
            _ => [0; 16],
        };
        let Some(low) = wide.get_mut(..len) else {
            return Err(self.malformed(format!("a number of {len} bytes is not supported")));
        };
        low.copy_from_slice(digits);
        self.push(Value::Int(i128::from_le_bytes(wide)))
    }

    fn unicode(&mut self) -> Result<(), UnpickleError> {
        let len = u32::from_le_bytes(self.array("a length")?);
        let text = std::str::from_utf8(self.take(len as usize, "text")?).map(str::to_owned);
        match text {
            Ok(text) => self.push(Value::Text(text)),
            Err(_) => Err(self.malformed("text is not UTF-8")),
        }
    }

    fn byte_string(&mut self, len: usize) -> Result<(), UnpickleError> {
        let start = self.at;
        self.take(len, "a byte string")?;
        self.push(Value::Bytes { start, len })
    }

    /// A newline-terminated part of a `GLOBAL`; names of this kind are short.
    fn line(&mut self) -> Result<String, UnpickleError> {
        const LONGEST: usize = 256;
        let rest = &self.bytes[self.at..];
        let Some(len) = rest.iter().take(LONGEST).position(|byte| *byte == b'\n') else {
            return Err(UnpickleError::Truncated { what: "the name of a global", at: self.at });
        };
        let line = String::from_utf8_lossy(&rest[..len]).into_owned();
        self.at += len + 1;
        Ok(line)
    }

    fn memoise(&mut self, slot: u32) -> Result<(), UnpickleError> {
        let top = self.top()?;
        self.memo.insert(slot, top);
        Ok(())
    }

    fn recall(&mut self, slot: u32) -> Result<(), UnpickleError> {
        match self.memo.get(&slot) {
            Some(id) => {
                self.stack.push(*id);
                Ok(())
            }
            None => Err(self.malformed(format!("memo slot {slot} is empty"))),
        }
    }

    fn push(&mut self, value: Value) -> Result<(), UnpickleError> {
        if self.values.len() == MAX_VALUES {
            return Err(self.malformed(format!("more than {MAX_VALUES} values")));
        }
        self.stack.push(self.values.len());
        self.values.push(value);
        Ok(())
    }

    /// Values below the newest mark belong to the enclosing container and cannot be popped.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Id, UnpickleError> {
        if self.stack.len() <= self.floor() {
            return Err(self.malformed("the stack is empty"));
        }
        Ok(self.stack.pop().expect("the length was checked above"))
    }

    fn pop_many(&mut self, count: usize) -> Result<Vec<Id>, UnpickleError> {
        let start = self.stack.len().checked_sub(count).filter(|start| *start >= self.floor());
        start.map(|start| self.stack.split_off(start)).ok_or_else(|| self.malformed("the stack is empty"))
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Id>, UnpickleError> {
        let mark = self.marks.pop().ok_or_else(|| self.malformed("no mark is set"))?;
        Ok(self.stack.split_off(mark))
    }

    fn top(&self) -> Result<Id, UnpickleError> {
        if self.stack.len() <= self.floor() {
            return Err(self.malformed("the stack is empty"));
        }
        Ok(self.stack[self.stack.len() - 1])
    }

    fn take(&mut self, len: usize, what: &'static str) -> Result<&[u8], UnpickleError> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            return Err(UnpickleError::Truncated { what, at: self.at });
        };
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], UnpickleError> {
        Ok(self.take(N, what)?.try_into().expect("take returns as many bytes as asked for"))
    }

    fn malformed(&self, problem: impl Into<String>) -> UnpickleError {
        UnpickleError::Malformed { problem: problem.into(), at: self.at }
    }
}

/// Number of elements of `shape`, refused when their bytes could not be in a file with `available` bytes.
fn element_count(name: &str, shape: &[u64], element_bytes: u64, available: usize) -> Result<usize, UnpickleError> {
    let claimed = shape.iter().try_fold(u128::from(element_bytes), |bytes, dim| bytes.checked_mul(u128::from(*dim)));
    match claimed {
        Some(claimed) if claimed <= available as u128 => Ok((claimed / u128::from(element_bytes)) as usize),
        claimed => {
            Err(UnpickleError::TooLarge { thing: name.to_owned(), claimed: claimed.unwrap_or(u128::MAX), available })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_GLOBALS: Dialect = Dialect { globals: &[], build_on: &[], persistent_ids: false };

    fn error_of(bytes: &[u8]) -> UnpickleError {
        Pickle::read(bytes, 0, &NO_GLOBALS).err().expect("the pickle must be refused")
    }

    #[test]
    fn a_pickle_that_names_os_system_is_refused_and_nothing_runs() {
        let folder = tempfile::tempdir().unwrap();
        let marker = folder.path().join("ran");
        let command = format!("touch {}", marker.display());
        let mut bytes = b"\x80\x02cos\nsystem\nX".to_vec();
        bytes.extend_from_slice(&(command.len() as u32).to_le_bytes());
        bytes.extend_from_slice(command.as_bytes());
        bytes.extend_from_slice(b"\x85R.");
        for result in [torch::read_state_dict(&bytes).err(), numpy::read_weights(&bytes).err(), Some(error_of(&bytes))]
        {
            assert_eq!(result, Some(UnpickleError::ForbiddenGlobal { name: "os.system".to_owned(), at: 2 }));
        }
        assert!(!marker.exists());
    }

    #[test]
    fn opcodes_that_import_or_instantiate_are_refused() {
        // STACK_GLOBAL, INST, OBJ, NEWOBJ, EXT1, PERSID and the text opcodes of protocol 0.
        for opcode in [0x93, b'i', b'o', 0x81, 0x82, b'P', b'I', b'S', b'a'] {
            let bytes = [0x80, 2, b'(', b'N', opcode, b'.'];
            assert_eq!(error_of(&bytes), UnpickleError::ForbiddenOpcode { opcode, at: 4 });
        }
    }

    #[test]
    fn every_prefix_of_a_pickle_is_an_error() {
        let bytes = b"\x80\x02}q\x00(X\x01\x00\x00\x00aK\x05X\x01\x00\x00\x00b\x8a\x02\x00\x80u.";
        assert!(Pickle::read(bytes, 0, &NO_GLOBALS).is_ok());
        for len in 0..bytes.len() {
            error_of(&bytes[..len]);
        }
    }

    #[test]
    fn long_numbers_keep_their_sign() {
        let pickle = Pickle::read(b"\x80\x02\x8a\x02\x00\x80.", 0, &NO_GLOBALS).unwrap();
        assert_eq!(pickle.int(pickle.root), Ok(-32768));
        let pickle =
            Pickle::read(b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 0, &NO_GLOBALS).unwrap();
        assert_eq!(pickle.int(pickle.root), Ok(0x1950_a86a_20f9_469c_fc6c));
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
            let _ = torch::read_state_dict(&bytes);
            let _ = numpy::read_weights(&bytes);
        }

        /// Random opcodes from the allowed set reach much deeper than random bytes.
        #[test]
        fn arbitrary_allowed_opcodes_never_panic(picks in proptest::collection::vec((0usize..30, 0u8..8), 0..200)) {
            const OPCODES: &[u8] = b"N\x88\x89JKM\x8aXCBqrhj(}])\x85\x86\x87tesuRbQ.\x80";
            let bytes: Vec<u8> = picks.iter().flat_map(|(op, arg)| [OPCODES[*op], *arg]).collect();
            let _ = torch::read_state_dict(&bytes);
            let _ = numpy::read_weights(&bytes);
        }
    }
}
