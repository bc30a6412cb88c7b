//! Manifests: which layer is the component.
//!
//! The layout is the CNCF's "Wasm OCI Artifact": a manifest with the config
//! `application/vnd.wasm.config.v0+json` and one layer `application/wasm`. The older layer type that
//! tools used before it is read too. Everything else is refused with what it seems to be.

use crate::digest::Digest;
use crate::error::FetchError;
use serde::Deserialize;

pub const IMAGE_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const IMAGE_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The same two by the names that they had before they were specified.
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

const WASM_LAYER: &str = "application/wasm";
const OLD_WASM_LAYER: &str = "application/vnd.module.wasm.content.layer.v1+wasm";
const WASM_CONFIGS: [&str; 2] = [
    "application/vnd.wasm.config.v0+json",
    // What the tools with the older layer type wrote.
    "application/vnd.wasm.config.v1+json",
];
/// The config type that generic clients write when they have no config.
const EMPTY_CONFIG: &str = "application/vnd.oci.empty.v1+json";

/// Characters of a media type that an error message repeats. No registered type is longer.
const SHOWN_CHARS: usize = 100;

/// Digest and size of some content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
}

/// A parsed manifest or index.
#[derive(Debug, PartialEq, Eq)]
pub enum ImageManifest {
    /// The layer that is the component.
    Component(Descriptor),
    /// A list of manifests; the one that is for WebAssembly.
    Index(Descriptor),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    schema_version: u32,
    media_type: Option<String>,
    config: Option<DescriptorBody>,
    layers: Option<Vec<DescriptorBody>>,
    manifests: Option<Vec<DescriptorBody>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DescriptorBody {
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<Platform>,
}

#[derive(Debug, Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

impl ImageManifest {
    /// Reads a manifest or an index. `content_type` is what the registry called it; content from the
    /// store has none.
    pub fn parse(bytes: &[u8], content_type: Option<&str>) -> Result<Self, FetchError> {
        let document: Document = serde_json::from_slice(bytes)
            .map_err(|error| FetchError::manifest(format!("it does not read as JSON: {error}")))?;
        if document.schema_version != 2 {
            return Err(FetchError::manifest(
                "its schemaVersion is not 2; push it again with a current tool",
            ));
        }
        // Of a text that reads as both, two programs may take different halves for the content, so
        // that what one has checked is not what the other runs.
        let is_index = match (&document.layers, &document.manifests) {
            (Some(_), Some(_)) => {
                return Err(FetchError::manifest(
                    "it has layers and manifests, so it is ambiguous",
                ));
            }
            (None, None) => return Err(FetchError::manifest("it has no layers and no manifests")),
            (None, Some(_)) => true,
            (Some(_), None) => false,
        };
        let expected = if is_index {
            [IMAGE_INDEX, DOCKER_INDEX]
        } else {
            [IMAGE_MANIFEST, DOCKER_MANIFEST]
        };
        for called in [content_type, document.media_type.as_deref()]
            .into_iter()
            .flatten()
        {
            if !expected.contains(&called) {
                return Err(FetchError::manifest(format!(
                    "it is called {:?}, where {} was expected",
                    shown(called),
                    expected[0]
                )));
            }
        }
        match (document.layers, document.manifests) {
            (Some(layers), _) => component(document.config, layers).map(Self::Component),
            (_, manifests) => for_wasm(manifests.unwrap_or_default()).map(Self::Index),
        }
    }
}

/// The one layer of a Wasm artefact.
fn component(
    config: Option<DescriptorBody>,
    layers: Vec<DescriptorBody>,
) -> Result<Descriptor, FetchError> {
    let refused = |reason: String| Err(FetchError::NotAComponent { reason });
    let config = config.map(|config| config.media_type).unwrap_or_default();
    if config.contains("image.config") || config.contains("container.image") {
        return refused("it is a container image".into());
    }
    let [layer] = layers.as_slice() else {
        return refused(format!(
            "it has {} layers, where a Wasm artefact has one",
            layers.len()
        ));
    };
    let is_wasm = match layer.media_type.as_str() {
        WASM_LAYER => WASM_CONFIGS.contains(&config.as_str()) || config == EMPTY_CONFIG,
        // Each tool had a config type of its own.
        OLD_WASM_LAYER => true,
        _ => false,
    };
    if !is_wasm {
        return refused(format!(
            "it has a layer {:?} with a config {:?}, where {WASM_LAYER} and {} were expected",
            shown(&layer.media_type),
            shown(&config),
            WASM_CONFIGS[0]
        ));
    }
    layer.descriptor()
}

/// The entry of an index that is for WebAssembly: WASI 0.2 rather than others, the first of equals.
fn for_wasm(manifests: Vec<DescriptorBody>) -> Result<Descriptor, FetchError> {
    let rank = |entry: &DescriptorBody| match &entry.platform {
        Some(p) if p.architecture == "wasm" && p.os == "wasip2" => Some(0),
        Some(p) if p.architecture == "wasm" && p.os != "wasip1" => Some(1),
        // An index of artefacts has no platforms.
        None if [IMAGE_MANIFEST, DOCKER_MANIFEST].contains(&entry.media_type.as_str()) => Some(2),
        _ => None,
    };
    let best = manifests
        .iter()
        .filter_map(|entry| rank(entry).map(|rank| (rank, entry)))
        .min_by_key(|(rank, _)| *rank);
    if let Some((_, entry)) = best {
        return entry.descriptor();
    }
    let platforms: Vec<String> = manifests
        .iter()
        .filter_map(|entry| entry.platform.as_ref())
        .take(5)
        .map(|p| shown(&format!("{}/{}", p.os, p.architecture)))
        .collect();
    Err(FetchError::NotAComponent {
        reason: format!(
            "none of its {} platforms is WebAssembly ({})",
            manifests.len(),
            platforms.join(", ")
        ),
    })
}

impl DescriptorBody {
    fn descriptor(&self) -> Result<Descriptor, FetchError> {
        let digest = self
            .digest
            .parse()
            .map_err(|reason: &str| FetchError::manifest(reason))?;
        Ok(Descriptor {
            digest,
            size: self.size,
        })
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).collect()
}

/// Refuses bytes that only say that they are WebAssembly, and modules that are no components.
pub fn check_component(bytes: &[u8]) -> Result<(), FetchError> {
    let reason = match bytes {
        // Layer 1 is what tells a component from a module.
        [0, b'a', b's', b'm', _, _, 1, 0, ..] => return Ok(()),
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => {
            "it is a core module; make a component of it with `wasm-tools component new`"
        }
        _ => "its bytes do not begin as WebAssembly does",
    };
    Err(FetchError::NotAComponent {
        reason: reason.into(),
    })
}

#[cfg(test)]
#[path = "artifact_tests.rs"]
mod tests;
