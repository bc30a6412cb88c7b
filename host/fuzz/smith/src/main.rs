//! `fuzz-smith FOLDER [SEED]`: writes components that validate and mean nothing, other ones each time
//! unless there is a seed.
//!
//! One in three is wasm-smith's own component: types, imports, nested instances. The others wrap a
//! core module of its making in exports that the host turns into tools, so that arbitrary code answers
//! calls with arbitrary pointers.

use arbitrary::Unstructured;
use std::error::Error;
use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use wasm_smith::{Component, Config, Module};

/// Enough for some seconds of fuzzing; they replace those of the last time.
const COMPONENTS: usize = 150;
const ENTROPY: usize = 16 << 10;

/// Tools over a core module, which another one with the same exports can replace.
const TOOLS: &str = r#"(component
  (core module $m
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable)
    (func (export "number") (param i32 i64 f64) (result i64) unreachable)
    (func (export "text") (param i32 i32) (result i32) unreachable)
    (func (export "nested") (param i32) (result i32) unreachable))
  (core instance $i (instantiate $m))
  (type $r (record (field "a" (list (tuple string char))) (field "b" (option (list bool)))))
  (export $n "r" (type $r))
  (func (export "number") (param "a" s8) (param "b" u64) (param "c" f64) (result s64)
    (canon lift (core func $i "number")))
  (func (export "text") (param "text" string) (result string)
    (canon lift (core func $i "text") (memory $i "memory") (realloc (func $i "realloc"))))
  (func (export "nested") (param "size" u32) (result (result $n (error (list u8))))
    (canon lift (core func $i "nested") (memory $i "memory") (realloc (func $i "realloc")))))"#;

fn main() -> Result<(), Box<dyn Error>> {
    let folder: PathBuf = std::env::args_os()
        .nth(1)
        .ok_or("usage: fuzz-smith FOLDER [SEED]")?
        .into();
    fs::create_dir_all(&folder)?;
    let mut random: Box<dyn Read> = match std::env::args().nth(2) {
        Some(seed) => Box::new(Sequence(seed.parse()?)),
        None => Box::new(fs::File::open("/dev/urandom")?),
    };
    let mut entropy = vec![0; ENTROPY];
    for i in 0..COMPONENTS {
        random.read_exact(&mut entropy)?;
        let mut u = Unstructured::new(&entropy);
        let component = if i % 3 == 0 {
            Component::new(config(None), &mut u)?.to_bytes()
        } else {
            tools(&mut u)?
        };
        fs::write(folder.join(format!("smith-{i}")), component)?;
    }
    Ok(())
}

/// SplitMix64: bytes without a pattern, the same ones for a seed.
struct Sequence(u64);

impl Read for Sequence {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        for byte in &mut *bytes {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            *byte = (mixed ^ (mixed >> 31)) as u8;
        }
        Ok(bytes.len())
    }
}

/// A component with three tools, of arbitrary code.
fn tools(u: &mut Unstructured) -> Result<Vec<u8>, Box<dyn Error>> {
    const HEADER: usize = 8;
    const CORE_MODULE: u8 = 1;
    let template = wat::parse_str(TOOLS)?;
    // Its first section holds the core module.
    if template.get(HEADER) != Some(&CORE_MODULE) {
        return Err("the template does not begin with its core module".into());
    }
    let (length, size) = leb128(&template[HEADER + 1..]);
    let start = HEADER + 1 + size;
    let (stub, rest) = template[start..].split_at(length);

    let module = Module::new(config(Some(stub.to_vec())), u)?.to_bytes();
    let mut component = template[..=HEADER].to_vec();
    write_leb128(module.len(), &mut component);
    component.extend(module);
    component.extend(rest);
    Ok(component)
}

/// An unsigned number in LEB128, and how many bytes it takes.
fn leb128(bytes: &[u8]) -> (usize, usize) {
    let mut value = 0;
    for (i, byte) in bytes.iter().enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return (value, i + 1);
        }
    }
    (value, bytes.len())
}

fn write_leb128(mut value: usize, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Modules within the features of this host's engine: what is outside them is refused at once.
fn config(exports: Option<Vec<u8>>) -> Config {
    Config {
        max_imports: if exports.is_some() { 0 } else { 8 },
        exports,
        custom_page_sizes_enabled: false,
        exceptions_enabled: false,
        gc_enabled: false,
        max_memory32_bytes: 4 << 20,
        max_instructions: 200,
        memory64_enabled: false,
        relaxed_simd_enabled: false,
        threads_enabled: false,
        wide_arithmetic_enabled: false,
        ..Config::default()
    }
}
