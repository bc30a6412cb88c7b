use super::*;
use serde_json::{Value, json};

fn entry(media_type: &str, content: &str) -> Value {
    json!({"mediaType": media_type, "digest": Digest::of(content.as_bytes()).to_string(), "size": content.len()})
}

fn manifest(config: &str, layers: &[&str]) -> Value {
    let layers: Vec<Value> = layers.iter().map(|layer| entry(layer, layer)).collect();
    json!({"schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": entry(config, "{}"), "layers": layers})
}

fn index(platforms: &[&str]) -> Value {
    let manifests: Vec<Value> = platforms
        .iter()
        .map(|platform| {
            let mut entry = entry(IMAGE_MANIFEST, platform);
            if let Some((os, architecture)) = platform.split_once('/') {
                entry["platform"] = json!({"os": os, "architecture": architecture});
            }
            entry
        })
        .collect();
    json!({"schemaVersion": 2, "manifests": manifests})
}

fn parse(document: &Value) -> Result<ImageManifest, String> {
    ImageManifest::parse(document.to_string().as_bytes(), None).map_err(|error| error.to_string())
}

fn chosen(content: &str) -> Descriptor {
    Descriptor {
        digest: Digest::of(content.as_bytes()),
        size: content.len() as u64,
    }
}

#[test]
fn both_layouts_give_their_layer() {
    for (config, layer) in [
        (WASM_CONFIGS[0], WASM_LAYER),
        (EMPTY_CONFIG, WASM_LAYER),
        (WASM_CONFIGS[1], OLD_WASM_LAYER),
        (
            "application/vnd.wasmcloud.actor.archive.config",
            OLD_WASM_LAYER,
        ),
    ] {
        let found = parse(&manifest(config, &[layer])).unwrap();
        assert_eq!(found, ImageManifest::Component(chosen(layer)), "{config}");
    }
}

#[test]
fn everything_else_is_refused_with_the_reason() {
    let image = "application/vnd.oci.image.config.v1+json";
    let mut both = manifest(WASM_CONFIGS[0], &[WASM_LAYER]);
    both["manifests"] = json!([]);
    let mut old = manifest(WASM_CONFIGS[0], &[WASM_LAYER]);
    old["schemaVersion"] = json!(1);
    let mut misnamed = manifest(WASM_CONFIGS[0], &[WASM_LAYER]);
    misnamed["mediaType"] = json!(IMAGE_INDEX);
    let mut negative = manifest(WASM_CONFIGS[0], &[WASM_LAYER]);
    negative["layers"][0]["size"] = json!(-1);
    let mut path = manifest(WASM_CONFIGS[0], &[WASM_LAYER]);
    path["layers"][0]["digest"] = json!("sha256:../../../../etc/passwd");
    for (document, words) in [
        (manifest(image, &[WASM_LAYER]), "container image"),
        (
            manifest(WASM_CONFIGS[0], &[WASM_LAYER, WASM_LAYER]),
            "2 layers",
        ),
        (manifest(WASM_CONFIGS[0], &[]), "0 layers"),
        (
            manifest(WASM_CONFIGS[0], &["application/gzip"]),
            "\"application/gzip\"",
        ),
        (
            manifest("application/vnd.cncf.helm.config.v1+json", &[WASM_LAYER]),
            "helm",
        ),
        (both, "ambiguous"),
        (old, "schemaVersion"),
        (misnamed, "is called"),
        (negative, "does not read"),
        (path, "a digest is"),
        (json!({"schemaVersion": 2}), "no layers and no manifests"),
        (json!([]), "does not read"),
    ] {
        let error = parse(&document).unwrap_err();
        assert!(error.contains(words), "{document}: {error}");
    }
}

#[test]
fn media_type_of_the_registry_must_fit() {
    let bytes = manifest(WASM_CONFIGS[0], &[WASM_LAYER]).to_string();
    assert!(ImageManifest::parse(bytes.as_bytes(), Some(IMAGE_MANIFEST)).is_ok());
    assert!(ImageManifest::parse(bytes.as_bytes(), Some(IMAGE_INDEX)).is_err());
    assert!(ImageManifest::parse(bytes.as_bytes(), Some("text/html")).is_err());
}

#[test]
fn an_index_gives_its_wasm_entry() {
    for (platforms, expected) in [
        (
            &["linux/amd64", "wasip1/wasm", "wasi/wasm", "wasip2/wasm"][..],
            "wasip2/wasm",
        ),
        (&["linux/amd64", "wasi/wasm"], "wasi/wasm"),
        (&["linux/amd64", "artefact"], "artefact"),
    ] {
        let found = parse(&index(platforms)).unwrap();
        assert_eq!(
            found,
            ImageManifest::Index(chosen(expected)),
            "{platforms:?}"
        );
    }
    let error = parse(&index(&["linux/amd64", "wasip1/wasm"])).unwrap_err();
    assert!(error.contains("linux/amd64, wasip1/wasm"), "{error}");
}

#[test]
fn modules_and_text_are_not_components() {
    check_component(b"\0asm\x0d\0\x01\0rest").unwrap();
    for (bytes, word) in [
        (&b"\0asm\x01\0\0\0"[..], "core module"),
        (b"#!/bin/sh", "do not begin"),
        (b"", "do not begin"),
    ] {
        let error = check_component(bytes).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}
