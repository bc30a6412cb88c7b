//! `--help` of every command that help names, at two widths.

use super::compare;
use std::fmt::Write as _;
use support::host::Host;

/// A narrow terminal, and the widest that help fills.
const WIDTHS: [usize; 2] = [60, 100];

/// Commands that help lists but that are not of this program.
const OF_CLAP: &str = "help";

/// The tree is walked by what each help lists, so that a new command needs no line here.
#[test]
fn every_command_says_what_it_does() {
    let host = Host::new();
    let [narrow, wide] = WIDTHS;
    let root = help(&host, &[], wide);
    compare("help", "toolhold", &root, &[]);
    compare("help", "toolhold_narrow", &help(&host, &[], narrow), &[]);
    let commands = listed(&root);
    assert!(commands.contains(&"run".to_owned()), "{commands:?}");
    for command in &commands {
        let mut text = String::new();
        walk(&host, &mut vec![command.clone()], &mut text);
        compare("help", command, &text, &[]);
    }
}

/// Appends the help of a command and of those below it.
fn walk(host: &Host, path: &mut Vec<String>, text: &mut String) {
    let [narrow, wide] = WIDTHS;
    // Only looked at: snapshots of both would say everything twice.
    help(host, path, narrow);
    let shown = help(host, path, wide);
    let _ = writeln!(text, "$ toolhold {} --help\n{shown}", path.join(" "));
    for command in listed(&shown) {
        path.push(command);
        walk(host, path, text);
        path.pop();
    }
}

/// The help of a command, whose lines fit.
fn help(host: &Host, path: &[String], width: usize) -> String {
    let arguments: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
    let mut command = host.command(&arguments);
    command.env("COLUMNS", width.to_string());
    let done = support::host::finish(command.output().expect("it runs"));
    assert_eq!(done.code, Some(0), "{path:?}: {done:?}");
    for line in done.stdout.lines() {
        // A word that is longer than what is left beside its margin cannot be broken, and a usage is not.
        let is_whole = line.trim().split(' ').count() == 1 || line.starts_with("Usage: ");
        let fits = line.chars().count() <= width;
        assert!(fits || is_whole, "{path:?} at {width}: {line:?}");
    }
    // clap fills the place of a help that is not there with blanks.
    let lines: Vec<&str> = done.stdout.lines().map(str::trim_end).collect();
    lines.join("\n") + "\n"
}

/// The commands, which stand before the options: under `Commands:`, or under the headings of their groups.
fn listed(help: &str) -> Vec<String> {
    let lines = help.lines().take_while(|line| *line != "Options:");
    let names = lines.filter_map(|line| {
        let name = line.strip_prefix("  ")?.split(' ').next()?;
        name.starts_with(|c: char| c.is_ascii_lowercase())
            .then_some(name)
    });
    let own = names.filter(|name| *name != OF_CLAP);
    own.map(str::to_owned).collect()
}
