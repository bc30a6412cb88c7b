//! JSON whose value needs no more memory than it may.
//!
//! A value in memory is larger than its text: `[[1],[1]]` takes a hundred times its bytes, so a bound of the
//! text is no bound of the memory. The text is weighed in one pass, without building anything, before it is read.

use crate::depth;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::Value;
use std::error::Error;
use std::{fmt, io};

/// Most bytes of memory of one value that comes from outside. A text of 4 MiB with records of small members, which
/// is the worst that tools and clients send in earnest, takes nearly as much; one that was made to take memory
/// takes four times as much.
pub const MAX_MEMORY: u64 = 128 << 20;

/// An element of an array. [`serde_json::Value`] has 72 bytes, and a growing array up to twice its elements.
const ELEMENT: u64 = 144;
/// An array that is not empty: it has room for four elements from the beginning.
const ARRAY: u64 = 304;
/// A member of an object: hash, key and value in a map that grows.
const MEMBER: u64 = 220;
/// An object that is not empty, besides its members.
const OBJECT: u64 = 160;
/// A string besides its characters.
const STRING: u64 = 32;

/// The bytes of a value's JSON text, of which none is made.
pub fn text_bytes(value: &Value) -> u64 {
    struct Count(u64);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Cannot fail: a value is JSON, and counting takes all.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// The value would need more memory than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMuchMemory {
    pub limit: u64,
}

impl fmt::Display for TooMuchMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit;
        write!(
            f,
            "as a value this JSON would take more than {limit} bytes of memory, because it has very many small values; send fewer at once"
        )
    }
}

impl Error for TooMuchMemory {}

/// What the values of one document may take together.
#[derive(Debug, Clone, Copy)]
pub struct MemoryBudget {
    limit: u64,
    left: u64,
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::new(MAX_MEMORY)
    }
}

impl MemoryBudget {
    pub fn new(limit: u64) -> Self {
        Self { limit, left: limit }
    }

    /// # Errors
    /// There is less left.
    pub fn take(&mut self, bytes: u64) -> Result<(), TooMuchMemory> {
        let limit = self.limit;
        self.left = self
            .left
            .checked_sub(bytes)
            .ok_or(TooMuchMemory { limit })?;
        Ok(())
    }

