//! The sources of a modules folder, as `modules watch` looks at them.

use crate::commands::loaded;
use crate::terminal::output;
use crate::terminal::style::{bad, line, warn};
use anyhow::{Result, bail};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use toolhold_admission::own_work;
use toolhold_devkit::build::SourceStamp;
use toolhold_runtime::config::Configuration;
use toolhold_sandbox::Registry;

/// Builds of a module in a row that the one before caused, because it changed the source.
const MAX_BUILDS_IN_A_ROW: u32 = 2;
/// Builds of a module in a row that a change of its source stops. The next one runs to its end: it may be builds that
/// change the source.
const MAX_STOPPED_IN_A_ROW: u32 = 4;

/// Modules that have a source, each with the state in which it was last seen.
pub struct Sources {
    modules: PathBuf,
    /// Folders of the modules to build. Empty: all of the folder are looked at and none is built, because a folder that
    /// appears in it would have its toolchain run unasked.
    named: Vec<PathBuf>,
    seen: HashMap<PathBuf, Seen>,
    /// Folders whose change was told, because nothing builds them.
    told: HashSet<PathBuf>,
    /// How many builds in a row changed the source themselves.
    in_a_row: HashMap<PathBuf, u32>,
    /// How many builds in a row were stopped, because the source changed.
    stopped_in_a_row: HashMap<PathBuf, u32>,
    /// Files of the sources that builds were seen to write.
    made: HashSet<PathBuf>,
    /// Why the modules folder could not be listed last.
    unlisted: Option<String>,
}

/// A source, or why it cannot be watched.
type Seen = Result<SourceStamp, String>;

impl Sources {
    /// What is there is taken for built. Of the modules that were named, those whose component is missing or older
    /// than their source have changed.
    ///
    /// # Errors
    /// A name is of no module of the folder, or of one without a source.
    pub async fn begin(
        config: &Configuration,
        registry: &Registry,
        names: &[String],
    ) -> Result<Self> {
        let mut named = Vec::new();
        for name in names {
            named.push(located(config, registry, name)?);
        }
        let mut sources = Self {
            modules: config.modules_folder().to_owned(),
            named,
            seen: HashMap::new(),
            told: HashSet::new(),
            in_a_row: HashMap::new(),
            stopped_in_a_row: HashMap::new(),
            made: HashSet::new(),
            unlisted: None,
        };
        let found = sources.now().await?;
        let has_source = |named: &PathBuf| found.iter().any(|(folder, _)| folder == named);
        if let Some(folder) = sources.named.iter().find(|named| !has_source(named)) {
            bail!(
                "{} has no source that can be built: its module.toml needs\n[build]\nlanguage = \"rust\"  # or c, go, \
                 python, javascript, typescript\n`modules watch` without a name loads components that change",
                folder.display()
            );
        }
        for (folder, now) in found {
            let is_due = !sources.named.is_empty()
                && now.as_ref().is_ok_and(SourceStamp::is_newer_than_component);
            if let Err(reason) = &now {
                tell_unwatched(reason);
            }
            if !is_due {
                sources.seen.insert(folder, now);
            }
        }
        Ok(sources)
    }

    /// The named modules as loading knows them, by their folders. None: all.
    pub fn names(&self) -> Option<Vec<String>> {
        let names = self.named.iter().filter_map(|folder| {
            let name = folder.file_name()?.to_string_lossy();
            Some(name.split('@').next()?.replace('-', "_"))
        });
        (!self.named.is_empty()).then(|| names.collect())
    }

    /// The folders to build: those whose source changed since this was asked.
    pub async fn changed(&mut self) -> Result<Vec<PathBuf>> {
        let mut changed = Vec::new();
        for (folder, now) in self.now().await? {
            let before = self.seen.get(&folder);
            if before == Some(&now) {
                continue;
            }
            match &now {
                Err(reason) => tell_unwatched(reason),
                Ok(_) if !self.named.is_empty() => changed.push(folder.clone()),
                // A folder that is new did not change.
                Ok(_) if before.is_none() => {}
                Ok(_) => {
                    if self.told.insert(folder.clone()) {
                        let name = folder.file_name().unwrap_or_default().to_string_lossy();
                        output::remark(&line(&format!(
                            "{name}: its source changed; `toolhold modules watch {name}` builds it"
                        )));
                    }
                }
            }
            self.seen.insert(folder, now);
        }
        changed.sort();
        Ok(changed)
    }

    /// Whether the source of a module that is being built changed since its build began, which is then of no use. The new
    /// state is the one that the next build begins with.
    pub async fn edited(&mut self, folder: &Path) -> Result<bool> {
        let now = stamps(vec![folder.to_owned()]).await?.pop();
        let (Some(Ok(before)), Some((_, Ok(now)))) = (self.seen.get(folder), now) else {
            return Ok(false);
        };
        let mut changes = now.changes_since(before).into_iter();
        if changes.all(|path| self.made.contains(path)) {
            return Ok(false);
        }
        let stopped = self.stopped_in_a_row.entry(folder.to_owned()).or_default();
        if *stopped == MAX_STOPPED_IN_A_ROW {
            return Ok(false);
        }
        *stopped += 1;
        self.seen.insert(folder.to_owned(), Ok(now));
        Ok(true)
    }

