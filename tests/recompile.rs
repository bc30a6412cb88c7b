//! What an author's edit compiles anew.

use std::fs;
use std::path::{Path, PathBuf};
use support::host::{Host, binary, finish};
use support::sandbox::component;
use toolhold_sandbox::compile::{Cache, FunctionCounts};
use toolhold_sandbox::{Compiler, CompilerProcess, Engine, EngineConfig, Policy, Registry};

/// More than a small component has, as interpreters do.
const DATA_BYTES: usize = 1_200_000;

/// A module whose data an edit changes, as one in Python.
fn module(data: &str) -> Vec<u8> {
    let functions = (0..300).fold(String::new(), |all, n| {
        all + &format!(
            "(func $f{n} (param i32) (result i32) (i32.mul (local.get 0) (i32.const {n})))\n"
        )
    });
    component(&format!(
        "(component
           (core module $m
             (memory 32)
             (data (i32.const 0) \"{}\")
             {functions}
             (func (export \"f\")))
           (core instance $i (instantiate $m))
           (func (export \"f\") (canon lift (core func $i \"f\"))))",
        data.repeat(DATA_BYTES)
    ))
}

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

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .collect();
    files.sort();
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_compiles_what_it_changed_and_a_server_uses_it() {
    let root = tempfile::tempdir().unwrap();
    let open = |name: &str| Cache::open(&root.path().join(name), &root.path().join("key")).unwrap();
    let modules = root.path().join("modules");
    let words = modules.join("words");
    fs::create_dir_all(&words).unwrap();
    fs::write(
        words.join("module.toml"),
        "[build]\nlanguage = \"python\"\n",
    )
    .unwrap();

    let cache = open("cache");
    let author = registry(&cache, true);
    let edit = async |data: &str| {
        let before = cache.function_counts();
        fs::write(words.join("words.wasm"), module(data)).unwrap();
        author.load_folder(&modules, None, &|_| ()).await.unwrap();
        assert!(author.failures().is_empty(), "{:?}", author.failures());
        let after = cache.function_counts();
        FunctionCounts {
            taken: after.taken - before.taken,
            made: after.made - before.made,
        }
    };
    let cold = edit("a").await;
    assert!(cold.taken == 0 && cold.made > 300, "{cold:?}");
    // The keys of a few functions differ with the order of threads.
    let is_warm = |counts: FunctionCounts| {
        counts.taken + counts.made == cold.made && counts.made < cold.made / 4
    };
    let counts = edit("b").await;
    assert!(is_warm(counts), "{counts:?}");
    assert_eq!(files(cache.folder(), "cwasm").len(), 2);
    let packs = files(cache.folder(), "functions");
    let [pack] = packs.as_slice() else {
        panic!("one pack of one module: {packs:?}")
    };

    // Another host of this user compiles it without: byte for byte the same, under the same name.
    let plain = open("plain");
    let server = registry(&plain, false);
    server.load_folder(&modules, None, &|_| ()).await.unwrap();
    assert!(files(plain.folder(), "functions").is_empty());
    let made = files(plain.folder(), "cwasm");
    let same = cache.folder().join(made[0].file_name().unwrap());
    assert!(fs::read(&made[0]).unwrap() == fs::read(same).unwrap());
    let server = registry(&cache, false);
    let before = cache.lookups();
    server.load_folder(&modules, None, &|_| ()).await.unwrap();
    let after = cache.lookups();
    assert_eq!(
        (after.hits - before.hits, after.misses - before.misses),
        (1, 0),
        "the author paid for it"
    );

    // One that was tampered with is of no use, and made again.
    let mut bytes = fs::read(pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(pack, bytes).unwrap();
    assert_eq!(edit("c").await, cold);
    let counts = edit("d").await;
    assert!(is_warm(counts), "{counts:?}");

    // Another module has a pack of its own, or none if it is not built where it lies.
    let other = modules.join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("other.wasm"), module("e")).unwrap();
    author.load_folder(&modules, None, &|_| ()).await.unwrap();
    assert_eq!(files(cache.folder(), "functions"), packs);
    fs::write(other.join("module.toml"), "[build]\nlanguage = \"c\"\n").unwrap();
    fs::write(other.join("other.wasm"), module("f")).unwrap();
    let before = cache.function_counts();
    author.load_folder(&modules, None, &|_| ()).await.unwrap();
    assert_eq!(cache.function_counts().taken, before.taken);
    assert_eq!(files(cache.folder(), "functions").len(), 2);
}

/// What edits compiled is in nobody's way: the cache of a day's work has no more than that of one edit.
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
        files(cache.folder(), "cwasm")
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
    assert_eq!(files(cache.folder(), "cwasm").len(), 6);
}

/// The schemas of what was built are looked at before it is called, and that is what compiles it.
#[test]
fn looking_at_a_module_compiles_it_for_its_author() {
    let host = Host::new();
    let toml = "[build]\nlanguage = \"python\"\n";
    host.write("modules/words/module.toml", toml)
        .write("modules/words/words.wasm", module("a"));
    let cache = host.path().join("cache");
    let mut inspect = host.command(&["modules", "inspect", "words"]);
    let done = finish(
        inspect
            .env("TOOLHOLD_PATHS__CACHE", &cache)
            .output()
            .expect("the binary runs"),
    );
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(files(&cache.join("compiled"), "functions").len(), 1);
}
