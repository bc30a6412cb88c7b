//! What lies in a modules folder: names, files, and whether they changed.

use crate::docs::{files, wit};
use crate::error::LoadError;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::io::Errno;
use semver::Version;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toolhold_files::{FileStamp, ReadError, read_in};
use toolhold_policy::manifest::Manifest;
use toolhold_policy::text::{self, UntrustedText};

/// Something in the folder that may be a module.
pub(crate) struct ModuleCandidate {
    /// The file's or folder's name without its ending: `name` or `name@version`.
    pub slot: String,
    pub origin: String,
    /// The folder that it was found in, which all candidates share: a folder may have more of them than a process may
    /// open files.
    root: Arc<Dir>,
    /// Its own folder in `root`, which is opened when it is read; absent: its files are in `root` itself.
    own: Option<String>,
    /// The component's file in the folder that its files are read from; for a folder of its own, unless the manifest
    /// says otherwise.
    file: PathBuf,
    has_manifest: bool,
    /// Whether that folder is the module's own.
    owns_folder: bool,
}

/// What a module is made from, read at one moment.
pub(crate) struct ModuleFiles {
    pub name: String,
    pub version: Option<Version>,
    pub manifest: Manifest,
    pub component: Vec<u8>,
    /// The `.wit` files beside the component, and what was wrong with them.
    pub wit: (Vec<wit::WitPackage>, Vec<String>),
}

impl ModuleFiles {
    /// A component that nothing lies beside.
    pub fn alone(name: &str, version: Option<Version>, component: Vec<u8>) -> Self {
        Self {
            name: name.to_owned(),
            version,
            manifest: Manifest::default(),
            component,
            wit: Default::default(),
        }
    }
}

/// Sizes, times and identities of a candidate's files: unequal when one of them changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CandidateStamp(blake3::Hash);

/// Every candidate in `folder`, in the order of their paths.
pub(crate) fn find(folder: &Path) -> io::Result<Vec<ModuleCandidate>> {
    let at =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
    let root = Arc::new(Dir::open_ambient_dir(folder, ambient_authority()).map_err(at)?);
    let mut found = Vec::new();
    for entry in root.entries().map_err(at)? {
        let entry = entry.map_err(at)?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else {
            let path = folder.join(&name);
            tracing::warn!(path = ?path, "it is skipped: a module's name is UTF-8; rename it");
            continue;
        };
        let origin = folder.join(name).display().to_string();
        // A symbolic link to a folder inside the modules folder is followed; one that leads out is
        // refused by `open_dir`, and then reported when the file is read.
        let sub = root.open_dir(name);
        if let Err(error) = &sub
            && is_exhausted(error)
        {
            // Without this look, what is there would seem to be none.
            return Err(at(io::Error::new(error.kind(), error.to_string())));
        }
        if let Ok(sub) = sub {
            let has_manifest = sub.exists("module.toml");
            let file = PathBuf::from(format!("{name}.wasm"));
            if has_manifest || sub.exists(&file) {
                found.push(ModuleCandidate {
                    slot: name.to_owned(),
                    origin,
                    root: root.clone(),
                    own: Some(name.to_owned()),
                    file,
                    has_manifest,
                    owns_folder: true,
                });
            }
        } else if let Some((stem, "wasm" | "cwasm")) = name.rsplit_once('.') {
            found.push(ModuleCandidate {
                slot: stem.to_owned(),
                origin,
                root: root.clone(),
                own: None,
                file: name.into(),
                has_manifest: false,
                owns_folder: false,
            });
        }
    }
    found.sort_by(|a, b| a.origin.cmp(&b.origin));
    Ok(found)
}

