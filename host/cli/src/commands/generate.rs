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

/// Cells of a row of a page: a reader of manuals indents it by seven, of 80.
const PAGE_CELLS: usize = 72;

fn manual(cli: Command, folder: &Path) -> Result<()> {
    let at = || format!("{} cannot be written to", folder.display());
    std::fs::create_dir_all(folder).with_context(at)?;
    let mut cli = cli.disable_help_subcommand(true).term_width(PAGE_CELLS);
    // The names of commands, and what they have from those above them.
    cli.build();
    write_pages(&mut cli, folder).with_context(at)?;
    println!("made the manual pages in {}", folder.display());
    Ok(())
}

/// A page for the command, and for each below it that help shows.
fn write_pages(command: &mut Command, folder: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let name = name.to_owned();
    std::fs::write(folder.join(format!("{name}.1")), page(&name, command))?;
    let below = command.get_subcommands_mut();
    for command in below.filter(|command| !command.is_hide_set()) {
        write_pages(command, folder)?;
    }
    Ok(())
}

/// The help of a command as a page, its rows as they are.
fn page(name: &str, command: &mut Command) -> String {
    let about = command.get_about().map(ToString::to_string);
    let about = roff(&about.unwrap_or_default().replace('\n', " "));
    let help = roff(&command.render_long_help().to_string());
    let (title, version) = (name.to_uppercase(), env!("CARGO_PKG_VERSION"));
    let name = roff(name);
    format!(
        ".TH \"{title}\" 1 \"\" \"toolhold {version}\"\n.SH NAME\n{name} \\- {about}\n.SH DESCRIPTION\n.nf\n{help}\n.fi\n"
    )
}

/// A text as roff has it: no row of it is a request, and a hyphen is one that can be copied.
fn roff(text: &str) -> String {
    let row = |row: &str| {
        let begin = if row.starts_with(['.', '\'']) {
            "\\&"
        } else {
            ""
        };
        let row = row.replace('\\', "\\e").replace('-', "\\-");
        format!("{begin}{row}")
    };
    let rows: Vec<String> = text.lines().map(row).collect();
    rows.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_help_of_its_command() {
        let below = Command::new("serve").about("Serve\nthe API");
        let below = below.long_about("Serve the API.\n.It is `\\d-x`\n'quoted'");
        let mut cli = Command::new("tool").subcommand(below);
        cli.build();
        let command = cli.find_subcommand_mut("serve").unwrap();
        let page = page("tool-serve", command);
        let rows: Vec<&str> = page.lines().collect();
        assert!(rows[0].starts_with(".TH \"TOOL-SERVE\" 1 "), "{page}");
        assert_eq!(
            rows[1..5],
            [
                ".SH NAME",
                "tool\\-serve \\- Serve the API",
                ".SH DESCRIPTION",
                ".nf"
            ]
        );
        for row in ["\\&.It is `\\ed\\-x`", "\\&'quoted'", "Usage: tool serve"] {
            assert!(rows.contains(&row), "{row}: {page}");
        }
        assert_eq!(rows.last(), Some(&".fi"));
        let requests = rows.iter().filter(|row| row.starts_with('.'));
        assert_eq!(requests.count(), 5, "{page}");
    }
}
