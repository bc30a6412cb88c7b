//! The modules that are loaded at one moment, and which of them a name means.

use super::folder::CandidateStamp;
use crate::error::LoadError;
use crate::module::Module;
use foldhash::quality::RandomState;
use semver::VersionReq;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use toolhold_policy::{ToolSpec, UntrustedText, text};

/// A file or folder that is no module, and why.
#[derive(Debug)]
pub struct FailedModule {
    /// What it would have been called.
    pub name: UntrustedText,
    /// The file or folder.
    pub origin: UntrustedText,
    pub error: LoadError,
}

/// The outcome of loading one file or folder.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModuleEntry {
    stamp: Option<CandidateStamp>,
    /// The last form that could be loaded.
    module: Option<Arc<Module>>,
    /// Why the present form could not.
    failure: Option<Arc<FailedModule>>,
    /// Where the host fetched it: the name under which the operator asked for it.
    asked_as: Option<String>,
}

impl ModuleEntry {
    pub fn loaded(module: Arc<Module>) -> Self {
        Self {
            module: Some(module),
            ..Self::default()
        }
    }

    /// The last form that could be loaded.
    pub fn module(&self) -> Option<&Arc<Module>> {
        self.module.as_ref()
    }

    /// In what form its files were.
    pub fn stamped(self, stamp: Option<CandidateStamp>) -> Self {
        Self { stamp, ..self }
    }
}

/// All entries, by origin. Never changed in place: readers keep the one they have.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModuleSnapshot {
    entries: BTreeMap<String, ModuleEntry>,
    /// The modules of each name, for the calls: made by [`Self::indexed`].
    names: HashMap<String, Vec<Arc<Module>>, RandomState>,
    /// All modules, by name, of each name the newest first.
    listed: Vec<Arc<Module>>,
}

impl ModuleSnapshot {
    /// Ready to be read.
    pub fn indexed(mut self) -> Self {
        self.names.clear();
        self.listed = self.modules();
        for module in &self.listed {
            self.names
                .entry(module.name.clone())
                .or_default()
                .push(module.clone());
        }
        self
    }

    /// Whether what lies at `origin` was seen in this very form.
    pub fn is_current(&self, origin: &str, stamp: &CandidateStamp) -> bool {
        self.entries
            .get(origin)
            .is_some_and(|entry| entry.stamp.as_ref() == Some(stamp))
    }

    /// The module that was made from files in this very form, wherever they were found.
    pub fn made_from(&self, stamp: &CandidateStamp) -> Option<Arc<Module>> {
        let mut entries = self.entries.values();
        let entry = entries.find(|entry| entry.stamp.as_ref() == Some(stamp))?;
        entry.module.clone()
    }

    /// The module from `origin`.
    pub fn from(&self, origin: &str) -> Option<Arc<Module>> {
        self.entries.get(origin)?.module.clone()
    }

    /// Whether a module from `origin` is there.
    pub fn holds(&self, origin: &str) -> bool {
        self.entries
            .get(origin)
            .is_some_and(|entry| entry.module.is_some())
    }

    /// Takes away what came from `folder` and is not there any more; the names of those modules.
    pub fn retain_origins(&mut self, folder: &Path, found: &[String]) -> Vec<String> {
        let mut removed = Vec::new();
        self.entries.retain(|origin, entry| {
            let stays = !Path::new(origin).starts_with(folder) || found.contains(origin);
            if !stays && let Some(module) = &entry.module {
                removed.push(module.name.clone());
            }
            stays
        });
        removed
    }

    /// Takes away whatever else has that name than what is at `origin`, and what was fetched for it before.
    pub fn make_room(&mut self, name: &str, origin: &str) {
        self.entries.retain(|other, entry| {
            let is_named = entry.module.as_ref().is_some_and(|own| own.name == name);
            other == origin || !(is_named || entry.asked_as.as_deref() == Some(name))
        });
    }

    /// Notes that the operator asked for what is at `origin` as `name`.
    pub fn asked(&mut self, origin: &str, name: &str) {
        if let Some(entry) = self.entries.get_mut(origin) {
            entry.asked_as = Some(name.to_owned());
        }
    }

    /// Takes away what was fetched under other names than these; the names of those modules.
    pub fn retain_asked(&mut self, names: &[&str]) -> Vec<String> {
        let mut removed = Vec::new();
        self.entries.retain(|_, entry| {
            let asked_as = entry.asked_as.as_deref();
            let stays = asked_as.is_none_or(|name| names.contains(&name));
            if !stays && let Some(module) = &entry.module {
                removed.push(module.name.clone());
            }
            stays
        });
        removed
    }

    /// Takes a module away that cannot be given what it is to have.
    pub fn refuse(&mut self, module: &Arc<Module>, error: LoadError) {
        let is_it = |entry: &ModuleEntry| {
            entry
                .module
                .as_ref()
                .is_some_and(|own| Arc::ptr_eq(own, module))
        };
        let Some(entry) = self
            .entries
            .get_mut(module.origin.raw())
            .filter(|entry| is_it(entry))
        else {
            return;
        };
        entry.stamp = None;
        entry.module = None;
        entry.failure = Some(Arc::new(FailedModule {
            name: module.slot.as_str().into(),
            origin: module.origin.clone(),
            error,
        }));
    }

    /// Forgets in what form those files were seen whose module is `stale`, or which are none.
    pub fn look_again(&mut self, stale: impl Fn(&Module) -> bool) {
        for entry in self.entries.values_mut() {
            if entry.failure.is_some() || entry.module.as_ref().is_some_and(|module| stale(module))
            {
                entry.stamp = None;
            }
        }
    }

