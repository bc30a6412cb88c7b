//! From a core module to a component, for compilers that stop at WASI preview 1: the world's type is
//! embedded, and an adapter translates preview 1 into the WASI that the host has.

use std::fs;
use std::path::Path;

use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME as ADAPTER_NAME,
    WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER as ADAPTER,
};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::scratch::Scratch;
use super::web::{self, Extension};
use super::{BuildError, Job, toolchain};

/// The names of imports begin with it in a module that uses our support for HTTP. The compiler leaves out what is not
/// called.
const HTTP: &[u8] = b"wasi:http/";

/// Makes the component of a core module that exports the functions of the job's world.
pub fn publish(job: &Job<'_>, core: &Path) -> Result<(), BuildError> {
    let core = fs::read(core).map_err(BuildError::io("read", core))?;
    let scratch = Scratch::create(job)?;
    // A world of its own says itself what it imports.
    let calls_http = || core.windows(HTTP.len()).any(|bytes| bytes == HTTP);
    let (wit, world) = if job.manifest.world.is_none() && calls_http() {
        (web::wit(job, &scratch, Extension::Http)?, web::WORLD)
    } else {
        (toolchain::wit(job)?, job.world())
    };
    let component = component(core, &wit, world).map_err(|reason| BuildError::World {
        path: job.manifest.directory.clone(),
        world: job.world().to_owned(),
        reason,
    })?;
    job.publish(|path| fs::write(path, &component).map_err(BuildError::io("write", path)))
}

/// The reason of a failure is one line, from the general to the particular.
fn component(mut core: Vec<u8>, wit: &Path, world: &str) -> Result<Vec<u8>, String> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve
        .push_dir(wit)
        .map_err(|error| format!("{error:#}"))?;
    let world = resolve
        .select_world(&[package], Some(world))
        .map_err(|error| format!("{error:#}"))?;
    embed_component_metadata(&mut core, &resolve, world, StringEncoding::UTF8)
        .and_then(|()| ComponentEncoder::default().validate(true).module(&core))
        .and_then(|encoder| encoder.adapter(ADAPTER_NAME, ADAPTER))
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(module (memory (export "memory") 1) (func (export NAME) (result i32) i32.const 7))`
    fn module_exporting(name: &str) -> Vec<u8> {
        let mut bytes =
            b"\0asm\x01\0\0\0\x01\x05\x01\x60\0\x01\x7f\x03\x02\x01\0\x05\x03\x01\0\x01".to_vec();
        let mut exports = vec![2, 6];
        exports.extend(b"memory\x02\0");
        exports.push(u8::try_from(name.len()).unwrap());
        exports.extend(name.as_bytes());
        exports.extend(b"\0\0");
        bytes.push(7);
        bytes.push(u8::try_from(exports.len()).unwrap());
        bytes.extend(exports);
        bytes.extend(b"\x0a\x06\x01\x04\0\x41\x07\x0b");
        bytes
    }

    fn encode(export: &str) -> Result<Vec<u8>, String> {
        let wit = tempfile::tempdir().unwrap();
        let text = "package a:b;\nworld w { export seven: func() -> u32; }\n";
        fs::write(wit.path().join("w.wit"), text).unwrap();
        component(module_exporting(export), wit.path(), "w")
    }

    #[test]
    fn a_module_with_the_worlds_exports_becomes_a_component() {
        let bytes = encode("seven").unwrap();
        assert_eq!(&bytes[..8], b"\0asm\x0d\0\x01\0");
        assert_eq!(encode("seven").unwrap(), bytes, "the same every time");
    }

    #[test]
    fn a_missing_export_is_named() {
        let reason = encode("eight").unwrap_err();
        assert!(reason.contains("seven"), "{reason}");
    }
}