    /// For an array of so many elements, without what the elements hold.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn array(&mut self, elements: usize) -> Result<(), TooMuchMemory> {
        if elements == 0 {
            return Ok(());
        }
        self.take(ARRAY.saturating_add(ELEMENT.saturating_mul(elements as u64)))
    }

    /// For an object of so many members, without their keys and what they hold.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn object(&mut self, members: usize) -> Result<(), TooMuchMemory> {
        if members == 0 {
            return Ok(());
        }
        self.take(OBJECT.saturating_add(MEMBER.saturating_mul(members as u64)))
    }

    /// # Errors
    /// As [`Self::take`].
    pub fn string(&mut self, bytes: usize) -> Result<(), TooMuchMemory> {
        self.take(STRING.saturating_add(bytes as u64))
    }

    /// For the value of `text`. Text that is no JSON is weighed as far as it looks like some: to read it takes no
    /// more than that.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn text(&mut self, text: &[u8]) -> Result<(), TooMuchMemory> {
        self.take(text.len() as u64)?;
        let mut depth: u32 = 0;
        // Which of the open brackets are objects, the innermost last.
        let mut objects: u128 = 0;
        // The cost of the bracket before, if anything comes in it.
        let mut opened = 0;
        let mut bytes = text.iter();
        while let Some(byte) = bytes.next() {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => continue,
                b']' | b'}' => {
                    opened = 0;
                    objects >>= 1;
                    depth = depth.saturating_sub(1);
                    continue;
                }
                _ => {}
            }
            self.take(std::mem::take(&mut opened))?;
            if matches!(byte, b'[' | b'{') {
                depth += 1;
                // serde_json ends with an error here.
                if depth == u128::BITS {
                    return Ok(());
                }
            }
            match byte {
                b'[' => {
                    opened = ARRAY;
                    objects <<= 1;
                }
                b'{' => {
                    opened = OBJECT;
                    objects = objects << 1 | 1;
                }
                b':' => self.take(MEMBER)?,
                b',' if objects & 1 == 0 => self.take(ELEMENT)?,
                b'"' => {
                    self.take(STRING)?;
                    while let Some(byte) = bytes.next() {
                        match byte {
                            b'"' => break,
                            b'\\' => drop(bytes.next()),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Bytes that were taken.
    pub fn taken(&self) -> u64 {
        self.limit - self.left
    }
}

/// Bytes that the value of `text` may take, at most [`MAX_MEMORY`].
///
/// # Errors
/// They are more.
pub fn weigh(text: &[u8]) -> Result<u64, TooMuchMemory> {
    let mut budget = MemoryBudget::default();
    budget.text(text)?;
    Ok(budget.taken())
}

/// [`serde_json::from_slice`] for text from outside.
///
/// # Errors
/// The text is no `T`, its value needs more than [`MAX_MEMORY`], or it is nested deeper than [`depth::MAX_DEPTH`].
pub fn from_slice<T: DeserializeOwned>(text: &[u8]) -> Result<T, serde_json::Error> {
    from_weighed(text, weigh(text))
}

/// [`from_slice`] for text whose weight is known.
///
/// # Errors
/// As [`from_slice`].
pub fn from_weighed<T: DeserializeOwned>(
    text: &[u8],
    weight: Result<u64, TooMuchMemory>,
) -> Result<T, serde_json::Error> {
    weight.map_err(serde_json::Error::custom)?;
    depth::check(text).map_err(serde_json::Error::custom)?;
    serde_json::from_slice(text)
}

/// [`serde_json::from_str`] for text from outside.
///
/// # Errors
/// As [`from_slice`].
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    weigh(text.as_bytes()).map_err(serde_json::Error::custom)?;
    depth::check(text.as_bytes()).map_err(serde_json::Error::custom)?;
    serde_json::from_str(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn weight(text: &str) -> u64 {
        let mut budget = MemoryBudget::new(u64::MAX);
        budget.text(text.as_bytes()).unwrap();
        budget.taken()
    }

    /// At least what a value takes on the heap: its collections at their capacity.
    fn held(value: &Value) -> u64 {
        match value {
            Value::String(text) => text.capacity() as u64,
            Value::Array(items) => {
                let slots = items.capacity() * size_of::<Value>();
                slots as u64 + items.iter().map(held).sum::<u64>()
            }
            Value::Object(members) => {
                // The hash, the key and the value in a list, and a place in the table.
                let entry = size_of::<Value>() + size_of::<String>() + 2 * size_of::<usize>();
                let inner = members
                    .iter()
                    .map(|(key, value)| key.len() as u64 + held(value));
                (members.len() * entry) as u64 + inner.sum::<u64>()
            }
            _ => 0,
        }
    }

    #[test]
    fn what_was_made_to_take_memory_is_refused_before_it_is_read() {
        for (item, count) in [
            ("[1]", 1 << 20),
            (r#"{"":0}"#, 600_000),
            ("{}", 1 << 20),
            ("1", 2 << 20),
        ] {
            let text = format!("[{}]", vec![item; count].join(","));
            let error = from_str::<Value>(&text).unwrap_err().to_string();
            assert!(
                error.contains("more than 134217728 bytes of memory"),
                "{error}"
            );
            assert_eq!(
                from_slice::<Value>(text.as_bytes())
                    .unwrap_err()
                    .to_string(),
                error
            );
        }
    }

    #[test]
    fn json_nested_too_deep_is_refused() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(from_str::<Value>(&nested(depth::MAX_DEPTH)).is_ok());
        for depth in [depth::MAX_DEPTH + 1, 128, 1_000_000] {
            let error = from_str::<Value>(&nested(depth)).unwrap_err().to_string();
            assert!(error.contains("nested deeper than 100 levels"), "{error}");
        }
    }

    #[test]
    fn what_is_sent_in_earnest_is_read() {
        let record = json!({"id": 123_456, "name": "a name", "tags": ["a", "b"], "place": null});
        let records = json!(vec![record; 60_000]).to_string();
        assert!(records.len() > 3 << 20);
        assert!(from_str::<Value>(&records).is_ok());
        let numbers = json!(vec![1234.5678; 420_000]).to_string();
        assert!(numbers.len() > 4_000_000);
        assert!(from_str::<Value>(&numbers).is_ok());
        let long = json!({"text": "{[,:".repeat(16 << 18)}).to_string();
        assert!(from_str::<Value>(&long).is_ok());
    }

    proptest! {
        #[test]
        fn no_value_takes_more_than_its_weight(
            text in "[\\[\\]{}\",:0-9a-c ]{0,60}",
            lists in prop::collection::vec(prop::collection::vec("\\PC{0,3}", 0..9), 0..9),
            keys in prop::collection::vec("[a-z\"\\\\]{0,4}", 0..40),
        ) {
            let object: Value = keys.iter().map(|key| (key.clone(), json!([key]))).collect();
            for text in [text, json!([lists, object]).to_string()] {
                if let Ok(value) = serde_json::from_str::<Value>(&text) {
                    prop_assert!(held(&value) <= weight(&text), "{} > {}", held(&value), weight(&text));
                }
            }
        }
    }
}