/// The component at `file` below `root`, as what it would be in a modules folder: part of the module
/// whose folder it lies in, if that module is made from it, and else a module of its own.
pub(crate) fn at(root: &Path, file: &Path) -> Result<ModuleCandidate, LoadError> {
    let failed = |source| LoadError::Read { source };
    let name = file.file_name().and_then(|name| name.to_str());
    let Some((name, stem)) = name.and_then(|name| Some((name, name.strip_suffix(".wasm")?))) else {
        return Err(failed(io::Error::other("a component's file ends in .wasm")));
    };
    let mut folder = Dir::open_ambient_dir(root, ambient_authority()).map_err(failed)?;
    let parent = file.parent().filter(|parent| parent.file_name().is_some());
    if let Some(parent) = file.parent().filter(|parent| *parent != Path::new("")) {
        folder = folder.open_dir(parent).map_err(failed)?;
    }
    if let Some(parent) = parent
        && let Some(own) = parent.file_name().and_then(|own| own.to_str())
    {
        let owner = ModuleCandidate {
            slot: own.to_owned(),
            origin: root.join(parent).display().to_string(),
            file: PathBuf::from(format!("{own}.wasm")),
            has_manifest: folder.exists("module.toml"),
            owns_folder: true,
            root: Arc::new(folder.try_clone().map_err(failed)?),
            own: None,
        };
        let manifest = owner.read_manifest(&folder)?;
        // A folder that cannot be a module is only the way to one.
        if let Ok((module, _)) = owner.identity(&manifest)
            && owner.component(&manifest, &module) == Path::new(name)
        {
            return Ok(owner);
        }
    }
    Ok(ModuleCandidate {
        slot: stem.to_owned(),
        origin: root.join(file).display().to_string(),
        root: Arc::new(folder),
        own: None,
        file: name.into(),
        has_manifest: false,
        owns_folder: false,
    })
}

impl ModuleCandidate {
    /// The module's name as far as it is known before its files are read.
    pub fn presumed_name(&self) -> &str {
        self.slot.split('@').next().unwrap_or_default()
    }

    /// The folder its files are read from. Reading goes through it, so that no symbolic link or
    /// `component = "../…"` leads out.
    fn folder(&self) -> io::Result<Dir> {
        match &self.own {
            Some(own) => self.root.open_dir(own),
            None => self.root.try_clone(),
        }
    }

    /// The name that it claims, if its manifest can be read, and the size of its component.
    pub fn claim(&self) -> (Option<String>, u64) {
        let Ok(folder) = self.folder() else {
            return (None, 0);
        };
        let manifest = self.read_manifest(&folder).ok();
        let name = manifest.as_ref().and_then(|manifest| {
            let (name, _) = self.identity(manifest).ok()?;
            Some((self.component(manifest, &name), name))
        });
        let file = name.as_ref().map_or(&self.file, |(file, _)| file);
        let bytes = folder.metadata(file).map_or(0, |file| file.len());
        (name.map(|(_, name)| name), bytes)
    }

    /// Reads everything. A candidate that is written to meanwhile is refused: half of it is old.
    /// `most` says of the module of that name, with that manifest, how many bytes its component may
    /// have.
    pub fn read(
        &self,
        most: impl FnOnce(&str, &Manifest) -> u64,
    ) -> Result<(ModuleFiles, CandidateStamp), LoadError> {
        let folder = self.folder().map_err(|source| LoadError::Read { source })?;
        let before = self.stamp_in(&folder);
        let files = self.read_files(&folder, most)?;
        if self.stamp_in(&folder) != before {
            return Err(LoadError::Changing);
        }
        Ok((files, before))
    }

    pub fn stamp(&self) -> CandidateStamp {
        match self.folder() {
            Ok(folder) => self.stamp_in(&folder),
            // That of a folder without files.
            Err(_) => CandidateStamp(blake3::Hasher::new().finalize()),
        }
    }

    fn stamp_in(&self, folder: &Dir) -> CandidateStamp {
        let mut hasher = blake3::Hasher::new();
        if self.owns_folder {
            stamp_folder(folder, &mut hasher);
            if let Ok(wit) = folder.open_dir("wit") {
                stamp_folder(&wit, &mut hasher);
            }
        } else {
            stamp_file(folder, &self.file, &mut hasher);
            stamp_file(folder, &self.file.with_extension("wit"), &mut hasher);
        }
        CandidateStamp(hasher.finalize())
    }

