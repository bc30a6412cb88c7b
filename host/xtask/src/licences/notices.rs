//! The notices: a list of what is in Toolhold, and each text once, with whom it is of.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, anyhow};

use super::packages::{LinkedPackage, LinkedPackages};
use super::parts::{ForeignPart, ForeignParts, TextPlace};
use super::terms::Licence;
use super::texts::{self, LicenceFile};

#[derive(Debug, Default)]
pub struct Notices {
    list: BTreeSet<Listed>,
    /// Texts by [`Licence::key`].
    texts: BTreeMap<String, SharedText>,
    /// For each SPDX id the texts of packages that have this licence and no other, and how many have each.
    standard: BTreeMap<String, BTreeMap<String, usize>>,
}

/// A line of the list, in its order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    lower_name: String,
    name: String,
    version: String,
    licence: String,
    used_in: String,
}

#[derive(Debug)]
struct SharedText {
    first: Licence,
    of: Vec<TextOwner>,
}

/// A package or part that has the text.
#[derive(Debug)]
struct TextOwner {
    label: String,
    /// Lines below the label.
    lines: Vec<String>,
}

const HEAD: &str = "\
Third-party notices of Toolhold
===============================

Toolhold is licensed under the Apache License 2.0, which is in the file LICENSE. This file lists the third-party
software in the binary `toolhold`, in the components of its modules, and in modules that it builds. The binary
contains the modules that ship. Where a package offers a choice of licences, the texts of all of them are here, but
for the GPL.

Not contained, and fetched on request only: compilers, modules from registries, models. The icon of the page is
Toolhold's own, and its fonts are those of the reader's system. Container images contain packages of Debian, whose
terms are in the folder /usr/share/doc of the image.

`cargo xtask licences` writes this file. A line of the list has a name, a version, a licence and the places of use,
separated by tabs; no other line has a tab.

Packages
--------

";

const TEXTS: &str = "
Texts
-----

Above each text are the packages that have it, with their own copyright lines.
";

const RULE: &str =
    "--------------------------------------------------------------------------------";

impl Notices {
    /// `folder` has the texts that no package has.
    pub fn add_packages(
        &mut self,
        packages: &LinkedPackages,
        parts: &ForeignParts,
        folder: &Path,
    ) -> Result<()> {
        parts.check_linked(packages)?;
        let mut left_out = BTreeSet::new();
        let mut without = Vec::new();
        for package in packages.values() {
            let (name, version) = (&package.name, &package.version);
            self.list(name, version, &package.licence, &package.used_in);
            let mut files = texts::of_package(&package.folder)?;
            files.retain(|file| match parts.left_out(name, &file.path) {
                Some(at) => {
                    left_out.insert(at);
                    false
                }
                None => true,
            });
            if files.is_empty() {
                without.push(package);
            }
            if let [LicenceFile { licence, .. }] = files.as_slice() {
                let texts = self.standard.entry(package.licence.clone()).or_default();
                *texts.entry(licence.key()).or_default() += 1;
            }
            for file in files {
                let owners = file.licence.copyright.clone();
                self.add_text(file.licence, package.label(), owners);
            }
        }
        parts.check_left_out(&left_out)?;
        for package in without {
            self.add_without_text(package, packages, parts, folder)?;
        }
        Ok(())
    }

    pub fn add_parts(
        &mut self,
        packages: &LinkedPackages,
        parts: &ForeignParts,
        folder: &Path,
    ) -> Result<()> {
        for part in &parts.part {
            self.list(&part.name, &part.version, &part.licence, &part.used_in);
            for text in &part.texts {
                let licence = self.found(text, packages, folder)?;
                let is_standard = matches!(text, TextPlace::Standard(_));
                self.add_text(
                    licence.clone(),
                    label(part),
                    lines(part, &licence, is_standard),
                );
            }
        }
        Ok(())
    }

