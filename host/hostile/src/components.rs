//! Hostile components, as WAT where they are small. Each exports plain functions, so each becomes
//! tools by its types.

use crate::fault::AttackFailure;
use std::fmt::Write as _;

/// The guest whose tools perform any requested action: `guest/`, built by `toolhold build
/// host/hostile/attacker`.
pub const ATTACKER: &[u8] = include_bytes!("../attacker/attacker.wasm");

/// The guest that fetches, written for any host of wasi:http.
pub const FETCHER: &[u8] = include_bytes!("../../../tests/components/fetch/fetch.wasm");

/// The extractor that does what its document says.
pub const READER: &[u8] = include_bytes!("../../../tests/components/reader/reader.wasm");

/// The shipped module whose tool asks a service, and says of itself that it only reads.
pub const SEARCH: &[u8] = include_bytes!("../../../modules/search/search.wasm");

/// The shipped module that searches documents and remembers facts.
pub const KNOWLEDGE: &[u8] = include_bytes!("../../../modules/knowledge/knowledge.wasm");
pub const KNOWLEDGE_MODULE: &str = include_str!("../../../modules/knowledge/module.toml");

/// The guest that writes files through streams, and keeps values.
pub const PROBE: &[u8] = include_bytes!("../../../modules/sdk/probe/probe.wasm");

/// The bytes of a component given as WAT.
///
/// # Errors
/// [`AttackFailure::Wat`], which would be a mistake of ours.
pub fn parse(wat: &str) -> Result<Vec<u8>, AttackFailure> {
    Ok(wat::parse_str(wat)?)
}

/// Rows 1, 6, 20: spins, recurses, traps, and leaves something behind in a global and in memory.
pub const COMPUTE: &str = r#"(component
  (core module $m
    (memory (export "memory") 1)
    (global $calls (mut i32) (i32.const 0))
    (func (export "spin") (loop br 0))
    (func $deeper (export "recurse") call $deeper call $deeper)
    (func (export "boom") unreachable)
    (func (export "count") (result i32)
      (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
      (i32.store (i32.const 64) (i32.add (i32.load (i32.const 64)) (i32.const 1)))
      (i32.add (global.get $calls) (i32.load (i32.const 64)))))
  (core instance $i (instantiate $m))
  (func (export "spin") (canon lift (core func $i "spin")))
  (func (export "recurse") (canon lift (core func $i "recurse")))
  (func (export "boom") (canon lift (core func $i "boom")))
  (func (export "count") (result u32) (canon lift (core func $i "count"))))"#;

/// Rows 2, 3, 7: loops through host calls, sleeps for an hour, opens handles without end.
pub const CLOCKS: &str = r#"(component
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (alias outer 1 $pollable (type $outer))
    (export "pollable" (type $p (eq $outer)))
    (export "now" (func (result u64)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core func $subscribe (canon lower (func $clock "subscribe-duration")))
  (core func $now (canon lower (func $clock "now")))
  (core module $m
    (import "h" "block" (func $block (param i32)))
    (import "h" "subscribe" (func $subscribe (param i64) (result i32)))
    (import "h" "now" (func $now (result i64)))
    (func (export "sleep") (call $block (call $subscribe (i64.const 3600000000000))))
    (func (export "ask") (loop (drop (call $now)) (br 0)))
    (func (export "hoard") (loop (drop (call $subscribe (i64.const 1))) (br 0))))
  (core instance $i (instantiate $m (with "h" (instance
    (export "block" (func $block)) (export "subscribe" (func $subscribe)) (export "now" (func $now))))))
  (func (export "sleep") (canon lift (core func $i "sleep")))
  (func (export "ask") (canon lift (core func $i "ask")))
  (func (export "hoard") (canon lift (core func $i "hoard"))))"#;

/// Rows 4, 5: grows memory and tables until refused, then dies of it; fills all it got.
pub const GROWTH: &str = r#"(component
  (core module $m
    (memory (export "memory") 1)
    (table $t 1 funcref)
    (func (export "grow")
      (loop
        (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable))
        (br 0)))
    (func (export "fill")
      (block (loop
        (br_if 1 (i32.eq (memory.grow (i32.const 16)) (i32.const -1)))
        (br 0)))
      (memory.fill (i32.const 0) (i32.const 7) (i32.mul (memory.size) (i32.const 65536)))
      unreachable)
    (func (export "table")
      (loop
        (if (i32.eq (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1)) (then unreachable))
        (br 0))))
  (core instance $i (instantiate $m))
  (func (export "grow") (canon lift (core func $i "grow")))
  (func (export "fill") (canon lift (core func $i "fill")))
  (func (export "table") (canon lift (core func $i "table"))))"#;

