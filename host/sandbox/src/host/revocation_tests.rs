//! Every function by which a guest reaches a granted directory, called after what the call may use was taken back.

use crate::Storage;
use crate::call::{
    CallContext, Clock, CurrentCall, GrantedKnowledge, GuestLogSink, OtherTools, fresh_store,
};
use crate::descriptors::DescriptorShare;
use crate::egress::SystemResolver;
use crate::engine::{Engine, EngineConfig};
use crate::grant::{OpenDirectories, PreparedGrant};
use crate::revocation::{Revocation, Revoked};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use toolhold_policy::limits::Limits;
use toolhold_policy::{Access, Caller, DirectoryGrant, Grant};
use wasmtime::component::Component;

/// The functions: of which handle, name, the kinds of their further parameters, and their result.
const FUNCTIONS: &[(&str, &str, &[&str], &str)] = &[
    (
        "dir",
        "[method]descriptor.advise",
        &["u64", "u64", "advice"],
        "",
    ),
    (
        "dir",
        "[method]descriptor.create-directory-at",
        &["path"],
        "",
    ),
    (
        "dir",
        "[method]descriptor.get-flags",
        &[],
        "$descriptor-flags",
    ),
    (
        "dir",
        "[method]descriptor.get-type",
        &[],
        "$descriptor-type",
    ),
    (
        "dir",
        "[method]descriptor.link-at",
        &["path-flags", "path", "dir", "path"],
        "",
    ),
    ("dir", "[method]descriptor.metadata-hash", &[], "$hash"),
    (
        "dir",
        "[method]descriptor.metadata-hash-at",
        &["path-flags", "path"],
        "$hash",
    ),
    (
        "dir",
        "[method]descriptor.open-at",
        &["path-flags", "path", "open-flags", "descriptor-flags"],
        "(own $descriptor)",
    ),
    (
        "dir",
        "[method]descriptor.read-directory",
        &[],
        "(own $entries)",
    ),
    ("dir", "[method]descriptor.readlink-at", &["path"], "string"),
    (
        "dir",
        "[method]descriptor.remove-directory-at",
        &["path"],
        "",
    ),
    (
        "dir",
        "[method]descriptor.rename-at",
        &["path", "dir", "path"],
        "",
    ),
    ("dir", "[method]descriptor.set-times", &["time", "time"], ""),
    (
        "dir",
        "[method]descriptor.set-times-at",
        &["path-flags", "path", "time", "time"],
        "",
    ),
    ("dir", "[method]descriptor.stat", &[], "$stat"),
    (
        "dir",
        "[method]descriptor.stat-at",
        &["path-flags", "path"],
        "$stat",
    ),
    (
        "dir",
        "[method]descriptor.symlink-at",
        &["path", "path"],
        "",
    ),
    ("dir", "[method]descriptor.sync", &[], ""),
    ("dir", "[method]descriptor.sync-data", &[], ""),
    ("dir", "[method]descriptor.unlink-file-at", &["path"], ""),
    (
        "file",
        "[method]descriptor.append-via-stream",
        &[],
        "(own $output)",
    ),
    (
        "file",
        "[method]descriptor.read",
        &["u64", "u64"],
        "(tuple (list u8) bool)",
    ),
    (
        "file",
        "[method]descriptor.read-via-stream",
        &["u64"],
        "(own $input)",
    ),
    ("file", "[method]descriptor.set-size", &["u64"], ""),
    ("file", "[method]descriptor.write", &["bytes", "u64"], "u64"),
    (
        "file",
        "[method]descriptor.write-via-stream",
        &["u64"],
        "(own $output)",
    ),
    (
        "listed",
        "[method]directory-entry-stream.read-directory-entry",
        &[],
        "(option $entry)",
    ),
];

/// Functions with another kind of result.
const IS_SAME_OBJECT: &str = "[method]descriptor.is-same-object";
const GET_DIRECTORIES: &str = "get-directories";

/// More than any of the functions keeps.
const ANSWER_BYTES: u64 = 1 << 20;