    /// After a build: its own writes are no change of the author's, or it would be built for ever.
    pub async fn built(&mut self, folder: &Path) -> Result<()> {
        self.stopped_in_a_row.remove(folder);
        let now = stamps(vec![folder.to_owned()]).await?.pop();
        let (Some(Ok(before)), Some((_, Ok(now)))) = (self.seen.get(folder), now) else {
            return Ok(());
        };
        let changes = now.changes_since(before);
        if let Some(first) = changes.first() {
            let builds = self.in_a_row.entry(folder.to_owned()).or_default();
            *builds += 1;
            if *builds < MAX_BUILDS_IN_A_ROW {
                return Ok(());
            }
            let text = format!(
                "{} changed during {MAX_BUILDS_IN_A_ROW} builds in a row, and is not built again for that; a build should \
                 write its files into a folder that begins with a dot",
                first.display()
            );
            output::say(&format!("{} {}", warn("note:"), line(&text)));
            let made = changes.into_iter().map(Path::to_owned);
            self.made.extend(made);
        }
        self.in_a_row.remove(folder);
        self.seen.insert(folder.to_owned(), Ok(now));
        Ok(())
    }

    /// The state of each source. Of a folder that cannot be listed, what was seen last stays.
    async fn now(&mut self) -> Result<Vec<(PathBuf, Seen)>> {
        if !self.named.is_empty() {
            return stamps(self.named.clone()).await;
        }
        let modules = self.modules.clone();
        let listed = own_work(move || -> io::Result<Vec<PathBuf>> {
            match fs::read_dir(modules) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
                entries => entries?.map(|entry| Ok(entry?.path())).collect(),
            }
        });
        match listed.await? {
            Ok(folders) => {
                self.unlisted = None;
                stamps(folders).await
            }
            Err(error) => {
                let reason = format!("{}: {error}", self.modules.display());
                if self.unlisted.as_ref() != Some(&reason) {
                    tell_unwatched(&reason);
                }
                self.unlisted = Some(reason);
                Ok(Vec::new())
            }
        }
    }
}

/// The state of those folders that have a source.
async fn stamps(folders: Vec<PathBuf>) -> Result<Vec<(PathBuf, Seen)>> {
    let stamped = own_work(move || {
        let stamps = folders.into_iter().filter_map(|folder| {
            let stamp = SourceStamp::of(&folder).map_err(|error| error.to_string());
            Some((folder, stamp.transpose()?))
        });
        stamps.collect()
    });
    Ok(stamped.await?)
}

fn tell_unwatched(reason: &str) {
    output::say(&format!("{} {}", bad("not watched:"), line(reason)));
}