/// Row 4: fills all it got, over and over, by single instructions that nothing interrupts; and fills
/// 2 GiB, which is more than there is.
pub const FILL: &str = r#"(component
  (core module $m
    (memory (export "memory") 1)
    (func (export "all")
      (block (loop
        (br_if 1 (i32.eq (memory.grow (i32.const 16)) (i32.const -1)))
        (br 0)))
      (loop
        (memory.fill (i32.const 0) (i32.const 7) (i32.mul (memory.size) (i32.const 65536)))
        (br 0)))
    (func (export "beyond") (memory.fill (i32.const 0) (i32.const 7) (i32.const 0x80000000))))
  (core instance $i (instantiate $m))
  (func (export "all") (canon lift (core func $i "all")))
  (func (export "beyond") (canon lift (core func $i "beyond"))))"#;

/// Rows 20, 21: takes 32 MiB and leaves a pattern everywhere in it, or looks for what another left.
pub const LEFTOVERS: &str = r#"(component
  (core module $m
    (memory (export "memory") 1)
    (table $t 1 funcref)
    (global $mark (mut i64) (i64.const 0))
    (func $self (export "leave") (result i32)
      (drop (memory.grow (i32.const 511)))
      (memory.fill (i32.const 0) (i32.const 0xa5) (i32.const 33554432))
      (drop (table.grow $t (ref.func $self) (i32.const 5000)))
      (global.set $mark (i64.const -1))
      (memory.size))
    (func (export "seek") (result i32) (local $at i32) (local $found i32)
      (drop (memory.grow (i32.const 511)))
      (drop (table.grow $t (ref.null func) (i32.const 5000)))
      (loop
        (if (i64.ne (i64.load (local.get $at)) (i64.const 0))
          (then (local.set $found (i32.add (local.get $found) (i32.const 1)))))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (br_if 0 (i32.lt_u (local.get $at) (i32.const 33554432))))
      (local.set $at (i32.const 0))
      (loop
        (if (i32.eqz (ref.is_null (table.get $t (local.get $at))))
          (then (local.set $found (i32.add (local.get $found) (i32.const 1)))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br_if 0 (i32.lt_u (local.get $at) (table.size $t))))
      (if (i64.ne (global.get $mark) (i64.const 0))
        (then (local.set $found (i32.add (local.get $found) (i32.const 1)))))
      (local.get $found))
    (elem declare func $self))
  (core instance $i (instantiate $m))
  (func (export "leave") (result u32) (canon lift (core func $i "leave")))
  (func (export "seek") (result u32) (canon lift (core func $i "seek"))))"#;

/// Row 8: returns text that is not UTF-8, text that lies outside its memory, and 1 GiB of it.
pub const BAD_TEXT: &str = r#"(component
  (core module $m
    (memory (export "memory") 1)
    (data (i32.const 64) "\ff\fe\80\c0\af")
    (func $answer (param i32 i32) (result i32)
      (i32.store (i32.const 0) (local.get 0))
      (i32.store (i32.const 4) (local.get 1))
      (i32.const 0))
    (func (export "invalid") (result i32) (call $answer (i32.const 64) (i32.const 5)))
    (func (export "outside") (result i32) (call $answer (i32.const 65000) (i32.const 5000)))
    (func (export "gigabyte") (result i32) (call $answer (i32.const 64) (i32.const 0x40000000))))
  (core instance $i (instantiate $m))
  (func (export "invalid") (result string) (canon lift (core func $i "invalid") (memory $i "memory")))
  (func (export "outside") (result string) (canon lift (core func $i "outside") (memory $i "memory")))
  (func (export "gigabyte") (result string) (canon lift (core func $i "gigabyte") (memory $i "memory"))))"#;

