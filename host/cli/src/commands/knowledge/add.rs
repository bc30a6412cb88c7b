//! `toolhold knowledge add`.

use super::fetch;
use super::list::each_document;
use super::named::NamedPath;
use super::walk::{self, Bounds, WalkedFile};
use super::{DEFAULT_COLLECTION, DocumentLabel, KEEP_STAGED_MS, OWNER};
use crate::exit::Exit;
use crate::terminal::progress::Spinner;
use crate::terminal::{output, style};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use toolhold_knowledge::{AddError, Added, Settings, digest};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::extract::{DocumentBytes, Extractors, Reading};
use toolhold_runtime::host;
use toolhold_runtime::knowledge::{self, ConfiguredKnowledge};
use toolhold_runtime::stats::now_ms;
use toolhold_runtime::watch::FolderWatch;
use toolhold_storage::{Collection, Store};

/// What is added, and where.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// Files, folders, and addresses (https://). Of a folder all documents are taken, but no hidden ones, and no links.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Add to this collection. It is created if there is none of this name.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_COLLECTION)]
    collection: String,
    /// Label the documents, so that a search can be narrowed to them; may be repeated.
    #[arg(long = "label", value_name = "NAME=VALUE")]
    labels: Vec<DocumentLabel>,
    /// Then go on until it is interrupted: add what changes in these files and folders, and delete documents whose
    /// files are gone from these folders.
    #[arg(long)]
    watch: bool,
    /// Print one JSON object per line: what became of each file, and the sums.
    #[arg(long)]
    json: bool,
}

/// Files that were left out and are named, of those in folders.
const MAX_NAMED_FILES: usize = 20;

pub async fn add(config: &Configuration, args: AddArgs) -> Result<Exit> {
    super::check_name(&args.collection)?;
    let paths = args.paths.iter().map(|path| super::absolute(path));
    let paths = paths.collect::<Result<Vec<_>>>()?;
    let store = host::store(config).await?;
    let settings = Settings::default();
    let bounds = Bounds::new(settings.document_bytes);
    let (addresses, paths): (Vec<_>, Vec<_>) =
        paths.into_iter().partition(|path| fetch::is_address(path));
    // Before anything is read: what changes meanwhile is read again.
    let mut watch = args
        .watch
        .then(|| FolderWatch::of(&paths, config.state_folder()));
    let mut work = Work {
        configured: knowledge::open(config, store.clone(), settings).await?,
        extractors: Extractors::new(config.clone()),
        store,
        name: args.collection,
        labels: super::by_name(args.labels),
        collection: None,
        is_json: args.json,
        counts: AddCounts::default(),
        left_out: Vec::new(),
        spinner: None,
        seen: HashSet::new(),
        passes: 0,
    };
    let named = NamedPath::of(paths, args.watch);
    let mut addresses = addresses.as_slice();
    loop {
        let began = Instant::now();
        work.pass(addresses, &named, bounds, watch.is_some())
            .await?;
        let Some(watch) = &mut watch else {
            break;
        };
        if work.passes == 1 && !work.is_json {
            output::remark("watching for changes; Ctrl-C ends it");
        }
        // They are not watched.
        addresses = &[];
        // Reading all of a large folder takes a while: not more than half of the time.
        tokio::time::sleep(began.elapsed()).await;
        watch.changed().await;
    }
    Ok(if work.counts.failed > 0 {
        Exit::Failed
    } else {
        Exit::Ok
    })
}

/// What became of the files so far.
#[derive(Debug, Default)]
struct AddCounts {
    added: u64,
    passages: u64,
    unchanged: u64,
    /// Unchanged but for their labels.
    labelled: u64,
    /// Files in folders that are no documents.
    left_out: u64,
    /// What was named and is no document, and what could not be read or added.
    failed: u64,
    /// Documents that were deleted because their files are gone.
    deleted: u64,
}

struct Work {
    store: Store,
    configured: ConfiguredKnowledge,
    extractors: Extractors,
    name: String,
    labels: BTreeMap<String, String>,
    /// Opened, or created, for the first document.
    collection: Option<Collection>,
    is_json: bool,
    counts: AddCounts,
    /// What is told of files that were not added.
    left_out: Vec<String>,
    spinner: Option<Spinner>,
    /// Sources of this pass; kept only while a folder is watched.
    seen: HashSet<String>,
    passes: u64,
}

