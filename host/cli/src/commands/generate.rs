//! `toolhold generate`: completions, manual pages and the configuration reference.

use crate::exit::Exit;
use anyhow::{Context as _, Result};
use clap::{Command, Subcommand};
use clap_complete::Shell;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

#[derive(Debug, Subcommand)]
pub enum GenerateCommand {
    /// Print completions for a shell: `source <(toolhold generate completions bash)`.
    Completions { shell: Shell },
    /// Write manual pages, one per command, into a folder: `toolhold generate man ~/.local/share/man/man1`.
    Man { folder: PathBuf },
    /// Print the configuration reference: every key with its meaning and default.
    Config,
}

/// `cli` is the definition of the whole command line.
pub fn generate(command: &GenerateCommand, mut cli: Command) -> Result<Exit> {
    match command {
        GenerateCommand::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut cli, "toolhold", &mut text);
            io::stdout().write_all(&text)?;
        }
        GenerateCommand::Man { folder } => manual(cli, folder)?,
        GenerateCommand::Config => print!("{}", toolhold_runtime::config::DEFAULTS),
    }
    Ok(Exit::Ok)
}

fn manual(cli: Command, folder: &Path) -> Result<()> {
    let at = || format!("{} cannot be written to", folder.display());
    std::fs::create_dir_all(folder).with_context(at)?;
    clap_mangen::generate_to(cli, folder).with_context(at)?;
    println!("made the manual pages in {}", folder.display());
    Ok(())
}