/// Row 35: returns texts in an encoding that is no UTF-8: one of 48 MiB, and a list that names one of 1 KiB
/// 500 000 times.
pub fn wide_text(encoding: &str) -> String {
    // The bit that says UTF-16 where both are possible.
    let units = match encoding {
        "utf16" => 24_u32 << 20,
        _ => (24 << 20) | (1 << 31),
    };
    let many = match encoding {
        "utf16" => 512_u32,
        _ => 512 | (1 << 31),
    };
    format!(
        r#"(component
  (core module $m
    (memory (export "memory") 900)
    (func (export "one") (result i32)
      (memory.fill (i32.const 1024) (i32.const 0x21) (i32.const 50331648))
      (i32.store (i32.const 0) (i32.const 1024))
      (i32.store (i32.const 4) (i32.const {units}))
      (i32.const 0))
    (func (export "many") (result i32) (local $n i32)
      (memory.fill (i32.const 1024) (i32.const 0x21) (i32.const 1024))
      (loop
        (i32.store offset=4096 (i32.mul (local.get $n) (i32.const 8)) (i32.const 1024))
        (i32.store offset=4100 (i32.mul (local.get $n) (i32.const 8)) (i32.const {many}))
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (br_if 0 (i32.lt_u (local.get $n) (i32.const 500000))))
      (i32.store (i32.const 0) (i32.const 4096))
      (i32.store (i32.const 4) (i32.const 500000))
      (i32.const 0)))
  (core instance $i (instantiate $m))
  (func (export "one") (result string)
    (canon lift (core func $i "one") (memory $i "memory") string-encoding={encoding}))
  (func (export "many") (result (list string))
    (canon lift (core func $i "many") (memory $i "memory") string-encoding={encoding})))"#
    )
}

/// Row 35: takes bytes, or records of `fields` optional fields (26 at most), sleeps for 400 ms and returns how many it
/// was given.
pub fn taking(fields: u8) -> String {
    let mut members = String::new();
    for name in (b'a'..=b'z').take(usize::from(fields)) {
        let name = char::from(name);
        let _ = write!(members, " (field \"{name}\" (option u32))");
    }
    format!(
        r#"(component
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (alias outer 1 $pollable (type $outer))
    (export "pollable" (type $p (eq $outer)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core func $subscribe (canon lower (func $clock "subscribe-duration")))
  (core module $m
    (import "h" "block" (func $block (param i32)))
    (import "h" "subscribe" (func $subscribe (param i64) (result i32)))
    (memory (export "memory") 128)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 16))
    (func (export "take") (param $at i32) (param $count i32) (result i32)
      (call $block (call $subscribe (i64.const 400000000)))
      (local.get $count)))
  (core instance $i (instantiate $m (with "h" (instance
    (export "block" (func $block)) (export "subscribe" (func $subscribe))))))
  (type $row' (record{members}))
  (export $row "row" (type $row'))
  (func (export "bytes") (param "bytes" (list u8)) (result u32)
    (canon lift (core func $i "take") (memory $i "memory") (realloc (func $i "realloc"))))
  (func (export "rows") (param "rows" (list $row)) (result u32)
    (canon lift (core func $i "take") (memory $i "memory") (realloc (func $i "realloc")))))"#
    )
}

/// Row 18: a component that returns `number`.
pub fn which(number: u32) -> String {
    format!(
        r#"(component
  (core module $m (func (export "which") (result i32) (i32.const {number})))
  (core instance $i (instantiate $m))
  (func (export "which") (result u32) (canon lift (core func $i "which"))))"#
    )
}

/// Row 17: a type that is small to write, and doubles with every one of `levels`.
pub fn type_bomb(levels: u32) -> String {
    let mut text = String::from("(component (type $t0 (tuple u8 u8))\n");
    for level in 1..=levels {
        let below = level - 1;
        let _ = writeln!(text, "(type $t{level} (tuple $t{below} $t{below}))");
    }
    let _ = write!(
        text,
        r#"(core module $m (memory (export "memory") 1)
  (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 0) (func (export "f") (param i32)))
(core instance $i (instantiate $m))
(func (export "f") (param "x" $t{levels})
  (canon lift (core func $i "f") (memory $i "memory") (realloc (func $i "realloc")))))"#
    );
    text
}

/// Row 17: `depth` components, each within the other.
pub fn nested_components(depth: u32) -> Vec<u8> {
    const HEADER: &[u8] = b"\0asm\x0d\0\x01\0";
    /// The section that holds a component.
    const COMPONENT: u8 = 4;
    let mut whole = HEADER.to_vec();
    for _ in 0..depth {
        let mut outer = HEADER.to_vec();
        outer.push(COMPONENT);
        outer.extend(leb128(whole.len()));
        outer.extend(whole);
        whole = outer;
    }
    whole
}

