use super::*;
use crate::engine::EngineConfig;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::os::unix::fs::symlink;

#[test]
fn a_fifo_in_the_place_of_a_file_is_no_file() {
    let root = tempfile::tempdir().unwrap();
    let (folder, key) = (root.path().join("cache"), root.path().join("keys/key"));
    let fifo = |path: &Path| mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let cache = Cache::open(&folder, &key).unwrap();
    let engine = Engine::new(EngineConfig::default()).unwrap();
    let digest = Digest::of(b"component");
    let entry = cache.path(&engine, EntryKind::Component, &digest);
    fifo(&entry);
    assert!(cache.load(&engine, &digest).is_none());
    cache.store(&engine, &digest, b"artefact").unwrap();
    assert!(fs::symlink_metadata(&entry).unwrap().is_file());
    // Nor is a link to a sound entry.
    fs::rename(&entry, root.path().join("elsewhere")).unwrap();
    symlink("../elsewhere", &entry).unwrap();
    assert!(toolhold_files::open(&entry, Links::Refuse).is_err());

    fs::remove_file(&key).unwrap();
    fifo(&key);
    let error = Cache::open(&folder, &key).unwrap_err().to_string();
    assert!(error.ends_with("it is not a regular file"), "{error}");
}

/// Such as those of an older version of this program.
#[test]
fn a_new_entry_takes_the_place_of_what_nothing_used_for_long() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("cache");
    let cache = Cache::open(&folder, &root.path().join("keys/key")).unwrap();
    let old = folder.join("of-an-older-version.cwasm");
    let file = create(&old).unwrap();
    let then = std::time::SystemTime::now() - unused::KEPT_UNUSED;
    file.set_modified(then).unwrap();
    let engine = Engine::new(EngineConfig::default()).unwrap();
    let digest = Digest::of(b"component");
    cache.store(&engine, &digest, b"artefact").unwrap();
    assert!(!old.exists());
    assert!(cache.path(&engine, EntryKind::Component, &digest).exists());
}

#[test]
fn every_byte_and_the_length_of_an_entry_are_checked() {
    let root = tempfile::tempdir().unwrap();
    let cache = Cache::open(&root.path().join("cache"), &root.path().join("key")).unwrap();
    let engine = Engine::new(EngineConfig::default()).unwrap();
    let digest = Digest::of(b"component");
    cache.store(&engine, &digest, b"artefact").unwrap();
    let path = cache.path(&engine, EntryKind::Component, &digest);
    let sound = fs::read(&path).unwrap();
    let kind = EntryKind::Component;
    let checked = |bytes: &[u8], digest: &Digest| {
        fs::write(&path, bytes).unwrap();
        let hasher = || cache.hasher(&engine, kind, digest, EntryPart::Held);
        // Once read into this process and once as it is mapped: both find the same.
        let held = [false, true].map(|is_mapped| {
            let file = toolhold_files::open(&path, Links::Refuse).unwrap();
            let entry = cache.header(file, &engine, kind, digest)?;
            if !is_mapped {
                return entry.read(hasher());
            }
            match entry.checked(hasher())? {
                CheckedCode::Read(held) => Some(held),
                CheckedCode::Sealed(copy) => {
                    let mut held = Vec::new();
                    copy.reader().unwrap().read_to_end(&mut held).unwrap();
                    Some(held)
                }
            }
        });
        let [read, mapped] = held;
        assert_eq!(read, mapped);
        read
    };
    assert_eq!(checked(&sound, &digest).as_deref(), Some(&b"artefact"[..]));
    for at in 0..sound.len() {
        let mut flipped = sound.clone();
        flipped[at] ^= 1;
        assert_eq!(checked(&flipped, &digest), None, "{at}");
        assert_eq!(checked(&sound[..at], &digest), None, "{at}");
    }
    assert_eq!(checked(&[&sound[..], b"x"].concat(), &digest), None);
    assert_eq!(checked(&sound, &Digest::of(b"another")), None);
    // A MAC of one part is none of the other.
    let length = &sound[..LENGTH_BYTES];
    let of_length = &sound[LENGTH_BYTES..][..MAC_BYTES];
    let exchanged = [length, of_length, of_length, length].concat();
    assert_eq!(checked(&exchanged, &digest), None);
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn a_sound_entry_is_mapped_and_stays_what_it_was_when_the_file_is_overwritten() {
    use std::os::unix::fs::FileExt as _;

    let root = tempfile::tempdir().unwrap();
    let cache = Cache::open(&root.path().join("cache"), &root.path().join("key")).unwrap();
    let engine = Engine::new(EngineConfig::default()).unwrap();
    let component = wat::parse_str(
        "(component
          (core module $m (memory 1) (data (i32.const 0) \"kept\")
            (func (export \"f\") (result i32) (i32.load (i32.const 0))))
          (core instance $m (instantiate $m))
          (func (export \"f\") (result u32) (canon lift (core func $m \"f\"))))",
    );
    let component = component.unwrap();
    let digest = Digest::of(&component);
    let artefact = engine.wasmtime().precompile_component(&component).unwrap();
    cache.store(&engine, &digest, &artefact).unwrap();
    let path = cache.path(&engine, EntryKind::Component, &digest);
    // A handle that was open before the entry was checked.
    let writer = fs::File::options().write(true).open(&path).unwrap();
    let entry = cache
        .opened(&engine, EntryKind::Component, &digest)
        .unwrap();
    let hasher = cache.hasher(&engine, EntryKind::Component, &digest, EntryPart::Held);
    let Some(CheckedCode::Sealed(copy)) = entry.checked(hasher) else {
        panic!("the entry is sound, and this system seals memory");
    };
    let zeros = vec![0; artefact.len() + HEADER_BYTES];
    writer.write_all_at(&zeros, 0).unwrap();
    let component = mapped(&engine, &copy).expect("sealed memory can be mapped");
    assert!(cache.load(&engine, &digest).is_none());
    // The component has the copy for itself.
    drop(copy);
    let linker = wasmtime::component::Linker::new(engine.wasmtime());
    let mut store = wasmtime::Store::new(engine.wasmtime(), ());
    store.set_epoch_deadline(1_000_000);
    store.set_fuel(1_000_000).unwrap();
    let instance = linker.instantiate_async(&mut store, &component).await;
    let f = instance
        .unwrap()
        .get_typed_func::<(), (u32,)>(&mut store, "f");
    let (kept,) = f.unwrap().call_async(&mut store, ()).await.unwrap();
    assert_eq!(kept.to_le_bytes(), *b"kept");
}

#[test]
fn nothing_is_written_through_what_has_the_name_already() {
    let root = tempfile::tempdir().unwrap();
    let (path, target) = (root.path().join("x.tmp"), root.path().join("target"));
    fs::write(&target, "untouched").unwrap();
    symlink(&target, &path).unwrap();
    let error = create(&path).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&target).unwrap(), b"untouched");
    assert_ne!(unfinished(&path).unwrap(), unfinished(&path).unwrap());
}
