//! `toolhold knowledge export` and `import`: a collection as lines of JSON.

use super::OWNER;
use crate::exit::Exit;
use crate::terminal::progress::Spinner;
use crate::terminal::{output, style};
use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::json;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use toolhold_admission::{detach, own_work, start_own};
use toolhold_files::Links;
use toolhold_knowledge::{ImportCounts, Importer, MAX_LINE_BYTES, Settings};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::stats::now_ms;
use toolhold_runtime::{host, knowledge};

#[derive(Debug, Args)]
pub struct ExportArgs {
    #[arg(value_name = "COLLECTION")]
    collection: String,
    /// A new file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// It is created if there is none of this name.
    #[arg(value_name = "COLLECTION")]
    collection: String,
    /// What `export` or the API wrote.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Pages and lines that are on their way between the database and a file.
const AHEAD: usize = 2;
const LINES_AHEAD: usize = 64;

pub async fn export(config: &Configuration, args: ExportArgs) -> Result<Exit> {
    let store = host::store(config).await?;
    let collection = super::collection(&store, &args.collection).await?;
    let knowledge = knowledge::open(config, store, Settings::default()).await?;
    let mut reader = knowledge.knowledge.export(OWNER, &collection);
    let (pages, received) = mpsc::channel(AHEAD);
    let path = args.file.clone();
    let mut writing = start_own(move || write(&path, received));
    let read = async {
        while let Some(lines) = reader.next().await? {
            // The writer is gone if it failed, and says why.
            if pages.send(ExportPage::Lines(lines)).await.is_err() {
                break;
            }
        }
        let _ = pages.send(ExportPage::End).await;
        Ok::<_, anyhow::Error>(())
    };
    let read = read.await;
    drop(pages);
    let written = writing.done().await?;
    read?;
    written.with_context(|| format!("{} is not written", args.file.display()))?;
    output::tell(&format!(
        "{} {} of {} in {}",
        style::good("exported:"),
        style::plural(collection.documents, "document"),
        collection.name,
        args.file.display()
    ));
    Ok(Exit::Ok)
}

enum ExportPage {
    Lines(String),
    /// Nothing follows. Without it the file is not whole.
    End,
}

/// Writes a new file, which is deleted again if it is not written whole.
fn write(path: &Path, mut pages: mpsc::Receiver<ExportPage>) -> io::Result<()> {
    let mut file = BufWriter::new(File::create_new(path)?);
    let mut written = || loop {
        match pages.blocking_recv() {
            Some(ExportPage::Lines(lines)) => file.write_all(lines.as_bytes())?,
            Some(ExportPage::End) => {
                file.flush()?;
                return file.get_ref().sync_all();
            }
            None => return Err(io::ErrorKind::Interrupted.into()),
        }
    };
    let written = written();
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written
}

pub async fn import(config: &Configuration, args: ImportArgs) -> Result<Exit> {
    super::check_name(&args.collection)?;
    let path = args.file.clone();
    let (sender, mut lines) = mpsc::channel(LINES_AHEAD);
    let file = own_work(move || {
        toolhold_files::open(&path, Links::Follow)
            .with_context(|| format!("{} cannot be read", path.display()))
    });
    let file = file.await??;
    let store = host::store(config).await?;
    let configured = knowledge::open(config, store.clone(), Settings::default()).await?;
    let vectors = configured.vectors.as_ref();
    let collection = super::collection_or_new(&store, &args.collection, vectors).await?;
    detach(move || read(file, &sender));
    let mut importer = configured.knowledge.import(OWNER, &collection);
    let spinner = (!args.json).then(|| Spinner::start(format!("importing {}", collection.name)));
    let imported = all(&mut importer, &mut lines).await;
    drop(spinner);
    let imported = match imported {
        Ok(()) => importer.finish().await.map_err(anyhow::Error::from),
        Err(error) => {
            importer.give_up().await;
            Err(error)
        }
    };
    super::expire(&store, &collection).await;
    let removal = store.remove_gone_passages(now_ms().saturating_sub(super::KEEP_STAGED_MS));
    super::note_log(&removal.await?);
    let ImportCounts {
        added,
        passages,
        unchanged,
    } = imported.with_context(|| {
        format!(
            "{} was not imported to its end; what was imported before is there",
            args.file.display()
        )
    })?;
    if args.json {
        output::json_line(&json!({
            "collection": collection.name, "added": added, "passages": passages, "unchanged": unchanged,
        }))?;
        return Ok(Exit::Ok);
    }
    output::tell(&format!(
        "{} {}, {}; {unchanged} unchanged; collection {}",
        style::good("imported:"),
        style::plural(added, "document"),
        style::plural(passages, "passage"),
        collection.name
    ));
    Ok(Exit::Ok)
}

async fn all(
    importer: &mut Importer<'_>,
    lines: &mut mpsc::Receiver<io::Result<String>>,
) -> Result<()> {
    while let Some(line) = lines.recv().await {
        importer.line(&line?).await?;
    }
    Ok(())
}

/// Sends the lines of a file, none of which is longer than a line may be.
fn read(file: File, lines: &mpsc::Sender<io::Result<String>>) {
    let mut file = BufReader::new(file);
    loop {
        let mut line = Vec::new();
        let most = MAX_LINE_BYTES as u64 + 1;
        let read = (&mut file).take(most).read_until(b'\n', &mut line);
        let line = match read {
            Ok(0) => return,
            Ok(_) if line.len() > MAX_LINE_BYTES => Err(io::Error::other(format!(
                "a line is longer than {MAX_LINE_BYTES} bytes"
            ))),
            Ok(_) => String::from_utf8(line).map_err(io::Error::other),
            Err(error) => Err(error),
        };
        let is_over = line.is_err();
        if lines.blocking_send(line).is_err() || is_over {
            return;
        }
    }
}