/// Row 17: a component that is sound, and holds `count` functions of 2.9 kB: much work for an
/// optimising compiler. It exports nothing.
pub fn compile_bomb(count: usize) -> Vec<u8> {
    let mut body = vec![0]; // no locals
    for turn in 0..170_u8 {
        // local 0 = local 0 * (local 0 + turn), in a form that folds to nothing.
        body.extend([0x20, 0, 0x20, 0, 0x41, turn & 0x3f, 0x6a, 0x6c, 0x21, 0]);
        // And a branch out of a block, so that there is a graph to allocate registers over.
        body.extend([0x02, 0x40, 0x20, 0, 0x0d, 0, 0x0b]);
    }
    body.extend([0x20, 0, 0x0b]);
    let section = |id: u8, content: Vec<u8>| [vec![id], leb128(content.len()), content].concat();
    let function = [leb128(body.len()), body].concat();
    let module = [
        b"\0asm\x01\0\0\0".to_vec(),
        // (func (param i32) (result i32)), which all are
        section(1, vec![1, 0x60, 1, 0x7f, 1, 0x7f]),
        section(3, [leb128(count), vec![0; count]].concat()),
        section(10, [leb128(count), function.repeat(count)].concat()),
    ]
    .concat();
    // A component with a core module in it.
    [b"\0asm\x0d\0\x01\0".to_vec(), section(1, module)].concat()
}

/// Row 17: it crashes.
pub const CRASHING: &str = r#"(component
    (core module $m (func (export "boom") unreachable))
    (core instance $i (instantiate $m))
    (func (export "boom") (canon lift (core func $i "boom"))))"#;

