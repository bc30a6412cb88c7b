//! Resolves a `_module` to a component: by name, by path or by reference (docs/protocol.md, 6).
//!
//! All three lead to a module of the registry, with the pin, limits and grants of that module's name. A
//! component named by path or by reference is loaded on first use; it cannot take a name that is in use.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use toolhold_oci::{Credentials, FetchError, Fetcher, PulledComponent, Reference, Settings};
use toolhold_sandbox::{LoadError, Module, Registry, is_slot};

/// Sources of modules that a tool names by path or by reference. The default has none: tools can only name
/// modules of the registry.
///
/// The registry's policy applies to loaded components: pin, limits and grants of the module's name. A
/// reference cannot take a name that the policy grants something to, because the grant was meant for a
/// component that the operator chose.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    pub(crate) roots: Vec<PathBuf>,
    /// Absent: nothing is fetched.
    pub(crate) fetcher: Option<Arc<Result<Fetcher, FetchError>>>,
    /// References that the operator configured as modules of the registry, with their names.
    pub(crate) chosen: Vec<(String, String)>,
}

impl Sources {
    /// Resolves `./path/to/file.wasm` below `folder`, after the folders that were added before. Files outside
    /// of it are not read, even through links.
    pub fn with_root(mut self, folder: impl Into<PathBuf>) -> Self {
        self.roots.push(folder.into());
        self
    }

    /// Fetches `oci://` references, and caches fetched components below `cache` by their digest.
    ///
    /// `variable` returns the credentials: `TOOLHOLD_OCI_USERNAME`, `TOOLHOLD_OCI_PASSWORD`, the
    /// `TOOLHOLD_OCI_HOST` that both are for, and `TOOLHOLD_OCI_TOKEN_HOST` if another host issues its
    /// tokens. With `|_| None` pulls are anonymous. An incomplete set is an error of the first fetch.
    pub fn with_registries(
        mut self,
        cache: impl Into<PathBuf>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let fetcher = Credentials::read(variable)
            .map(|credentials| Fetcher::new(Settings::new(cache.into(), credentials)));
        self.fetcher = Some(Arc::new(fetcher));
        self
    }
}

/// The registry, and the sources it may load from.
#[derive(Debug)]
pub struct Components {
    registry: Registry,
    sources: Sources,
    /// Resolved digests of references with a tag, by their text: within a run a tag keeps its meaning.
    fetched: Mutex<BTreeMap<String, String>>,
}