    /// Notes why what is at `origin` in the form of `stamp` is no module. What was loaded from there before stays.
    pub fn fail(
        &mut self,
        slot: &str,
        origin: &str,
        stamp: Option<CandidateStamp>,
        error: LoadError,
    ) {
        let entry = self.entries.entry(origin.to_owned()).or_default();
        // Who has its name may be gone the next time.
        entry.stamp = stamp.filter(|_| !matches!(error, LoadError::Duplicate { .. }));
        entry.failure = Some(Arc::new(FailedModule {
            name: slot.into(),
            origin: origin.into(),
            error,
        }));
    }

    /// Adds or replaces the module of `origin`. If modules of other origins have its name, it has to be better
    /// founded than each of them, and takes their place; else they keep it. Two versions of a name exist side by
    /// side.
    pub fn insert(
        &mut self,
        origin: &str,
        entry: ModuleEntry,
        is_less_than_it: impl Fn(&Module) -> bool,
    ) -> Result<(), LoadError> {
        let Some(module) = &entry.module else {
            return Ok(());
        };
        let duplicate = |holder: &str| LoadError::Duplicate {
            name: module.name.clone(),
            holder: text::line(holder),
        };
        let others = self.entries.iter().filter(|(other, _)| *other != origin);
        let holders: Vec<_> = others
            .filter_map(|(_, entry)| entry.module.clone())
            .filter(|holder| clash(holder, module))
            .collect();
        if let Some(holder) = holders.iter().find(|holder| !is_less_than_it(holder)) {
            return Err(duplicate(holder.origin.raw()));
        }
        for holder in holders {
            self.refuse(&holder, duplicate(origin));
        }
        self.entries.insert(origin.to_owned(), entry);
        Ok(())
    }

    pub fn modules(&self) -> Vec<Arc<Module>> {
        let mut modules: Vec<_> = self
            .entries
            .values()
            .filter_map(|entry| entry.module.clone())
            .collect();
        modules.sort_by(|a, b| (&a.name, &b.version).cmp(&(&b.name, &a.version)));
        modules
    }

    pub fn failures(&self) -> Vec<Arc<FailedModule>> {
        self.entries
            .values()
            .filter_map(|entry| entry.failure.clone())
            .collect()
    }

    /// The newest module that `name` or `name@version` means and that may run, or else the newest.
    pub fn resolve(&self, name: &str) -> Option<Arc<Module>> {
        let (name, wanted) = match name.split_once('@') {
            Some((name, version)) => (name, Some(requirement(version)?)),
            None => (name, None),
        };
        let mut fitting = self.names.get(name)?.iter().filter(|module| {
            wanted.as_ref().is_none_or(|wanted| {
                let version = module.version.as_ref();
                version.is_some_and(|version| wanted.matches(version))
            })
        });
        // The newest comes first.
        let first = fitting.next()?;
        if first.may_run() {
            return Some(first.clone());
        }
        Some(
            fitting
                .find(|module| module.may_run())
                .unwrap_or(first)
                .clone(),
        )
    }

    /// The module of a tool's full name, and the tool's name in it.
    pub fn find<'a>(&self, tool: &'a str) -> Option<(Arc<Module>, &'a str)> {
        let (module, tool) = tool.rsplit_once('.')?;
        Some((self.resolve(module)?, tool))
    }

    /// Returns the component of this digest among those that a tool's name may mean, and the tool's name in it. A newer version,
    /// or one that took its place, is another component.
    pub fn find_exact<'a>(&self, tool: &'a str, digest: &str) -> Option<(Arc<Module>, &'a str)> {
        let (module, tool) = tool.rsplit_once('.')?;
        let name = module.split_once('@').map_or(module, |(name, _)| name);
        let mut versions = self.names.get(name)?.iter();
        let module = versions.find(|module| module.digest.to_string() == digest)?;
        Some((module.clone(), tool))
    }

    /// Returns the modules whose tools may be called: of several versions the newest that may run.
    pub fn offering(&self) -> Vec<Arc<Module>> {
        let mut offering: Vec<Arc<Module>> = Vec::new();
        for module in &self.listed {
            let is_older = offering.last().is_some_and(|last| last.name == module.name);
            if !is_older && module.may_run() {
                offering.push(module.clone());
            }
        }
        offering
    }

    pub fn tools(&self) -> Vec<ToolSpec> {
        let offering = self.offering();
        let tools = offering.iter().flat_map(|module| &module.tools);
        tools.cloned().collect()
    }
}

/// Two modules cannot stand side by side if one of them has no version, or both have the same.
fn clash(a: &Module, b: &Module) -> bool {
    a.name == b.name
        && match (&a.version, &b.version) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        }
}

/// `1`, `1.2` or `1.2.3`: as exact as it is written.
fn requirement(written: &str) -> Option<VersionReq> {
    // In semver's notation `=1.2` is every 1.2.x.
    VersionReq::parse(&format!("={written}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use semver::Version;

    #[test]
    fn a_version_is_as_exact_as_it_is_written() {
        let fits = |wanted: &str, version: &str| {
            requirement(wanted)
                .unwrap()
                .matches(&Version::parse(version).unwrap())
        };
        assert!(fits("1", "1.9.3") && !fits("1", "2.0.0"));
        assert!(fits("1.2", "1.2.7") && !fits("1.2", "1.3.0"));
        assert!(fits("1.2.3", "1.2.3") && !fits("1.2.3", "1.2.4"));
        assert!(requirement("latest").is_none());
    }
}
