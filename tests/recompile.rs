//! Compiled components that an author's edits leave in the cache.

use std::fs;
use std::path::{Path, PathBuf};
use support::host::binary;
use support::sandbox::component;
use toolhold_sandbox::compile::Cache;
use toolhold_sandbox::{Compiler, CompilerProcess, Engine, EngineConfig, Policy, Registry};

fn registry(cache: &Cache, serves_author: bool) -> Registry {
    let process = CompilerProcess {
        program: binary(),
        arguments: vec!["compile-component".into()],
        serves_author,
    };
    let config = EngineConfig {
        concurrent_calls: 4,
        compiler: Compiler::Process(process),
        ..EngineConfig::default()
    };
    Registry::new(
        Engine::new(config).unwrap(),
        Some(cache.clone()),
        Policy::default(),
    )
}

fn components(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|found| found == "cwasm"))
        .collect();
    files.sort();
    files
}

/// The cache keeps two compiled components of each module, however many edits there were.
#[tokio::test(flavor = "multi_thread")]
async fn an_edit_takes_the_place_of_the_one_before_the_last() {
    let root = tempfile::tempdir().unwrap();
    let cache = Cache::open(&root.path().join("cache"), &root.path().join("key")).unwrap();
    let modules = root.path().join("modules");
    let write = |name: &str, n: usize| {
        let folder = modules.join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("module.toml"), "[build]\nlanguage = \"c\"\n").unwrap();
        let text = format!(
            "(component
               (core module $m (func (export \"f\") (drop (i32.const {n}))))
               (core instance $i (instantiate $m))
               (func (export \"f\") (canon lift (core func $i \"f\"))))"
        );
        fs::write(folder.join(format!("{name}.wasm")), component(&text)).unwrap();
    };
    let load = async |serves_author| {
        let registry = registry(&cache, serves_author);
        registry.load_folder(&modules, None, &|_| ()).await.unwrap();
        assert!(registry.failures().is_empty(), "{:?}", registry.failures());
        components(cache.folder())
    };
    write("other", 1_000);
    let others = load(true).await;
    let mut made = Vec::new();
    for n in 0..4 {
        write("words", n);
        made = load(true).await;
        assert_eq!(made.len(), (n + 2).min(3), "{made:?}");
        assert!(made.contains(&others[0]), "another module's stays");
    }
    // An edit that is taken back compiles nothing.
    write("words", 2);
    let before = cache.lookups().misses;
    assert_eq!(load(true).await, made);
    assert_eq!(cache.lookups().misses, before);
    // It was used last, so the next edit takes the other one's place.
    write("words", 4);
    load(true).await;
    write("words", 2);
    let before = cache.lookups().misses;
    load(true).await;
    assert_eq!(cache.lookups().misses, before);
    // Hosts that serve no author have no edits, and remove nothing.
    for n in 10..13 {
        write("words", n);
        load(false).await;
    }
    assert_eq!(components(cache.folder()).len(), 6);
}