    fn read_files(
        &self,
        folder: &Dir,
        most: impl FnOnce(&str, &Manifest) -> u64,
    ) -> Result<ModuleFiles, LoadError> {
        let manifest = self.read_manifest(folder)?;
        let (name, version) = self.identity(&manifest)?;
        let file = self.component(&manifest, &name);
        match read_capped(folder, &file, most(&name, &manifest)) {
            Err(LoadError::Read { source }) if source.kind() == io::ErrorKind::NotFound => {
                let language = manifest.build.map(|build| build.language);
                Err(LoadError::Missing {
                    file: file.display().to_string(),
                    language,
                })
            }
            Err(error) => Err(error),
            Ok(component) => {
                let stem = (!self.owns_folder).then_some(self.slot.as_str());
                Ok(ModuleFiles {
                    name,
                    version,
                    manifest,
                    component,
                    wit: files::beside(folder, stem),
                })
            }
        }
    }

    /// The component's file, for a module of that name and manifest.
    fn component(&self, manifest: &Manifest, name: &str) -> PathBuf {
        match &manifest.component {
            Some(component) => PathBuf::from(component),
            None if self.has_manifest && manifest.name.is_some() => {
                PathBuf::from(format!("{name}.wasm"))
            }
            None => self.file.clone(),
        }
    }

    fn read_manifest(&self, folder: &Dir) -> Result<Manifest, LoadError> {
        if !self.has_manifest {
            return Ok(Manifest::default());
        }
        let wrong = |reason| LoadError::Manifest { reason };
        let file = Path::new("module.toml");
        let bytes =
            read_capped(folder, file, Manifest::MAX_BYTES).map_err(|error| match error {
                LoadError::TooLarge { size, limit } => {
                    wrong(format!("it has {size} bytes, and may have {limit}"))
                }
                error => error,
            })?;
        let text = String::from_utf8(bytes).map_err(|error| wrong(error.to_string()))?;
        Ok(Manifest::parse(&text)?)
    }

    /// Name and version, from the manifest or else from the file's name.
    fn identity(&self, manifest: &Manifest) -> Result<(String, Option<Version>), LoadError> {
        let wrong = |reason: String, is_in_manifest: bool| {
            if is_in_manifest {
                LoadError::Manifest { reason }
            } else {
                LoadError::Name { reason }
            }
        };
        if self.slot.contains(text::is_escaped) {
            // People approve a module under this name.
            return Err(LoadError::Name {
                reason: format!(
                    "\"{}\" has characters that cannot be shown; rename the file or folder",
                    text::line(&self.slot)
                ),
            });
        }
        let (stem, suffix) = match self.slot.split_once('@') {
            Some((stem, version)) => (stem, Some(version)),
            None => (self.slot.as_str(), None),
        };
        let name = manifest
            .name
            .clone()
            .unwrap_or_else(|| stem.replace('-', "_"));
        if !text::is_name(&name) {
            let reason = format!(
                "{:?} cannot name a module: use lower case letters, digits and _, starting with a letter",
                text::visible(&name, 64)
            );
            return Err(wrong(reason, manifest.name.is_some()));
        }
        let Some(written) = suffix.or(manifest.version.as_ref().map(UntrustedText::raw)) else {
            return Ok((name, None));
        };
        let version = version(written).ok_or_else(|| {
            let reason = format!(
                "{:?} is no version: write it like 1.2 or 1.2.3",
                text::visible(written, 64)
            );
            wrong(reason, suffix.is_none())
        })?;
        Ok((name, Some(version)))
    }
}

/// Whether the process, or the machine, can open no more files.
fn is_exhausted(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE))
}

