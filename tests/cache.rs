//! The compiled cache (THREATS.md, row 19): what fails its check is compiled again, never run.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use support::hostile;
use support::sandbox::component;
use toolhold_sandbox::cache::Cache;
use toolhold_sandbox::{Engine, EngineConfig, LoadEvent, Policy, Registry};

/// Loads `modules` and returns how many components had to be compiled.
async fn load(engine: &Engine, root: &Path, key: &str) -> usize {
    let cache = Cache::open(&root.join("compiled"), &root.join(key)).expect("a cache");
    let registry = Registry::new(engine.clone(), Some(cache), Policy::default());
    let compiled = AtomicUsize::new(0);
    let count = |event| {
        if let LoadEvent::Compiling { .. } = event {
            compiled.fetch_add(1, Ordering::Relaxed);
        }
    };
    registry
        .load_folder(&root.join("modules"), None, &count)
        .await
        .expect("a folder");
    assert!(registry.failures().is_empty(), "{:?}", registry.failures());
    compiled.into_inner()
}

fn entries(root: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = std::fs::read_dir(root.join("compiled"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    entries.sort();
    entries
}

#[tokio::test]
async fn an_entry_that_was_touched_is_compiled_again() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    std::fs::create_dir(root.join("modules")).expect("a folder");
    for (name, wat) in [("one", hostile::COMPUTE), ("two", hostile::GROWTH)] {
        std::fs::write(
            root.join("modules").join(format!("{name}.wasm")),
            component(wat),
        )
        .expect("a file");
    }
    let engine = Engine::new(EngineConfig {
        concurrent_calls: 4,
        ..EngineConfig::default()
    })
    .expect("an engine");
    assert_eq!(load(&engine, root, "key").await, 2);
    assert_eq!(
        load(&engine, root, "key").await,
        0,
        "the second time from the cache"
    );

    let entries = entries(root);
    let original = std::fs::read(&entries[0]).expect("an entry");
    for at in [0, 40, original.len() / 2, original.len() - 1] {
        let mut flipped = original.clone();
        flipped[at] ^= 1;
        std::fs::write(&entries[0], flipped).expect("a file");
        assert_eq!(load(&engine, root, "key").await, 1, "byte {at} was flipped");
        assert_eq!(
            std::fs::read(&entries[0]).expect("an entry").len(),
            original.len(),
            "and it is sound again"
        );
    }
    std::fs::write(&entries[0], &original[..20]).expect("a file");
    assert_eq!(load(&engine, root, "key").await, 1, "cut off");

    // Another component's entry under this one's name: sound bytes, wrong digest.
    std::fs::copy(&entries[1], &entries[0]).expect("a copy");
    assert_eq!(load(&engine, root, "key").await, 1, "a forged name");

    assert_eq!(
        load(&engine, root, "another-key").await,
        2,
        "made by somebody else"
    );
    assert_eq!(load(&engine, root, "another-key").await, 0);
}

#[cfg(unix)]
#[test]
fn a_folder_that_others_can_write_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("compiled");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).expect("permissions");
    let error = Cache::open(&folder, &root.path().join("key")).expect_err("must be refused");
    assert!(error.to_string().contains("0700"), "{error}");
}
