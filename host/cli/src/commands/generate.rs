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
        GenerateCommand::Man { folder } => manual(folder)?,
        GenerateCommand::Config => print!("{}", toolhold_runtime::config::DEFAULTS),
    }
    Ok(Exit::Ok)
}

/// The pages of all commands, as the test below writes them: what makes them of the commands is not in the binary.
const PAGES: &str = include_str!("../../manual.roff");
/// Stands before each page, followed by the name of its file: a comment of roff.
const PAGE: &str = ".\\\" page ";

/// The pages, each with the name of its file.
fn pages() -> impl Iterator<Item = (&'static str, &'static str)> {
    let pages = PAGES.split(PAGE).skip(1);
    pages.filter_map(|page| page.split_once('\n'))
}

fn manual(folder: &Path) -> Result<()> {
    let at = || format!("{} cannot be written to", folder.display());
    std::fs::create_dir_all(folder).with_context(at)?;
    for (name, page) in pages() {
        std::fs::write(folder.join(name), page).with_context(at)?;
    }
    println!("made the manual pages in {}", folder.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap_mangen::Man;

    const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/manual.roff");

    /// The committed file shows every change of the manual in its diff. `TOOLHOLD_UPDATE=1` writes the file again.
    #[test]
    fn the_committed_pages_are_those_of_the_commands() {
        let mut now = String::new();
        add_pages(&without_help(crate::usage::command()), &mut now);
        if std::env::var_os("TOOLHOLD_UPDATE").is_some() {
            std::fs::write(COMMITTED, &now).unwrap();
        }
        let committed = std::fs::read_to_string(COMMITTED).unwrap();
        assert!(
            now == committed,
            "manual.roff is of other commands; write it with TOOLHOLD_UPDATE=1 cargo test -p toolhold-cli generate"
        );
    }

    #[test]
    fn each_page_stands_in_a_file_of_its_command() {
        let command = without_help(crate::usage::command());
        let shown = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set());
        for command in shown {
            let name = format!("toolhold-{}.1", command.get_name());
            let page = pages().find(|(file, _)| *file == name);
            let title = format!(".TH toolhold-{} 1 ", command.get_name());
            assert!(
                page.is_some_and(|(_, page)| page.contains(&title)),
                "{name}: {page:?}"
            );
        }
    }

    /// The command without `help`, which would have a page for each command again.
    fn without_help(command: Command) -> Command {
        command.mut_subcommands(|own| match own.get_name() {
            "help" => own.hide(true),
            _ => without_help(own),
        })
    }

    /// Adds the page of the command, then those of the commands below it that help shows.
    fn add_pages(command: &Command, to: &mut String) {
        let man = Man::new(command.clone()).source("toolhold");
        let mut page = Vec::new();
        man.render(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        to.push_str(PAGE);
        to.push_str(&man.get_filename());
        to.push('\n');
        to.push_str(&page);
        let below = command.get_subcommands();
        for command in below.filter(|command| !command.is_hide_set()) {
            add_pages(command, to);
        }
    }
}