/// Maximum bytes of `NAME@VERSION`: pins are kept under it.
const MAX_SLOT_BYTES: usize = 100;

/// Whether `slot` is `NAME` or `NAME@VERSION`, as a file of the modules folder may be called.
pub fn is_slot(slot: &str) -> bool {
    parts(slot).is_some()
}

/// The name and the version of `NAME` or `NAME@VERSION`.
pub(crate) fn parts(slot: &str) -> Option<(&str, Option<Version>)> {
    let (name, written) = match slot.split_once('@') {
        Some((name, written)) => (name, Some(version(written)?)),
        None => (slot, None),
    };
    (slot.len() <= MAX_SLOT_BYTES && text::is_name(name)).then_some((name, written))
}

/// `1`, `1.2` or a whole semantic version.
fn version(written: &str) -> Option<Version> {
    let padded = match written.split('.').count() {
        1 => format!("{written}.0.0"),
        2 => format!("{written}.0"),
        _ => written.to_owned(),
    };
    Version::parse(&padded).ok()
}

/// The files at the top of a module's folder that it may be made from; a folder
/// with more than a few hundred holds sources.
fn stamp_folder(folder: &Dir, hasher: &mut blake3::Hasher) {
    let Ok(entries) = folder.entries() else {
        return;
    };
    let mut names: Vec<PathBuf> = entries
        .flatten()
        .take(500)
        .map(|entry| PathBuf::from(entry.file_name()))
        .filter(|name| {
            let ending = name.extension().and_then(|ending| ending.to_str());
            ending.is_some_and(|ending| ["wasm", "toml", "wit"].contains(&ending))
        })
        .collect();
    names.sort();
    for name in names {
        stamp_file(folder, &name, hasher);
    }
}

fn stamp_file(folder: &Dir, name: &Path, hasher: &mut blake3::Hasher) {
    let Ok(metadata) = folder.metadata(name) else {
        return;
    };
    hasher.update(name.as_os_str().as_encoded_bytes());
    hasher.update(&FileStamp::of(&metadata).to_bytes());
}