impl Components {
    pub fn new(registry: Registry, sources: Sources) -> Self {
        Self {
            registry,
            sources,
            fetched: Mutex::default(),
        }
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The module that `name` means; `Ok(None)` if `name` is neither a path nor a reference, and no module
    /// has it.
    ///
    /// # Errors
    /// The module cannot be loaded; the message is for the author of the name.
    pub async fn find(&self, name: &str) -> Result<Option<Arc<Module>>, String> {
        if name.starts_with("oci://") {
            return self.by_reference(name).await.map(Some);
        }
        if ends_in(name, "wasm") || name.contains(['/', '\\']) {
            return self.by_path(name).await.map(Some);
        }
        if let Some(module) = self.registry.module(name) {
            return Ok(Some(module));
        }
        match name.split_once('@') {
            Some((plain, version)) => self.no_version(plain, version),
            None => Ok(None),
        }
    }

    fn no_version(&self, name: &str, wanted: &str) -> Result<Option<Arc<Module>>, String> {
        let there: Vec<String> = self
            .registry
            .modules()
            .iter()
            .filter(|module| module.name == name)
            .map(|module| version(module))
            .collect();
        match there.as_slice() {
            [] => Ok(None),
            there => Err(format!(
                "there is no version {wanted:?} of the module {name:?}; there are {}",
                there.join(", ")
            )),
        }
    }

    async fn by_path(&self, name: &str) -> Result<Arc<Module>, String> {
        let roots = self.sources.roots.as_slice();
        if roots.is_empty() {
            return Err("no module is named by its path here".into());
        }
        let Some(path) = name.strip_prefix("./").filter(|path| ends_in(path, "wasm")) else {
            return Err(format!(
                "{name:?} names no file; write ./path/to/file.wasm for a component, ./path/to/file.json for a Request"
            ));
        };
        let mut absent = None;
        for root in roots {
            let loaded = self.registry.load_file(root, Path::new(path), &|_| ());
            match loaded.await {
                Ok(module) => return Ok(module),
                Err(error @ LoadError::Missing { .. }) => {
                    absent.get_or_insert(error.to_string());
                }
                Err(error) => return Err(format!("{name}: {error}")),
            }
        }
        let roots: Vec<_> = roots
            .iter()
            .map(|root| root.display().to_string())
            .collect();
        Err(format!(
            "{name}: {}; components are looked for under {} (modules.roots)",
            absent.unwrap_or_default(),
            roots.join(", ")
        ))
    }

    async fn by_reference(&self, text: &str) -> Result<Arc<Module>, String> {
        let reference = reference(text).map_err(|error| error.to_string())?;
        let mut chosen = self.sources.chosen.iter();
        let same = |own: &str| own.parse().is_ok_and(|own: Reference| own == reference);
        if let Some((name, _)) = chosen.find(|(_, own)| same(own)) {
            return self.source(name);
        }
        if let Some(module) = self.known(text, &reference) {
            return Ok(module);
        }
        let Some(fetcher) = &self.sources.fetcher else {
            return Err("no module is fetched from a registry here".into());
        };
        let name = reference.module_name();
        let policy = self.registry.policy();
        if policy.grants(&name) {
            // A grant of the operator was meant for a component that the operator chose.
            return Err(format!(
                "{text} would be the module {name:?}, which [module.{name}] gives something to; write source = \"{text}\" \
                 there if this is the one"
            ));
        }
        let fetched = fetch(fetcher, text, policy.component_bytes(&name))
            .await
            .map_err(|reason| format!("{text} cannot be fetched: {reason}"))?;
        let origin = fetched.pinned.to_string();
        let versioned = format!("{name}@{}", reference.tag());
        let slot = match reference.digest() {
            None if is_slot(&versioned) => versioned,
            _ => name,
        };
        let loaded = self
            .registry
            .load_beside(&slot, &origin, fetched.bytes, &|_| ())
            .await;
        let module = loaded.map_err(|error| {
            let advice = match error {
                LoadError::Duplicate { .. } => {
                    format!(": give one a name of its own, [module.NAME] source = \"{text}\"")
                }
                _ => String::new(),
            };
            format!("{text}: {error}{advice}")
        })?;
        self.fetched().insert(text.to_owned(), origin);
        Ok(module)
    }

    /// The module `name` that the configuration fetched.
    fn source(&self, name: &str) -> Result<Arc<Module>, String> {
        if let Some(module) = self.registry.module(name) {
            return Ok(module);
        }
        let failures = self.registry.failures();
        let why = failures.iter().find(|failed| failed.name.raw() == name);
        Err(match why {
            Some(failed) => format!(
                "the source of [module.{name}] was not loaded: {}",
                failed.error
            ),
            None => format!(
                "it is the source of [module.{name}], which is not among the tools of this run (--tools)"
            ),
        })
    }

    /// The module that was fetched for the same reference before.
    fn known(&self, text: &str, reference: &Reference) -> Option<Arc<Module>> {
        let meant = self.fetched().get(text).cloned();
        let modules = self.registry.modules();
        modules.into_iter().find(|module| match &meant {
            Some(origin) => module.origin.raw() == origin.as_str(),
            None => {
                let origin: Option<Reference> = module.origin.raw().parse().ok();
                origin.is_some_and(|origin| {
                    reference.digest().is_some() && origin.is_same_content(reference)
                })
            }
        })
    }

    fn fetched(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fetches the component that `text` refers to, of at most `most` bytes.
///
/// # Errors
/// The component cannot be fetched: wrong credentials, a wrong reference, or an error of the registry.
pub async fn fetch(
    fetcher: &Result<Fetcher, FetchError>,
    text: &str,
    most: u64,
) -> Result<PulledComponent, String> {
    let fetched = match (fetcher, reference(text)) {
        (Ok(fetcher), Ok(reference)) => fetcher.resolve(&reference, most).await,
        (Err(error), _) => return Err(error.to_string()),
        (_, Err(error)) => Err(error),
    };
    let fetched = fetched.map_err(|error| error.to_string())?;
    if let Some(note) = fetched.note() {
        tracing::warn!("{note}");
    }
    Ok(fetched)
}

/// Parses a reference.
pub fn reference(text: &str) -> Result<Reference, FetchError> {
    text.parse().map_err(|source| FetchError::Reference {
        text: text.to_owned(),
        source,
    })
}

/// Whether a path has this file extension.
pub fn ends_in(path: &str, ending: &str) -> bool {
    let own = Path::new(path).extension();
    own.is_some_and(|own| own == ending)
}

/// `1.2.0`, or the text for a module without a version.
pub fn version(module: &Module) -> String {
    let version = module.version.as_ref().map(ToString::to_string);
    version.unwrap_or_else(|| "one without a version".into())
}
