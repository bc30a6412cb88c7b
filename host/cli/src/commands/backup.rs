//! `toolhold backup` and `toolhold restore`: what a host keeps, in one file, and the way back.

use crate::commands::build::until_stopped;
use crate::config::{MAX_CONFIG_BYTES, usual_files};
use crate::exit::Exit;
use crate::terminal::output::{self, NoteMark};
use crate::terminal::style;
use anyhow::Result;
use clap::Args;
use std::io;
use std::path::{Path, PathBuf};
use toolhold_admission::own_work;
use toolhold_files::Links;
use toolhold_runtime::backup::{self, BackupSource, RestoreTarget, Restored};
use toolhold_runtime::config::Configuration;
use toolhold_runtime::stats::date_text;
use toolhold_storage::Location;

#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The file to write, a tar archive. Nothing may be there yet.
    file: PathBuf,
}

#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// A file that toolhold backup wrote.
    file: PathBuf,
}

/// Makes a backup. `named`: the configuration file that the user named.
pub async fn backup(
    config: &Configuration,
    named: Option<&Path>,
    args: BackupArgs,
) -> Result<Exit> {
    until_stopped(Box::pin(backed_up(config, named, args))).await
}

async fn backed_up(config: &Configuration, named: Option<&Path>, args: BackupArgs) -> Result<Exit> {
    let files = named.map_or_else(usual_files, |named| vec![named.to_owned()]);
    let (texts, unread) = own_work(move || configuration_texts(&files)).await?;
    for (file, error) in unread {
        output::left_out(&format!("{}: {error}", file.display()));
    }
    let mut parts = vec!["approvals, grants and kept values".to_owned()];
    parts.extend(texts.iter().map(|(file, _)| file.display().to_string()));
    let made = backup::back_up(BackupSource::of(config, texts), &args.file).await?;
    for path in &made.left_out {
        let text = format!("{} is no file that toolhold keeps there", path.display());
        output::left_out(&text);
    }
    if made.has_database {
        parts.insert(0, "the database".to_owned());
    } else {
        let location = config.storage();
        let why = match location {
            Location::File(_) => "there is none yet",
            Location::Postgres(_) => "pg_dump copies it; do that at the same time",
        };
        output::left_out(&format!("{location}: {why}"));
    }
    output::tell(&format!(
        "{} {} ({}): {}",
        style::good("backed up:"),
        style::line(&args.file.display().to_string()),
        style::bytes(made.bytes),
        style::line(&parts.join(", "))
    ));
    output::remark(&format!(
        "not in it: the modules folder {}, the requests folder {}, kept secrets (keyring or secrets.toml), and what is \
         made again",
        config.new_modules_folder().display(),
        config.requests_folder().display()
    ));
    Ok(Exit::Ok)
}

/// A file with its bytes, and one with the reason why it is not read.
type FileTexts = (Vec<(PathBuf, Vec<u8>)>, Vec<(PathBuf, io::Error)>);

/// The bytes of those files that exist. A pipe was read when the configuration was.
fn configuration_texts(files: &[PathBuf]) -> FileTexts {
    let (mut texts, mut unread) = (Vec::new(), Vec::new());
    for file in files {
        let path = std::path::absolute(file).unwrap_or_else(|_| file.clone());
        let read = toolhold_files::read(&path, MAX_CONFIG_BYTES, Links::Follow);
        match read.map_err(io::Error::from) {
            Ok(bytes) => texts.push((path, bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => unread.push((path, error)),
        }
    }
    (texts, unread)
}

/// Restores a backup.
pub async fn restore(config: &Configuration, args: RestoreArgs) -> Result<Exit> {
    until_stopped(Box::pin(restored(config, args))).await
}

async fn restored(config: &Configuration, args: RestoreArgs) -> Result<Exit> {
    let restored = backup::restore(args.file, RestoreTarget::of(config)).await?;
    tell_restored(config, &restored);
    Ok(Exit::Ok)
}

fn tell_restored(config: &Configuration, restored: &Restored) {
    let about = &restored.about;
    let database = if about.has_database {
        "the database and "
    } else {
        ""
    };
    output::tell(&format!(
        "{} {database}{} of {}, by version {}, in {}",
        style::good("restored:"),
        style::plural(restored.files, "file"),
        date_text(about.made_ms),
        style::line(&about.version),
        style::line(&config.state_folder().display().to_string())
    ));
    if !about.has_database {
        output::left_out(
            "the database, which the backup does not have: restore that of PostgreSQL with pg_restore",
        );
    }
    let modules = config.new_modules_folder();
    let approved = &restored.approved;
    let text = if approved.is_empty() {
        "none".to_owned()
    } else {
        approved.join(", ")
    };
    output::tell(&format!(
        "  approved in the modules folder {}: {}",
        style::line(&modules.display().to_string()),
        style::line(&text)
    ));
    let modules = std::path::absolute(modules).unwrap_or_else(|_| modules.to_owned());
    if Path::new(&about.modules) != modules {
        output::note(
            NoteMark::Warn("note:"),
            &format!(
                "approvals hold for the modules folder {}, from which the backup was made: use the same path, or approve \
                 the modules again",
                about.modules
            ),
        );
    }
    if let Some(folder) = &restored.configuration {
        output::remark(&format!(
            "the configuration files of the backup are in {}; they take effect where you put them",
            folder.display()
        ));
    }
    output::remark(
        "next: toolhold modules list shows what may run, and toolhold serve --hold-runs starts a server that resumes \
         nothing, because the original may have ended the runs that were open",
    );
}
