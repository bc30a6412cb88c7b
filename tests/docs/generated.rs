//! Parts of documents that are generated from definitions, each between two marks: the threat table of `docs/security.md`
//! from the hostile suite, the reference of `docs/configuration.md` from `default.toml` and `host/cli/surface.toml`, and
//! the tables of `docs/faults.md` from `tests/faults`. `INSTA_UPDATE=always` writes them anew, as it does snapshots.

use super::read;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use support::sandbox::repository;
use toolhold_hostile::{ELSEWHERE, suite};

/// Holds what stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->` against `generated`, or writes it.
fn hold(document: &str, name: &str, generated: &str) {
    let text = read(Path::new(document));
    let begin = format!("<!-- {name}:begin -->\n");
    let end = format!("<!-- {name}:end -->");
    let (before, rest) = text.split_once(&begin).expect("the first mark");
    let (written, after) = rest.split_once(&end).expect("the second mark");
    if written == generated {
        return;
    }
    assert_eq!(
        env::var("INSTA_UPDATE").as_deref(),
        Ok("always"),
        "{document}: what stands at <!-- {name}:begin --> is not what is generated; INSTA_UPDATE=always writes it:\n{generated}"
    );
    let text = format!("{before}{begin}{generated}{end}{after}");
    fs::write(repository().join(document), text).expect("the document is written");
}

/// A table with a line for each attack, in the order of the rows.
fn threats() -> String {
    let here = suite().into_iter().map(|attack| {
        let test = format!("`{}`", attack.name);
        (attack.row, attack.attack, attack.must, test)
    });
    let elsewhere = ELSEWHERE.iter().map(|other| {
        let place = other.place.to_owned();
        (other.row, other.attack, other.must, place)
    });
    let mut lines: Vec<_> = here.chain(elsewhere).collect();
    // Stable: attacks of one row stay in the suite's order.
    lines.sort_by_key(|(row, ..)| *row);
    let mut table = String::from("| row | attack | must happen | tested by |\n|---|---|---|---|\n");
    for (row, attack, must, test) in lines {
        let cell = |text: &str| text.replace('|', "\\|");
        let (attack, must) = (cell(attack), cell(must));
        let _ = writeln!(table, "| {row} | {attack} | {must} | {test} |");
    }
    table
}

#[test]
fn the_threat_table_is_the_suite() {
    hold("docs/security.md", "threats", &threats());
}

#[test]
fn the_table_of_faults_is_what_is_tried() {
    hold("docs/faults.md", "faults", &crate::faults::tables());
}

/// A section for each paragraph of `default.toml` but the first, which is about the file. Its heading is the
/// paragraph's first table, set or commented out, or else its first key. Behind the paragraph, each of its keys has the
/// reason for which it is there.
fn sections(defaults: &str, reasons: &[(String, String)]) -> String {
    let sections = defaults.trim().split("\n\n").skip(1).map(|paragraph| {
        let paragraph = paragraph.trim();
        let name = heading(paragraph)
            .unwrap_or_else(|| panic!("a paragraph without a table or a key: {paragraph}"));
        let mut section = format!("### `{name}`\n\n```toml\n{paragraph}\n```\n");
        let rows = reasons
            .iter()
            .filter_map(|(key, reason)| Some((own_name(name, key)?, reason)))
            .fold(String::new(), |rows, (key, reason)| {
                format!("{rows}| `{key}` | {reason} |\n")
            });
        if !rows.is_empty() {
            let _ = write!(section, "\n| key | why |\n|---|---|\n{rows}");
        }
        section
    });
    sections.collect::<Vec<_>>().join("\n")
}

/// The name of `key` in the section of this heading, if it belongs there. A table whose name the user chooses has NAME in
/// its place in `key`.
fn own_name<'k>(heading: &str, key: &'k str) -> Option<&'k str> {
    let Some(table) = heading
        .strip_prefix('[')
        .and_then(|it| it.strip_suffix(']'))
    else {
        return (heading == key).then_some(key);
    };
    let tables = [
        table.to_owned(),
        format!(
            "{}.NAME",
            table.rsplit_once('.').map_or(table, |(before, _)| before)
        ),
    ];
    tables
        .iter()
        .find_map(|table| key.strip_prefix(table.as_str())?.strip_prefix('.'))
}

/// Keys and reasons of `host/cli/surface.toml`, in its order.
fn reasons() -> Vec<(String, String)> {
    let text = read(Path::new("host/cli/surface.toml"));
    let (_, keys) = text.split_once("[keys]\n").expect("the table of keys");
    let lines = keys.lines().filter_map(|line| line.split_once(" = "));
    let bare = |text: &str| text.trim_matches('"').to_owned();
    lines
        .map(|(key, reason)| (bare(key), bare(reason)))
        .collect()
}

fn heading(paragraph: &str) -> Option<&str> {
    let table = |line: &'_ str| {
        let inside = line.strip_prefix("# ").unwrap_or(line).strip_prefix('[')?;
        let name = inside.strip_suffix(']')?;
        let is_name = |c: char| c.is_ascii_alphabetic() || c == '_' || c == '.';
        name.chars().all(is_name).then_some(name.len() + 2)
    };
    let of_table = paragraph.lines().find_map(|line| {
        let length = table(line)?;
        Some(&line[line.len() - length..])
    });
    let of_key = || {
        let mut keys = paragraph.lines().filter(|line| !line.starts_with('#'));
        keys.find_map(|line| Some(line.split_once(" = ")?.0))
    };
    of_table.or_else(of_key)
}

#[test]
fn the_configuration_reference_is_the_defaults() {
    let defaults = read(Path::new("host/runtime/src/config/default.toml"));
    hold(
        "docs/configuration.md",
        "configuration",
        &sections(&defaults, &reasons()),
    );
}

#[test]
fn a_section_is_headed_by_its_table_or_key() {
    let toml = "# The file.\n\n# One.\nendpoint = \"default\"\n\n# Add more: [endpoints.big], or\n# [pools.both]\n# members = []\n\n[serve]\nport = 1\n";
    let reason = |key: &str| (key.to_owned(), format!("why {key}"));
    let reasons = ["endpoint", "pools.NAME.members", "serve.port", "server"].map(reason);
    let sections = sections(toml, &reasons);
    let rows: Vec<_> = sections
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    assert_eq!(
        rows,
        [
            "| `endpoint` | why endpoint |",
            "| `members` | why pools.NAME.members |",
            "| `port` | why serve.port |"
        ]
    );
    let headings: Vec<_> = sections
        .lines()
        .filter(|line| line.starts_with("### "))
        .collect();
    assert_eq!(
        headings,
        ["### `endpoint`", "### `[pools.both]`", "### `[serve]`"]
    );
}
