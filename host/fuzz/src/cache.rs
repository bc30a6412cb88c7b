//! The compiled cache: an entry is loaded only if it is, byte for byte, what this host wrote for this
//! component.

use crate::sandbox;
use arbitrary::Unstructured;
use std::fs;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, PoisonError};
use tempfile::TempDir;
use toolhold_policy::Digest;
use toolhold_sandbox::compile::cache::Cache;
use toolhold_sandbox::{Engine, Registry};

const COMPONENT: &str = r#"(component
  (core module $m (func (export "f") (result i32) i32.const 7))
  (core instance $i (instantiate $m))
  (func (export "f") (result u32) (canon lift (core func $i "f"))))"#;

/// A cache with one entry, made by loading a component through it.
struct Prepared {
    cache: Cache,
    engine: Engine,
    digest: Digest,
    /// The entry's file, and that of another component's entry.
    path: PathBuf,
    other: (Digest, PathBuf),
    genuine: Vec<u8>,
    _folder: TempDir,
}

/// One input at a time: the entries are files.
static PREPARED: LazyLock<Mutex<Prepared>> = LazyLock::new(|| match prepare() {
    Ok(prepared) => Mutex::new(prepared),
    Err(error) => panic!("no cache to fuzz: {error}"),
});

pub fn run(data: &[u8]) {
    let _ = check(&mut Unstructured::new(data));
}

fn check(u: &mut Unstructured) -> arbitrary::Result<()> {
    let prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = entry(u, &prepared.genuine)?;
    let (digest, path) = if u.ratio(1, 4)? {
        (prepared.other.0, &prepared.other.1)
    } else {
        (prepared.digest, &prepared.path)
    };
    if fs::write(path, &entry).is_err() {
        return Ok(());
    }
    let is_genuine = digest == prepared.digest && entry == prepared.genuine;
    let loaded = prepared.cache.load(&prepared.engine, &digest);
    assert_eq!(
        loaded.is_some(),
        is_genuine,
        "an entry of {} bytes",
        entry.len()
    );
    Ok(())
}

/// Any bytes, or the genuine entry with edits, a cut or an end of its own.
fn entry(u: &mut Unstructured, genuine: &[u8]) -> arbitrary::Result<Vec<u8>> {
    if u.ratio(1, 4)? {
        return Ok(u.arbitrary::<&[u8]>()?.to_vec());
    }
    let mut entry = genuine.to_vec();
    for _ in 0..u.int_in_range(0..=3)? {
        let at = u.choose_index(entry.len())?;
        entry[at] ^= u.arbitrary::<u8>()?;
    }
    match u.int_in_range(0..=3)? {
        0 => entry.truncate(u.int_in_range(0..=entry.len())?),
        1 => entry.extend_from_slice(u.arbitrary()?),
        _ => {}
    }
    Ok(entry)
}

fn prepare() -> Result<Prepared, Box<dyn std::error::Error>> {
    let folder = TempDir::new()?;
    let cache = Cache::open(&folder.path().join("compiled"), &folder.path().join("key"))?;
    let engine = sandbox::ENGINE.clone();
    let bytes = wat::parse_str(COMPONENT)?;
    let digest = Digest::of(&bytes);
    let registry = Registry::new(engine.clone(), Some(cache.clone()), sandbox::policy());
    sandbox::RUNTIME.block_on(registry.load_bytes("m", bytes))?;
    let mut entries = fs::read_dir(cache.folder())?;
    let path = entries.next().ok_or("the entry was not written")??.path();
    let genuine = fs::read(&path)?;
    let other = Digest::of(b"another component");
    let name = path
        .to_string_lossy()
        .replace(&digest.to_string(), &other.to_string());
    // Modules with the default stack run on the engine that is asked with here.
    if cache.load(&engine, &digest).is_none() {
        return Err("the genuine entry does not load".into());
    }
    Ok(Prepared {
        cache,
        engine,
        digest,
        path,
        other: (other, name.into()),
        genuine,
        _folder: folder,
    })
}