impl Work {
    /// Adds what is there now. Of a folder that is watched, documents are deleted whose files are gone.
    ///
    /// # Errors
    /// As [`Self::file`].
    async fn pass(
        &mut self,
        addresses: &[PathBuf],
        paths: &Arc<[NamedPath]>,
        bounds: Bounds,
        is_watched: bool,
    ) -> Result<()> {
        self.passes += 1;
        self.counts = AddCounts::default();
        self.left_out.clear();
        self.seen.clear();
        if !self.is_json {
            let text = format!("adding to {}", self.name);
            self.spinner = Some(Spinner::start(text));
        }
        let ended = self.all(addresses, paths, bounds, is_watched).await;
        self.spinner = None;
        self.finish().await?;
        ended
    }

    async fn all(
        &mut self,
        addresses: &[PathBuf],
        paths: &Arc<[NamedPath]>,
        bounds: Bounds,
        is_watched: bool,
    ) -> Result<()> {
        for address in addresses {
            let file = fetch::fetch(&address.to_string_lossy(), bounds.file_bytes).await;
            self.file(file).await?;
        }
        let mut files = walk::start(paths.clone(), bounds);
        let mut is_whole = true;
        while let Some(file) = files.recv().await {
            // What could not be read may hold documents that are still there.
            is_whole &= file.content.is_ok();
            if is_watched {
                self.seen.extend(file.path.to_str().map(str::to_owned));
            }
            self.file(file).await?;
        }
        if is_watched && is_whole {
            self.delete_gone(paths).await?;
        }
        Ok(())
    }

    /// Deletes documents from below `folders` whose files are not there any more.
    async fn delete_gone(&mut self, folders: &[NamedPath]) -> Result<()> {
        let found = self.store.collection(OWNER, OWNER, &self.name).await?;
        let Some((collection, _)) = found else {
            return Ok(());
        };
        let mut gone = Vec::new();
        each_document(&self.store, &collection, |document| {
            let source = Path::new(&document.source);
            let is_below = |named: &NamedPath| {
                let folder = named.path();
                source != folder && source.starts_with(folder)
            };
            if folders.iter().any(is_below) && !self.seen.contains(&document.source) {
                gone.push((document.id, document.source.clone()));
            }
            Ok(())
        })
        .await?;
        for (document, source) in gone {
            let deleted = self.store.delete_document(OWNER, &collection, document);
            if deleted.await? {
                self.counts.deleted += 1;
                self.tell(&source, json!({"result": "deleted"}))?;
            }
        }
        self.collection = Some(collection);
        Ok(())
    }

    /// # Errors
    /// Nothing can be added any more: the database failed, or the collection is full.
    async fn file(&mut self, mut file: WalkedFile) -> Result<()> {
        let Some(source) = file.path.to_str().map(str::to_owned) else {
            return self.not_added(
                &file,
                "its name is not UTF-8, and documents are named by it",
                true,
            );
        };
        let bytes = match std::mem::replace(&mut file.content, Ok(Vec::new())) {
            Ok(bytes) => bytes,
            Err(why) => return self.not_added(&file, &why.to_string(), true),
        };
        let document = DocumentBytes {
            source: source.clone(),
            media_type: Some(std::mem::take(&mut file.media_type)).filter(|it| !it.is_empty()),
            bytes,
            labels: self.labels.clone(),
        };
        let document = match self.extractors.reading(&document).await {
            Ok(reading) => {
                if let Some(added) = self.again(&reading, &document).await? {
                    return self.counted(&source, &added);
                }
                if let (Some(spinner), Reading::By(_)) = (&self.spinner, &reading) {
                    spinner.show(format!("{source}: reading"));
                }
                self.extractors.text_by(&reading, document).await
            }
            Err(why) => Err(why),
        };
        let document = match document {
            Ok(document) => document,
            Err(why) => {
                let is_fault = file.is_named || !why.is_no_document();
                return self.not_added(&file, &why.to_string(), is_fault);
            }
        };
        let collection = self.collection().await?;
        let spinner = self.spinner.as_ref();
        let title = &document.title;
        let progress = |staged, all| {
            if let Some(spinner) = spinner {
                spinner.show(format!(
                    "{title}: {staged} of {}",
                    style::plural(all, "passage")
                ));
            }
        };
        let added = self
            .configured
            .knowledge
            .add(OWNER, &collection, &document, &progress)
            .await;
        match added {
            Ok(added) => self.counted(&source, &added),
            // Of one document: others can still be added.
            Err(error @ AddError::Empty) => {
                self.not_added(&file, &error.to_string(), file.is_named)
            }
            Err(
                error
                @ (AddError::TooLong { .. } | AddError::Description { .. } | AddError::Cut(_)),
            ) => self.not_added(&file, &error.to_string(), true),
            Err(error) => {
                Err(anyhow::Error::from(error).context(format!("{source} was not added")))
            }
        }
    }