/// Sections of a core module, by name.
type Sections = Vec<(&'static str, Vec<u8>)>;

/// Row 17: debug information, valid as far as a reader sees, which says of all code that it is of one line program and of
/// one tree of functions.
pub fn debug_bombs() -> Vec<(&'static str, Sections)> {
    // 1: a unit with its line program and its code; 2: a function that is an instance of another; 3: the same, which was
    // put into the one around it.
    let abbreviations: &[u8] = &[
        1, 0x11, 1, 0x10, 0x17, 0x11, 0x01, 0x12, 0x06, 0, 0, //
        2, 0x2e, 1, 0x31, 0x13, 0x11, 0x01, 0x12, 0x06, 0, 0, //
        3, 0x1d, 1, 0x11, 0x01, 0x12, 0x06, 0, 0, //
        0,
    ];
    // From 1, because readers take 0 for code that was left out.
    let all_code = [[1, 0, 0, 0], 0x7fff_ffff_u32.to_le_bytes()].concat();
    let unit = |tree: &[u8]| {
        let header = [&[4, 0][..], &[0; 4], &[4], &[1], &[0; 4], &all_code].concat();
        sized(&[&header, tree].concat())
    };
    let line_program = |steps: usize| {
        let header = [
            &[1, 1, 1, 0xfb, 14, 13][..],
            &[0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1],
            b"\0a.c\0\0\0\0\0",
        ]
        .concat();
        let program = [
            &[0, 5, 2, 1, 0, 0, 0][..],
            // The next line, one byte further.
            &vec![0x21; steps],
            &[0, 1, 1],
        ]
        .concat();
        sized(&[&[4, 0][..], &sized(&header), &program].concat())
    };
    let sections = |tree: &[u8], steps| {
        vec![
            (".debug_abbrev", abbreviations.to_vec()),
            (".debug_info", unit(tree)),
            (".debug_line", line_program(steps)),
        ]
    };
    // Where the first function begins in its unit.
    let own = 24_u32.to_le_bytes();
    let circle = [&[2][..], &own, &all_code, &[0, 0]].concat();
    let deep = [&[3][..], &all_code].concat().repeat(4_000_000);
    let deep = [&[2][..], &own, &all_code, &deep].concat();
    vec![
        ("40 million lines", sections(&[0], 40_000_000)),
        (
            "a function that is an instance of itself",
            sections(&circle, 8),
        ),
        ("functions in functions", sections(&deep, 8)),
    ]
}

/// With its length before it.
fn sized(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [&length.to_le_bytes()[..], bytes].concat()
}

/// The component, whose first section is a core module, with these sections in that.
pub fn with_debug_information(component: &[u8], sections: &Sections) -> Option<Vec<u8>> {
    let section = |id: u8, content: &[u8]| [&[id][..], &leb128(content.len()), content].concat();
    let (header, rest) = component.split_at_checked(8)?;
    let length = rest.get(1..)?;
    let end = length.iter().position(|byte| byte & 0x80 == 0)? + 1;
    let bytes = length[..end].iter().rev();
    let bytes = bytes.fold(0, |size, byte| size << 7 | usize::from(byte & 0x7f));
    let (module, after) = length[end..].split_at_checked(bytes)?;
    let mut module = module.to_vec();
    for (name, content) in sections {
        let named = [&leb128(name.len()), name.as_bytes(), content].concat();
        module.extend(section(0, &named));
    }
    (rest.first() == Some(&1)).then(|| [header, &section(1, &module), after].concat())
}

/// Row 17: `count` components beside each other.
pub fn many_components(count: u32) -> String {
    format!("(component {})", "(component)".repeat(count as usize))
}

/// An unsigned number as Wasm writes it.
pub fn leb128(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

/// Row 4: wants 1.9 GiB before its first instruction.
pub const HUGE_MEMORY: &str = r#"(component
  (core module $m (memory 30000) (func (export "f")))
  (core instance $i (instantiate $m))
  (func (export "f") (canon lift (core func $i "f"))))"#;

/// Row 4: forty memories of 1 MiB, each below any limit.
pub fn many_memories() -> String {
    let mut text = String::from("(component (core module $m (memory 16) (func (export \"f\")))\n");
    for i in 0..40 {
        let _ = writeln!(text, "(core instance $i{i} (instantiate $m))");
    }
    text + "(func (export \"f\") (canon lift (core func $i0 \"f\"))))"
}

/// Row 5: twenty tables of 15 000 elements in as many instances.
pub fn many_tables() -> String {
    let mut text =
        String::from("(component (core module $m (table 15000 funcref) (func (export \"f\")))\n");
    for i in 0..12 {
        let _ = writeln!(text, "(core instance $i{i} (instantiate $m))");
    }
    text + "(func (export \"f\") (canon lift (core func $i0 \"f\"))))"
}

/// Row 52: a component given as WAT, with these definitions before those of its own module.
pub fn beside(parts: &str, wat: &str) -> String {
    const OWN: &str = "(core module $m";
    wat.replacen(OWN, &format!("{parts}\n  {OWN}"), 1)
}

/// Row 9: writes a terminal escape and then 64 MiB to stdout, 4 KiB at a time, and returns.
pub const FLOOD: &str = r#"(component
  (import "wasi:io/error@0.2.0" (instance $error (export "error" (type (sub resource)))))
  (alias export $error "error" (type $error-type))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (alias outer 1 $error-type (type $outer))
    (export "error" (type $e (eq $outer)))
    (export "output-stream" (type $out (sub resource)))
    (type $stream-error (variant (case "last-operation-failed" (own $e)) (case "closed")))
    (export "stream-error" (type $se (eq $stream-error)))
    (type $done (result (error $se)))
    (export "[method]output-stream.blocking-write-and-flush"
      (func (param "self" (borrow $out)) (param "contents" (list u8)) (result $done)))))
  (alias export $streams "output-stream" (type $stream))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer 1 $stream (type $outer))
    (export "output-stream" (type $o (eq $outer)))
    (export "get-stdout" (func (result (own $o))))))
  (core module $storage
    (memory (export "memory") 1)
    (data (i32.const 0) "\1b[2J\1b]0;owned\07"))
  (core instance $s (instantiate $storage))
  (core func $write (canon lower
    (func $streams "[method]output-stream.blocking-write-and-flush") (memory $s "memory")))
  (core func $get (canon lower (func $stdout "get-stdout")))
  (core module $m
    (import "h" "write" (func $write (param i32 i32 i32 i32)))
    (import "h" "get" (func $get (result i32)))
    (func (export "flood") (result i32) (local $stream i32) (local $n i32)
      (local.set $stream (call $get))
      (loop
        (call $write (local.get $stream) (i32.const 0) (i32.const 4096) (i32.const 8192))
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (br_if 0 (i32.lt_u (local.get $n) (i32.const 16384))))
      (local.get $n)))
  (core instance $i (instantiate $m (with "h" (instance
    (export "write" (func $write)) (export "get" (func $get))))))
  (func (export "flood") (result u32) (canon lift (core func $i "flood"))))"#;
