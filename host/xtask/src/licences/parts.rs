//! The entries that are kept by hand: parts that are no cargo packages, texts that packages lack, texts to leave out.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::packages::LinkedPackages;

/// `host/xtask/licences/parts.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignParts {
    #[serde(default)]
    pub part: Vec<ForeignPart>,
    #[serde(default)]
    pub without_text: Vec<WithoutText>,
    #[serde(default)]
    left_out: Vec<LeftOut>,
}

/// A third-party part of the binary or of a component.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignPart {
    pub name: String,
    pub version: String,
    /// SPDX expression where there is one.
    pub licence: String,
    /// The products and modules that contain it.
    #[serde(rename = "in")]
    pub used_in: Vec<String>,
    /// The origin, and the portion that is used.
    pub source: String,
    /// Copyright lines, for texts that have none.
    #[serde(default)]
    pub copyright: Vec<String>,
    pub texts: Vec<TextPlace>,
    /// Packages of cargo that bring it. One that is not linked any more is an error.
    #[serde(default)]
    pub crates: Vec<String>,
    /// Files of the repository that prove the version.
    #[serde(default)]
    pub pins: Vec<VersionPin>,
}

/// A place of a licence's text: `NAME.txt` in `host/xtask/licences/texts`, `crate:PACKAGE/PATH`, or `standard:SPDX-ID`,
/// which is the text that packages of this licence have.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum TextPlace {
    File(String),
    Crate { package: String, path: String },
    Standard(String),
}

impl From<String> for TextPlace {
    fn from(text: String) -> Self {
        if let Some(licence) = text.strip_prefix("standard:") {
            return Self::Standard(licence.to_owned());
        }
        let of_crate = text.strip_prefix("crate:");
        match of_crate.and_then(|rest| rest.split_once('/')) {
            Some((package, path)) => Self::Crate {
                package: package.to_owned(),
                path: path.to_owned(),
            },
            None => Self::File(text),
        }
    }
}

/// A file of the repository that holds a text as long as an entry is right.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionPin {
    file: String,
    has: String,
}

/// A package without a file that says its terms, and whose manifest does not say enough.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WithoutText {
    pub package: String,
    #[serde(default)]
    pub copyright: Vec<String>,
    pub texts: Vec<TextPlace>,
}

/// A text in a package that does not apply: to code that is not linked, or to a licence that was not chosen.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeftOut {
    package: String,
    /// The beginning of the text's path in the package.
    path: String,
    #[serde(rename = "why")]
    _why: String,
}

impl ForeignParts {
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("could not read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not as it is read", path.display()))
    }

    /// The place of the entry that leaves a text of a package out.
    pub fn left_out(&self, package: &str, path: &str) -> Option<usize> {
        let mut entries = self.left_out.iter();
        entries.position(|entry| entry.package == package && path.starts_with(&entry.path))
    }

    /// Whether each entry that leaves a text out was needed: `found` has the places of those that were.
    pub fn check_left_out(&self, found: &BTreeSet<usize>) -> Result<()> {
        let mut entries = self.left_out.iter().enumerate();
        if let Some((_, entry)) = entries.find(|(at, _)| !found.contains(at)) {
            let LeftOut { package, path, .. } = entry;
            bail!(
                "no package {package} with a text {path} is linked: take its [[left_out]] in \
                 host/xtask/licences/parts.toml away"
            );
        }
        Ok(())
    }

    /// Whether the packages that entries name are linked.
    pub fn check_linked(&self, packages: &LinkedPackages) -> Result<()> {
        let names: BTreeSet<&str> = packages.keys().map(|(name, _)| name.as_str()).collect();
        let without = self.without_text.iter().map(|entry| &entry.package);
        let of_parts = self.part.iter().flat_map(|part| &part.crates);
        let mut wanted = without.chain(of_parts);
        if let Some(name) = wanted.find(|name| !names.contains(name.as_str())) {
            bail!("no package {name} is linked: put host/xtask/licences/parts.toml right");
        }
        Ok(())
    }

    /// Whether the versions are those of the repository.
    pub fn check_pins(&self, root: &Path) -> Result<()> {
        for part in &self.part {
            for VersionPin { file, has } in &part.pins {
                let path = root.join(file);
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("could not read {}", path.display()))?;
                if !text.contains(has.as_str()) {
                    let name = &part.name;
                    bail!(
                        "{file} does not say {has:?} any more: look what {name} is now, and put the entry of \
                         host/xtask/licences/parts.toml right"
                    );
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project;

    #[test]
    fn the_entries_are_of_this_repository() {
        let path = project::xtask_folder().join("licences/parts.toml");
        let parts = ForeignParts::read(&path).unwrap();
        assert!(!parts.part.is_empty());
        parts.check_pins(&project::root()).unwrap();
    }

    #[test]
    fn an_entry_of_another_version_is_an_error_that_names_it() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("pin"), "version 2").unwrap();
        let part = "[[part]]\nname = \"x\"\nversion = \"1\"\nlicence = \"MIT\"\nin = []\nsource = \"y\"\ntexts = []\n\
            pins = [{ file = \"pin\", has = \"version 1\" }]\n";
        let parts: ForeignParts = toml::from_str(part).unwrap();
        let error = parts.check_pins(root.path()).unwrap_err().to_string();
        assert!(error.contains("pin does not say \"version 1\""), "{error}");
    }

    #[test]
    fn places_of_texts_are_told_apart() {
        let of = |text: &str| TextPlace::from(text.to_owned());
        assert_eq!(of("standard:MIT"), TextPlace::Standard("MIT".to_owned()));
        assert_eq!(of("sqlite.txt"), TextPlace::File("sqlite.txt".to_owned()));
        let TextPlace::Crate { package, path } = of("crate:x-sys/vendor/LICENSE") else {
            panic!("a crate's");
        };
        assert_eq!(
            (package.as_str(), path.as_str()),
            ("x-sys", "vendor/LICENSE")
        );
    }
}