    /// A package whose terms are in its manifest alone: the text is that of other packages of its licence.
    fn add_without_text(
        &mut self,
        package: &LinkedPackage,
        packages: &LinkedPackages,
        parts: &ForeignParts,
        folder: &Path,
    ) -> Result<()> {
        let mut lines = vec!["No licence lies in the package.".to_owned()];
        let by_hand = parts
            .without_text
            .iter()
            .find(|known| known.package == package.name);
        if let Some(known) = by_hand {
            lines.extend(known.copyright.iter().cloned());
        } else if !package.authors.is_empty() {
            lines.push(format!("Authors: {}", package.authors.join(", ")));
        }
        if !package.repository.is_empty() {
            lines.push(package.repository.clone());
        }
        let sources = match by_hand {
            Some(known) => known.texts.clone(),
            None => vec![self.chosen(package).ok_or_else(|| {
                anyhow!(
                    "{} has no file with its licence, and no other package has the text of {:?} alone: name one \
                     in a [[without_text]] of host/xtask/licences/parts.toml",
                    package.label(),
                    package.licence
                )
            })?],
        };
        for source in sources {
            let licence = self.found(&source, packages, folder)?;
            self.add_text(licence, package.label(), lines.clone());
        }
        Ok(())
    }

    /// The first of a package's licences whose text other packages have.
    fn chosen(&self, package: &LinkedPackage) -> Option<TextPlace> {
        let expression = package.licence.replace(" OR ", "/");
        let mut choices = expression.split('/').map(str::trim);
        let chosen = choices.find(|choice| self.standard.contains_key(*choice))?;
        Some(TextPlace::Standard(chosen.to_owned()))
    }

    /// The text at a place: in the notices already, in a package, or in `folder`.
    fn found(
        &self,
        source: &TextPlace,
        packages: &LinkedPackages,
        folder: &Path,
    ) -> Result<Licence> {
        match source {
            TextPlace::Standard(name) => {
                let texts = self.standard.get(name);
                let most = texts.and_then(|texts| {
                    let of_most = texts
                        .iter()
                        .max_by_key(|(key, count)| (**count, Reverse(*key)));
                    self.texts.get(of_most?.0)
                });
                most.map(|text| text.first.clone())
                    .with_context(|| format!("no package has the text of {name} alone"))
            }
            TextPlace::Crate { package, path } => {
                let mut of_name = packages.values().filter(|one| one.name == *package);
                let package = of_name
                    .next()
                    .with_context(|| format!("no {package} is linked"))?;
                texts::read(&package.folder.join(path))
            }
            TextPlace::File(name) => texts::read(&folder.join(name)),
        }
    }

    fn list<T: AsRef<str>>(
        &mut self,
        name: &str,
        version: &str,
        licence: &str,
        used_in: impl IntoIterator<Item = T>,
    ) {
        let used_in: Vec<_> = used_in
            .into_iter()
            .map(|one| one.as_ref().to_owned())
            .collect();
        self.list.insert(Listed {
            lower_name: name.to_lowercase(),
            name: name.to_owned(),
            version: version.to_owned(),
            licence: licence.to_owned(),
            used_in: used_in.join(", "),
        });
    }

    fn add_text(&mut self, licence: Licence, label: String, lines: Vec<String>) {
        let text = self
            .texts
            .entry(licence.key())
            .or_insert_with(|| SharedText {
                first: licence,
                of: Vec::new(),
            });
        // Two files of a package, or the two texts of a licence, may be the same.
        match text.of.iter_mut().find(|holder| holder.label == label) {
            Some(holder) => {
                let new: Vec<_> = lines
                    .into_iter()
                    .filter(|line| !holder.lines.contains(line))
                    .collect();
                holder.lines.extend(new);
            }
            None => text.of.push(TextOwner { label, lines }),
        }
    }

    /// All of it.
    pub fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        for Listed {
            name,
            version,
            licence,
            used_in,
            ..
        } in &self.list
        {
            let _ = writeln!(text, "{name}\t{version}\t{licence}\t{used_in}");
        }
        text.push_str(TEXTS);
        let mut shared: Vec<&SharedText> = self.texts.values().collect();
        // What most packages have stands first.
        shared.sort_by_key(|shared| {
            let labels = shared.of.iter().map(|holder| holder.label.to_lowercase());
            (Reverse(shared.of.len()), labels.min())
        });
        for shared in shared {
            let _ = writeln!(text, "\n{RULE}\n");
            let is_one = shared.of.len() == 1;
            let mut of: Vec<&TextOwner> = shared.of.iter().collect();
            of.sort_by_key(|holder| holder.label.to_lowercase());
            for TextOwner { label, lines } in of {
                let _ = writeln!(text, "{label}");
                let said = |line: &&String| is_one && shared.first.copyright.contains(line);
                for line in lines.iter().filter(|line| !said(line)) {
                    let _ = writeln!(text, "    {line}");
                }
            }
            // Of one alone it is as it was found.
            let body = if is_one {
                &shared.first.whole
            } else {
                &shared.first.terms
            };
            let _ = writeln!(text, "\n{body}");
        }
        text
    }
}