    /// What needs an extractor and was added before is not read again, which takes time.
    async fn again(
        &mut self,
        reading: &Reading,
        document: &DocumentBytes,
    ) -> Result<Option<Added>> {
        let Reading::By(extractor) = reading else {
            return Ok(None);
        };
        if self.collection.is_none() {
            let found = self.store.collection(OWNER, OWNER, &self.name).await?;
            self.collection = found.map(|(collection, _)| collection);
        }
        let Some(collection) = &self.collection else {
            return Ok(None);
        };
        let digest = digest(&document.bytes);
        let unread = extractor.unread(document, &digest);
        let knowledge = &self.configured.knowledge;
        let added = knowledge.add_again(OWNER, collection, unread).await;
        added.map_err(|error| {
            anyhow::Error::from(error).context(format!("{} was not added", document.source))
        })
    }

    fn counted(&mut self, source: &str, added: &Added) -> Result<()> {
        let counts = &mut self.counts;
        let what = match added {
            Added::New { passages } => {
                counts.added += 1;
                counts.passages += passages;
                json!({"result": "added", "passages": passages})
            }
            Added::Unchanged(_) => {
                counts.unchanged += 1;
                json!({"result": "unchanged"})
            }
            Added::Labelled(_) => {
                counts.labelled += 1;
                json!({"result": "labelled"})
            }
        };
        self.tell(source, what)
    }

    async fn collection(&mut self) -> Result<Collection> {
        if let Some(collection) = &self.collection {
            return Ok(collection.clone());
        }
        let vectors = self.configured.vectors.as_ref();
        let collection = super::collection_or_new(&self.store, &self.name, vectors).await?;
        self.collection = Some(collection.clone());
        Ok(collection)
    }

    fn not_added(&mut self, file: &WalkedFile, why: &str, is_fault: bool) -> Result<()> {
        if is_fault {
            self.counts.failed += 1;
        } else {
            self.counts.left_out += 1;
        }
        if self.left_out.len() < MAX_NAMED_FILES {
            self.left_out
                .push(format!("{}: {why}", file.path.display()));
        }
        let result = if is_fault { "failed" } else { "left_out" };
        self.tell(
            &file.path.to_string_lossy(),
            json!({"result": result, "reason": why}),
        )
    }

    /// A line for a program.
    fn tell(&self, source: &str, mut what: serde_json::Value) -> Result<()> {
        if self.is_json {
            what["source"] = source.into();
            output::json_line(&what)?;
        }
        Ok(())
    }

    /// Removes what was replaced, and says what became of everything.
    async fn finish(&self) -> Result<()> {
        if let Some(collection) = &self.collection {
            super::expire(&self.store, collection).await;
        }
        let before = now_ms().saturating_sub(KEEP_STAGED_MS);
        match self.store.remove_gone_passages(before).await {
            Ok(removal) => super::note_log(&removal),
            Err(error) => {
                let what = "what was replaced is not found any more, and is removed by the next command that adds or removes";
                output::remark(&format!("{what}: {error}"));
            }
        }
        let counts = &self.counts;
        let changed = counts.added + counts.labelled + counts.deleted + counts.failed;
        if self.passes > 1 && changed == 0 {
            return Ok(());
        }
        if self.is_json {
            return output::json_line(&json!({
                "collection": self.name, "added": counts.added, "passages": counts.passages,
                "unchanged": counts.unchanged, "labelled": counts.labelled, "deleted": counts.deleted,
                "left_out": counts.left_out, "failed": counts.failed,
            }));
        }
        for file in &self.left_out {
            output::left_out(file);
        }
        let told = self.left_out.len() as u64;
        let all = counts.left_out + counts.failed;
        if all > told {
            output::remark(&format!("and {} more; --json names all", all - told));
        }
        let added = style::plural(counts.added, "document");
        let passages = style::plural(counts.passages, "passage");
        let mut text = format!("{} {added}, {passages}", style::good("added:"));
        for (count, what) in [
            (counts.unchanged, "unchanged"),
            (counts.labelled, "with other labels"),
            (counts.deleted, "deleted"),
            (all, "left out"),
        ] {
            if count > 0 {
                let _ = write!(text, "; {count} {what}");
            }
        }
        output::tell(&format!("{text}; collection {}", self.name));
        let collection = self.collection.as_ref();
        if counts.added > 0 && collection.is_some_and(|it| it.vectors.is_none()) {
            super::note_words_alone(self.configured.vectors.as_ref());
        }
        Ok(())
    }
}
