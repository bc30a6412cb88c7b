//! A thousand modules: loading them cold and from the compiled cache, and what they hold in memory.

use crate::measure::{self, resident, row};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use toolhold_policy::Output;
use toolhold_sandbox::Registry;
use toolhold_sandbox::compile::cache::Cache;

const MODULES: u64 = 1_000;

pub fn run() {
    let runtime = measure::runtime();
    let folder = tempfile::tempdir().unwrap();
    let modules = folder.path().join("modules");
    fs::create_dir(&modules).unwrap();
    for i in 0..MODULES {
        let component = wat::parse_str(distinct(i)).unwrap();
        fs::write(modules.join(format!("m{i}.wasm")), component).unwrap();
    }
    for name in ["compiled", "from the cache"] {
        let before = resident();
        let (registry, time) = load(&runtime, folder.path(), &modules);
        let each = resident().saturating_sub(before) / MODULES;
        row(
            &format!("{MODULES} modules, {name}"),
            &format!(
                "{time:.2?}, {:.0?} and {} KiB of memory each",
                time / u32::try_from(MODULES).unwrap(),
                each >> 10
            ),
        );
        let report = runtime.block_on(measure::call(&registry, "m7.constant", &json!({})));
        assert_eq!(report.result.unwrap(), Output::Value(json!(7)));
    }
}

fn load(runtime: &tokio::runtime::Runtime, folder: &Path, modules: &Path) -> (Registry, Duration) {
    let cache = Cache::open(&folder.join("compiled"), &folder.join("key")).unwrap();
    let registry = Registry::new(measure::engine(8), Some(cache), measure::policy());
    let started = Instant::now();
    runtime
        .block_on(registry.load_folder(modules, None, &|_| ()))
        .unwrap();
    let time = started.elapsed();
    assert_eq!(registry.modules().len() as u64, MODULES);
    (registry, time)
}

/// Small components that share no compiled code.
fn distinct(i: u64) -> String {
    format!(
        r#"(component
  (core module $m (memory 1) (func (export "f") (result i64) (i64.const {i})))
  (core instance $i (instantiate $m))
  (func (export "constant") (result u64) (canon lift (core func $i "f"))))"#
    )
}