/// `SQLite 3.54.1`.
fn label(part: &ForeignPart) -> String {
    format!("{} {}", part.name, part.version).trim().to_owned()
}

/// The lines below a part's name: its source and its owners.
fn lines(part: &ForeignPart, licence: &Licence, is_standard: bool) -> Vec<String> {
    let mut lines = vec![part.source.clone()];
    lines.extend(part.copyright.iter().cloned());
    // Those of a standard text are others.
    if !is_standard {
        lines.extend(licence.copyright.iter().cloned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn package(root: &Path, name: &str, licence: &str, texts: &[(&str, &str)]) -> LinkedPackage {
        let folder: PathBuf = root.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        for (path, text) in texts {
            std::fs::write(folder.join(path), text).unwrap();
        }
        LinkedPackage {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            licence: licence.to_owned(),
            authors: vec!["Cy <cy@example.com>".to_owned()],
            repository: String::new(),
            folder,
            used_in: BTreeSet::from(["toolhold"]),
        }
    }

    fn packages(all: impl IntoIterator<Item = LinkedPackage>) -> LinkedPackages {
        let keyed = all
            .into_iter()
            .map(|one| ((one.name.clone(), one.version.clone()), one));
        keyed.collect()
    }

    const TERMS: &str = "Permission is hereby granted, free of charge, to any person.";

    #[test]
    fn a_text_stands_once_below_those_that_it_is_of() {
        let root = tempfile::tempdir().unwrap();
        let ada = format!("Copyright (c) 2020 Ada\n\n{TERMS}");
        let bo = format!("Copyright (c) 2021 Bo\n{}", TERMS.replace(", ", ",\n"));
        let all = packages([
            package(root.path(), "ada", "MIT", &[("LICENSE", &ada)]),
            package(root.path(), "bo", "MIT", &[("LICENSE-MIT", &bo)]),
            package(root.path(), "cy", "GPL-9/MIT", &[]),
        ]);
        let mut notices = Notices::default();
        notices
            .add_packages(&all, &ForeignParts::default(), root.path())
            .unwrap();
        let text = notices.text();
        assert!(
            text.contains("\nada\t1.0.0\tMIT\ttoolhold\nbo\t1.0.0\t"),
            "{text}"
        );
        let below = "\nada 1.0.0\n    Copyright (c) 2020 Ada\nbo 1.0.0\n    Copyright (c) 2021 Bo\ncy 1.0.0\n    No \
            licence lies in the package.\n    Authors: Cy <cy@example.com>\n\nPermission";
        assert!(text.contains(below), "{text}");
        assert_eq!(text.matches("free of charge").count(), 1, "{text}");
    }

    #[test]
    fn a_package_without_any_text_is_an_error_that_names_it() {
        let root = tempfile::tempdir().unwrap();
        let all = packages([package(root.path(), "cy", "GPL-9", &[])]);
        let refused = Notices::default().add_packages(&all, &ForeignParts::default(), root.path());
        let error = refused.unwrap_err().to_string();
        assert!(
            error.contains("cy 1.0.0") && error.contains("\"GPL-9\""),
            "{error}"
        );
    }

    #[test]
    fn what_is_left_out_or_known_by_hand_must_be_linked() {
        let root = tempfile::tempdir().unwrap();
        let all = packages([package(root.path(), "ada", "MIT", &[("LICENSE", TERMS)])]);
        for by_hand in [
            "[[left_out]]\npackage = \"ada\"\npath = \"vendor/\"\nwhy = \"x\"\n",
            "[[without_text]]\npackage = \"ada_sys\"\ntexts = [\"standard:MIT\"]\n",
        ] {
            let parts: ForeignParts = toml::from_str(by_hand).unwrap();
            let refused = Notices::default().add_packages(&all, &parts, root.path());
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("is linked"), "{error}");
        }
    }
}