/// The folder of the modules folder that `name` says, as a name or as a path.
fn located(config: &Configuration, registry: &Registry, name: &str) -> Result<PathBuf> {
    let modules = config.modules_folder();
    let mut said = [modules.join(name), PathBuf::from(name)].into_iter();
    let Some(folder) = said.find(|folder| folder.is_dir()) else {
        if modules.join(format!("{name}.wasm")).is_file() {
            bail!(
                "{name:?} is a component without a source, so there is nothing to build; `toolhold modules watch` \
                 without a name loads it when it changes"
            );
        }
        let meant = loaded::similar(config, registry, name).filter(|meant| meant != name);
        let hint = meant.map_or_else(String::new, |meant| format!(" did you mean {meant:?}?"));
        bail!(
            "there is no module {name:?} in {};{hint} --modules names another folder",
            modules.display()
        );
    };
    let place = (fs::canonicalize(&folder)?, fs::canonicalize(modules)?);
    match (place.0.parent(), place.0.file_name()) {
        (Some(parent), Some(entry)) if parent == place.1 => Ok(modules.join(entry)),
        _ => bail!(
            "{} is not a module of the folder {}; --modules names another folder",
            folder.display(),
            modules.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(modules: &Path, named: &[PathBuf]) -> Sources {
        Sources {
            modules: modules.to_owned(),
            named: named.to_vec(),
            seen: HashMap::new(),
            told: HashSet::new(),
            in_a_row: HashMap::new(),
            stopped_in_a_row: HashMap::new(),
            made: HashSet::new(),
            unlisted: None,
        }
    }

    fn module(modules: &Path, name: &str) -> PathBuf {
        let folder = modules.join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("module.toml"), "[build]\nlanguage = \"c\"\n").unwrap();
        fs::write(folder.join("module.c"), "1").unwrap();
        folder
    }

    #[tokio::test]
    async fn only_named_modules_are_built() {
        let modules = tempfile::tempdir().unwrap();
        let words = module(modules.path(), "words");
        let mut sources = sources(modules.path(), &[]);
        assert!(sources.changed().await.unwrap().is_empty());
        let appeared = module(modules.path(), "appeared");
        assert!(sources.changed().await.unwrap().is_empty());
        assert!(sources.told.is_empty(), "a new folder did not change");
        for folder in [&words, &appeared] {
            fs::write(folder.join("module.c"), "22").unwrap();
            assert!(sources.changed().await.unwrap().is_empty());
            assert!(sources.told.contains(folder));
        }
    }

    #[tokio::test]
    async fn a_fault_that_appears_is_seen_and_so_is_its_end() {
        let modules = tempfile::tempdir().unwrap();
        let words = module(modules.path(), "words");
        let mut sources = sources(modules.path(), std::slice::from_ref(&words));
        assert_eq!(
            sources.changed().await.unwrap(),
            std::slice::from_ref(&words)
        );
        let manifest = words.join("module.toml");
        fs::write(&manifest, "[build]\nlanguage = \"cobol\"\n").unwrap();
        assert!(sources.changed().await.unwrap().is_empty());
        let seen = sources.seen.get(&words).unwrap().as_ref().unwrap_err();
        assert!(seen.contains("cobol"), "{seen}");
        fs::write(&manifest, "[build]\nlanguage = \"c\"  # again\n").unwrap();
        assert_eq!(
            sources.changed().await.unwrap(),
            std::slice::from_ref(&words)
        );
        // As version control does it for a moment.
        let aside = modules.path().join("aside");
        fs::rename(&words, &aside).unwrap();
        assert!(sources.changed().await.unwrap().is_empty());
        fs::rename(&aside, &words).unwrap();
        assert!(sources.changed().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_build_that_changes_its_source_is_not_repeated_for_ever() {
        let modules = tempfile::tempdir().unwrap();
        let words = module(modules.path(), "words");
        let mut sources = sources(modules.path(), std::slice::from_ref(&words));
        for build in 1..=MAX_BUILDS_IN_A_ROW {
            assert_eq!(
                sources.changed().await.unwrap(),
                std::slice::from_ref(&words),
                "{build}"
            );
            let text = "x".repeat(build as usize);
            fs::write(words.join("generated.h"), text).unwrap();
            sources.built(&words).await.unwrap();
        }
        assert!(sources.changed().await.unwrap().is_empty());
        // The author's next change is built, once; a lock that the build writes is none.
        fs::write(words.join("module.c"), "22").unwrap();
        assert_eq!(
            sources.changed().await.unwrap(),
            std::slice::from_ref(&words)
        );
        fs::write(words.join("go.sum"), "").unwrap();
        sources.built(&words).await.unwrap();
        assert!(sources.changed().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_build_is_stopped_by_an_edit_and_not_for_ever_by_itself() {
        let modules = tempfile::tempdir().unwrap();
        let words = module(modules.path(), "words");
        let mut sources = sources(modules.path(), std::slice::from_ref(&words));
        sources.changed().await.unwrap();
        assert!(!sources.edited(&words).await.unwrap(), "nothing changed");
        fs::write(words.join("Cargo.lock"), "").unwrap();
        assert!(!sources.edited(&words).await.unwrap(), "no author's file");
        for n in 1..=MAX_STOPPED_IN_A_ROW {
            fs::write(words.join("module.c"), "x".repeat(10 + n as usize)).unwrap();
            assert!(sources.edited(&words).await.unwrap(), "{n}");
            assert!(!sources.edited(&words).await.unwrap(), "{n} again");
        }
        fs::write(words.join("module.c"), "x".repeat(30)).unwrap();
        assert!(!sources.edited(&words).await.unwrap(), "it runs to its end");
        sources.built(&words).await.unwrap();
        assert_eq!(
            sources.changed().await.unwrap(),
            std::slice::from_ref(&words),
            "and the edit is not lost"
        );
    }

    #[tokio::test]
    async fn what_builds_write_stops_none() {
        let modules = tempfile::tempdir().unwrap();
        let words = module(modules.path(), "words");
        let mut sources = sources(modules.path(), std::slice::from_ref(&words));
        for build in 1..=MAX_BUILDS_IN_A_ROW {
            sources.changed().await.unwrap();
            let text = "x".repeat(build as usize);
            fs::write(words.join("generated.h"), text).unwrap();
            sources.built(&words).await.unwrap();
        }
        fs::write(words.join("generated.h"), "xxxxx").unwrap();
        assert!(!sources.edited(&words).await.unwrap());
        fs::write(words.join("module.c"), "22").unwrap();
        assert!(sources.edited(&words).await.unwrap());
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_listed_forgets_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let modules = parent.path().join("modules");
        fs::create_dir(&modules).unwrap();
        let words = module(&modules, "words");
        let mut sources = sources(&modules, &[]);
        assert!(sources.changed().await.unwrap().is_empty());
        let aside = parent.path().join("aside");
        fs::rename(&modules, &aside).unwrap();
        fs::write(&modules, "no folder").unwrap();
        assert!(sources.changed().await.unwrap().is_empty());
        assert!(sources.unlisted.is_some());
        assert!(sources.seen.contains_key(&words));
    }
}