/// A parameter's component type, and the core values that are passed for it.
fn parameter(kind: &str) -> (&'static str, &'static [&'static str]) {
    match kind {
        "u64" => ("u64", &["i64.const 0"]),
        "path" => ("string", &["i32.const 16", "i32.const 1"]),
        "bytes" => ("(list u8)", &["i32.const 16", "i32.const 1"]),
        "time" => ("$time", &["i32.const 1", "i64.const 0", "i32.const 0"]),
        "advice" => ("$advice", &["i32.const 0"]),
        "path-flags" => ("$path-flags", &["i32.const 0"]),
        "open-flags" => ("$open-flags", &["i32.const 1"]),
        "descriptor-flags" => ("$descriptor-flags", &["i32.const 3"]),
        "dir" => ("(borrow $descriptor)", &["global.get $dir"]),
        "file" => ("(borrow $descriptor)", &["global.get $file"]),
        "listed" => ("(borrow $entries)", &["global.get $listed"]),
        other => panic!("no kind {other}"),
    }
}

/// A component whose `begin` opens a directory, a file in it and a listing, and whose other exports call one function
/// each: the export `fN` the function number N.
fn component() -> String {
    let (mut types, mut lowered, mut imports, mut given, mut calls, mut lifted) = (
        String::new(),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
    );
    for (number, (of, name, parameters, result)) in FUNCTIONS.iter().enumerate() {
        let all = [&[*of], *parameters].concat();
        let (mut declared, mut core, mut values) = (String::new(), String::new(), String::new());
        for (place, kind) in all.iter().enumerate() {
            let (ty, passed) = parameter(kind);
            let called = if place == 0 {
                "self".into()
            } else {
                format!("p{place}")
            };
            write!(declared, "(param \"{called}\" {ty}) ").unwrap();
            for value in passed {
                let is_long = value.starts_with("i64");
                core += if is_long { "i64 " } else { "i32 " };
                write!(values, "({value}) ").unwrap();
            }
        }
        writeln!(
            types,
            "(export \"{name}\" (func {declared} (result (result {result} (error $code)))))"
        )
        .unwrap();
        writeln!(
            lowered,
            "(core func $f{number} (canon lower (func $types \"{name}\") (memory $memory \"memory\")
               (realloc (func $memory \"realloc\"))))"
        )
        .unwrap();
        writeln!(
            imports,
            "(import \"h\" \"f{number}\" (func $f{number} (param {core} i32)))"
        )
        .unwrap();
        writeln!(given, "(export \"f{number}\" (func $f{number}))").unwrap();
        writeln!(
            calls,
            "(func (export \"f{number}\") (call $f{number} {values} (i32.const 256)))"
        )
        .unwrap();
        writeln!(
            lifted,
            "(func (export \"f{number}\") (canon lift (core func $m \"f{number}\")))"
        )
        .unwrap();
    }
    let number = |wanted: &str| {
        let place = FUNCTIONS.iter().position(|(_, name, ..)| *name == wanted);
        place.expect("it is in the table")
    };
    let (open, list) = (
        number("[method]descriptor.open-at"),
        number("[method]descriptor.read-directory"),
    );
    format!(
        r#"(component
  (import "wasi:io/streams@0.2.12" (instance $streams
    (export "input-stream" (type (sub resource)))
    (export "output-stream" (type (sub resource)))))
  (alias export $streams "input-stream" (type $input))
  (alias export $streams "output-stream" (type $output))
  (import "wasi:filesystem/types@0.2.12" (instance $types
    (alias outer 1 $input (type $input))
    (alias outer 1 $output (type $output))
    (export "descriptor" (type $descriptor (sub resource)))
    (export "directory-entry-stream" (type $entries (sub resource)))
    (type $code' (enum "access" "would-block" "already" "bad-descriptor" "busy" "deadlock" "quota" "exist"
      "file-too-large" "illegal-byte-sequence" "in-progress" "interrupted" "invalid" "io" "is-directory" "loop"
      "too-many-links" "message-size" "name-too-long" "no-device" "no-entry" "no-lock" "insufficient-memory"
      "insufficient-space" "not-directory" "not-empty" "not-recoverable" "unsupported" "no-tty" "no-such-device"
      "overflow" "not-permitted" "pipe" "read-only" "invalid-seek" "text-file-busy" "cross-device"))
    (export "error-code" (type $code (eq $code')))
    (type $descriptor-type' (enum "unknown" "block-device" "character-device" "directory" "fifo" "symbolic-link"
      "regular-file" "socket"))
    (export "descriptor-type" (type $descriptor-type (eq $descriptor-type')))
    (type $descriptor-flags' (flags "read" "write" "file-integrity-sync" "data-integrity-sync"
      "requested-write-sync" "mutate-directory"))
    (export "descriptor-flags" (type $descriptor-flags (eq $descriptor-flags')))
    (type $path-flags' (flags "symlink-follow"))
    (export "path-flags" (type $path-flags (eq $path-flags')))
    (type $open-flags' (flags "create" "directory" "exclusive" "truncate"))
    (export "open-flags" (type $open-flags (eq $open-flags')))
    (type $advice' (enum "normal" "sequential" "random" "will-need" "dont-need" "no-reuse"))
    (export "advice" (type $advice (eq $advice')))
    (type $date' (record (field "seconds" u64) (field "nanoseconds" u32)))
    (export "datetime" (type $date (eq $date')))
    (type $time' (variant (case "no-change") (case "now") (case "timestamp" $date)))
    (export "new-timestamp" (type $time (eq $time')))
    (type $stat' (record (field "type" $descriptor-type) (field "link-count" u64) (field "size" u64)
      (field "data-access-timestamp" (option $date)) (field "data-modification-timestamp" (option $date))
      (field "status-change-timestamp" (option $date))))
    (export "descriptor-stat" (type $stat (eq $stat')))
    (type $hash' (record (field "lower" u64) (field "upper" u64)))
    (export "metadata-hash-value" (type $hash (eq $hash')))
    (type $entry' (record (field "type" $descriptor-type) (field "name" string)))
    (export "directory-entry" (type $entry (eq $entry')))
    {types}
    (export "{IS_SAME_OBJECT}" (func (param "self" (borrow $descriptor)) (param "other" (borrow $descriptor))
      (result bool)))))
  (alias export $types "descriptor" (type $descriptor))
  (import "wasi:filesystem/preopens@0.2.12" (instance $preopens
    (alias outer 1 $descriptor (type $descriptor))
    (export "{GET_DIRECTORIES}" (func (result (list (tuple (own $descriptor) string)))))))
  (core module $memory
    (memory (export "memory") 1)
    (data (i32.const 16) "x")
    (global $free (mut i32) (i32.const 4096))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
      (global.set $free (i32.add (local.get $at) (local.get 3)))
      (local.get $at)))
  (core instance $memory (instantiate $memory))
  {lowered}
  (core func $same (canon lower (func $types "{IS_SAME_OBJECT}")))
  (core func $directories (canon lower (func $preopens "{GET_DIRECTORIES}") (memory $memory "memory")
    (realloc (func $memory "realloc"))))
  (core module $m
    {imports}
    (import "h" "same" (func $same (param i32 i32) (result i32)))
    (import "h" "directories" (func $directories (param i32)))
    (import "h" "memory" (memory 1))
    (global $dir (mut i32) (i32.const 0))
    (global $file (mut i32) (i32.const 0))
    (global $listed (mut i32) (i32.const 0))
    (func (export "begin")
      (call $directories (i32.const 64))
      (global.set $dir (i32.load (i32.load (i32.const 64))))
      (call $f{open} (global.get $dir) (i32.const 0) (i32.const 16) (i32.const 1) (i32.const 1) (i32.const 3)
        (i32.const 256))
      (if (i32.load8_u (i32.const 256)) (then (unreachable)))
      (global.set $file (i32.load (i32.const 260)))
      (call $f{list} (global.get $dir) (i32.const 256))
      (if (i32.load8_u (i32.const 256)) (then (unreachable)))
      (global.set $listed (i32.load (i32.const 260))))
    (func (export "same") (drop (call $same (global.get $dir) (global.get $file))))
    (func (export "directories") (call $directories (i32.const 64)))
    {calls})
  (core instance $m (instantiate $m (with "h" (instance
    {given}
    (export "same" (func $same))
    (export "directories" (func $directories))
    (export "memory" (memory $memory "memory"))))))
  (func (export "begin") (canon lift (core func $m "begin")))
  (func (export "same") (canon lift (core func $m "same")))
  (func (export "directories") (canon lift (core func $m "directories")))
  {lifted})"#
    )
}

/// What `export` ends with after `begin`, and whether what the call may use was taken back in between.
async fn ends(
    engine: &Engine,
    component: &Component,
    folder: &Path,
    export: &str,
    is_revoked: bool,
) -> Result<(), wasmtime::Error> {
    let grant = Grant {
        directories: vec![DirectoryGrant {
            host: folder.into(),
            guest: "/data".into(),
            access: Access::ReadWrite,
            quota_bytes: None,
        }],
        ..Grant::default()
    };
    let held = OpenDirectories::default();
    let granted = PreparedGrant::new(
        "m",
        grant,
        &Storage::default(),
        Arc::new(SystemResolver),
        &held,
    );
    let revocation = Arc::<Revocation>::default();
    let timeout = Duration::from_mins(1);
    let (limits, granted) = (Limits::default(), granted.unwrap());
    let context = Box::new(CallContext {
        engine,
        limits: &limits,
        granted: &granted,
        descriptors: DescriptorShare::of_module(engine.descriptors()),
        module: (0, "m"),
        is_listing: false,
        begin: None,
        depth: 0,
        document: bytes::Bytes::new(),
        revocation: revocation.clone(),
        caller: Caller::default(),
        other_tools: OtherTools::default(),
        knowledge: GrantedKnowledge::default(),
        current: CurrentCall::default(),
        reserved: None,
        log_sink: GuestLogSink::default(),
        profiler: None,
        debug: None,
        timeout,
    });
    let clock = Arc::new(Clock::new(timeout, engine.pauses().clone(), "".into()));
    let mut store = fresh_store(context, clock, Instant::now(), None).unwrap();
    let linker = crate::host::linker(engine).unwrap();
    let instance = linker
        .instantiate_async(&mut store, component)
        .await
        .unwrap();
    let begin = instance
        .get_typed_func::<(), ()>(&mut store, "begin")
        .unwrap();
    begin.call_async(&mut store, ()).await.unwrap();
    if is_revoked {
        revocation.revoke();
    }
    // As if the guest had been given it by another function.
    let state = store.data_mut();
    let answer = state.gauge.keep(ANSWER_BYTES).unwrap();
    state.answers(answer);
    let function = instance
        .get_typed_func::<(), ()>(&mut store, export)
        .unwrap();
    let ended = function.call_async(&mut store, ()).await;
    assert!(
        engine.kept().taken() < ANSWER_BYTES,
        "{export}: a function that a guest calls shows that it has its last answer"
    );
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn no_function_reaches_a_directory_that_was_taken_back() {
    let engine = Engine::new(EngineConfig::default()).unwrap();
    let component = wat::parse_str(component()).unwrap_or_else(|error| panic!("{error}"));
    let component = Component::new(engine.wasmtime(), component);
    let component = component.unwrap_or_else(|error| panic!("{error:#}"));
    let numbered = FUNCTIONS.iter().enumerate();
    let numbered = numbered.map(|(number, (_, name, ..))| (format!("f{number}"), *name));
    let others = [("same", IS_SAME_OBJECT), ("directories", GET_DIRECTORIES)];
    let others = others.map(|(export, name)| (export.to_owned(), name));
    for (export, name) in numbered.chain(others) {
        let folder = tempfile::tempdir().unwrap();
        let goes = ends(&engine, &component, folder.path(), &export, false).await;
        assert!(goes.is_ok(), "{name}: {goes:?}");

        let folder = tempfile::tempdir().unwrap();
        let ended = ends(&engine, &component, folder.path(), &export, true).await;
        let error = ended.expect_err(name);
        assert!(
            error.downcast_ref::<Revoked>().is_some(),
            "{name}: {error:?}"
        );
        // What `begin` made, and nothing else.
        let left = std::fs::read_dir(folder.path()).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["x"], "{name}");
    }
}