fn read_capped(folder: &Dir, file: &Path, limit: u64) -> Result<Vec<u8>, LoadError> {
    read_in(folder, file, limit).map_err(|error| match error {
        ReadError::Io(source) => LoadError::Read { source },
        ReadError::TooLarge { size, most: limit } => LoadError::TooLarge { size, limit },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn names_and_versions_come_from_files() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("calc@1.2.wasm"), "x").unwrap();
        fs::write(root.path().join("calc.wasm"), "x").unwrap();
        fs::write(root.path().join("calc@soon.wasm"), "x").unwrap();
        fs::create_dir(root.path().join("calc@2.0")).unwrap();
        fs::write(root.path().join("calc@2.0/module.toml"), "name = \"calc\"").unwrap();
        fs::write(root.path().join("calc@2.0/calc.wasm"), "x").unwrap();
        let found: Vec<_> = find(root.path())
            .unwrap()
            .iter()
            .map(|candidate| {
                let read = candidate.read(|_, _| 100).map(|(files, _)| files.version);
                (
                    candidate.slot.clone(),
                    read.map_err(|error| error.to_string()),
                )
            })
            .collect();
        let slots: Vec<_> = found.iter().map(|(slot, _)| slot.as_str()).collect();
        assert_eq!(slots, ["calc", "calc@1.2", "calc@2.0", "calc@soon"]);
        assert_eq!(found[0].1, Ok(None));
        assert_eq!(found[1].1, Ok(Some(Version::new(1, 2, 0))));
        assert_eq!(found[2].1, Ok(Some(Version::new(2, 0, 0))));
        assert!(found[3].1.as_ref().unwrap_err().contains("no version"));
    }

    #[test]
    fn a_wrong_name_is_blamed_on_the_file_that_has_it() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("Calc.wasm"), "x").unwrap();
        fs::create_dir(root.path().join("named")).unwrap();
        let manifest = root.path().join("named/module.toml");
        fs::write(manifest, "name = \"Calc\"\ncomponent = \"x.wasm\"").unwrap();
        fs::write(root.path().join("named/x.wasm"), "x").unwrap();
        let errors: Vec<_> = find(root.path())
            .unwrap()
            .iter()
            .map(|candidate| {
                let read = candidate.read(|_, _| 100);
                read.map(|_| ()).unwrap_err().to_string()
            })
            .collect();
        let starts = |error: &str, text: &str| error.starts_with(text) && error.contains("Calc");
        assert!(starts(&errors[0], "its name is wrong: "), "{errors:?}");
        assert!(
            starts(&errors[1], "its module.toml is wrong: "),
            "{errors:?}"
        );
    }

    #[test]
    fn a_slot_is_a_name_and_a_version() {
        for slot in ["a", "calc_2", "calc@1", "calc@1.2", "calc@1.2.3-rc.1+b"] {
            assert!(is_slot(slot), "{slot}");
        }
        let long = format!("a@1.2.3-{}", "x".repeat(100));
        for slot in [
            "",
            "@",
            "@1.2",
            "a@",
            "A",
            "a-b",
            "a.wasm",
            ".a",
            "../a",
            "a/b",
            "a\0",
            "a@soon",
            "a@1@2",
            "a@../1",
            "a@1.2.3-/x",
            " a",
            "a ",
            &long,
        ] {
            assert!(!is_slot(slot), "{slot}");
        }
    }

    #[test]
    fn a_file_belongs_to_the_module_that_is_made_from_it() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path();
        for folder in ["plain", "told/build", "named"] {
            fs::create_dir_all(path.join(folder)).unwrap();
        }
        fs::write(path.join("told/module.toml"), "component = \"real.wasm\"").unwrap();
        fs::write(path.join("named/module.toml"), "name = \"other\"").unwrap();
        for (file, slot, origin) in [
            ("x@1.2.wasm", "x@1.2", "x@1.2.wasm"),
            ("./x.wasm", "x", "x.wasm"),
            ("plain/plain.wasm", "plain", "plain"),
            ("plain/x.wasm", "x", "plain/x.wasm"),
            ("told/real.wasm", "told", "told"),
            ("told/told.wasm", "told", "told/told.wasm"),
            ("told/build/x.wasm", "x", "told/build/x.wasm"),
            ("named/other.wasm", "named", "named"),
        ] {
            let found = at(path, Path::new(file)).unwrap();
            let origin = path.join(origin);
            assert_eq!(found.slot, slot, "{file}");
            assert_eq!(Path::new(&found.origin), origin, "{file}");
        }
        for (file, expect) in [
            ("x.txt", "ends in .wasm"),
            ("none/x.wasm", "No such file"),
            ("../x/y.wasm", "outside"),
        ] {
            let error = at(path, Path::new(file)).err().unwrap().to_string();
            assert!(error.contains(expect), "{file}: {error}");
        }
    }

    #[test]
    fn candidates_share_one_handle() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..50 {
            fs::write(root.path().join(format!("m{number}.wasm")), "x").unwrap();
            fs::create_dir(root.path().join(format!("f{number}"))).unwrap();
            fs::write(root.path().join(format!("f{number}/module.toml")), "").unwrap();
        }
        let found = find(root.path()).unwrap();
        assert_eq!(found.len(), 100);
        let shared = &found[0].root;
        assert_eq!(Arc::strong_count(shared), 100);
        assert!(found.iter().all(|it| Arc::ptr_eq(&it.root, shared)));
    }

    #[test]
    fn a_stamp_changes_with_the_files() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("m.wasm");
        fs::write(&path, "one").unwrap();
        let candidate = find(root.path()).unwrap().remove(0);
        let before = candidate.stamp();
        assert_eq!(before, candidate.stamp());
        fs::write(&path, "longer").unwrap();
        assert_ne!(before, candidate.stamp());
    }
}
