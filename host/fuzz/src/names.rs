//! Names of modules, versions and tools: what is accepted looks like nothing else, is one component of a path,
//! and comes apart again into what it was made of. (Paths of requests: [`crate::egress`].)
//!
//! An input is two lines: the name of a file in the modules folder, without `.wasm`, and the name of a tool.

use std::path::{Component, Path};
use toolhold_policy::{is_name, names, tool_name};
use toolhold_sandbox::is_slot;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (slot, tool) = text.split_once('\n').unwrap_or((text, ""));
    if is_slot(slot) {
        is_one_file(slot);
    }
    let module = slot.split('@').next().unwrap_or_default();
    if !is_name(module) {
        assert!(!is_slot(slot), "{slot:?}");
        return;
    }
    assert!(is_slot(module), "{module:?}");
    let Ok(full) = tool_name(module, tool) else {
        return;
    };
    assert!(full.is_ascii(), "{full:?}");
    assert_eq!(names::module_of(&full), module, "{full:?}");
    assert_eq!(full.strip_prefix(module), Some(&*format!(".{tool}")));
    assert!(names::means(module, &full) && names::means(&full, &full));
    // No name of one kind is a name of the other.
    assert!(!is_name(&full) && !is_slot(&full), "{full:?}");
}

/// A file of this name lies in the folder that it is joined to, and is what it is called, to every system.
fn is_one_file(slot: &str) {
    let file = format!("{slot}.wasm");
    let components: Vec<_> = Path::new(&file).components().collect();
    assert_eq!(components, [Component::Normal(file.as_ref())], "{slot:?}");
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '.' | '@');
    assert!(file.chars().all(plain), "{slot:?}");
    assert!(file.len() < 128, "{slot:?}");
}
