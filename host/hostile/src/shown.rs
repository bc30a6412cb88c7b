//! Row 37: texts from outside where a person decides, as the command shows them.

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder, Ran};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use std::future::ready;
use std::time::Duration;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 37,
    name: "texts_where_people_approve",
    attack: "ESC, C1, bidi, new lines, tags, fillers, selectors, blanks in folder, version, description, texts",
    must: "shown escaped, each in its place",
    company: Company::Others,
    tries: |lab| Box::pin(ready(texts_where_people_approve(lab))),
}];

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 2 << 30,
};

/// Clears the screen, by ESC and by C1; reorders; begins a line that looks like the host's own; overwrites one; has
/// letters that are hidden as tags, and characters without width or ink.
pub const NASTY: &str = "\u{1b}[2J\u{9b}31m\u{202e}desrever\u{2066}\u{200b}\u{7f}\r\u{85}\u{2028}x\u{ad}\u{34f}\u{61c}\u{180e}\u{3164}\u{115f}\u{ffa0}\u{2800}\u{fe0f}\u{fff9}\u{e0041}\u{e0100}";
/// A section of the host's own as a module would like to have it.
const FORGED: &str =
    "\n\nwhat it may do\n  compute, and nothing else\n\npin\n  approved as it is\n";

/// A text as TOML writes it.
fn toml(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() || !c.is_ascii() => format!("\\U{:08X}", u32::from(c)),
        c => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

fn texts_where_people_approve(lab: &Lab) -> Result<String, AttackFailure> {
    let folder = CommandFolder::new(lab)?.without_programs();
    let nasty = toml(&format!("words {NASTY}{FORGED}"));
    // Each in a module of its own: one that is refused for its text does not hide the others.
    let version = |text: &str| format!("version = {}", toml(&format!("1.0.0{text}")));
    // The folder, and what lies in it. A version in the folder's name takes the place of the one in the file.
    let odd = format!("odd{NASTY}");
    let manifests = [
        ("described", format!("description = {nasty}")),
        ("versioned", version(NASTY)),
        ("steered@1.0.0", version(NASTY)),
        ("forged@1.0.0", version(FORGED)),
        (
            "tools",
            format!("[tools.which]\ntitle = {nasty}\ndescription = {nasty}"),
        ),
        (
            "wishes",
            format!("[[grants.directories]]\nguest = \"/data\"\nreason = {nasty}"),
        ),
        ("names", format!("name = {nasty}")),
        (
            "files",
            format!("component = {}", toml(&format!("{NASTY}.wasm"))),
        ),
        ("given", String::new()),
        (
            &odd,
            "name = \"renamed\"\ncomponent = \"c.wasm\"".to_owned(),
        ),
    ];
    for (name, manifest) in &manifests {
        folder.write(&format!("modules/{name}/module.toml"), manifest)?;
        let component = components::parse(&components::which(1))?;
        let file = match *name {
            odd if odd.starts_with("odd") => "c",
            name => name,
        };
        folder.write(&format!("modules/{name}/{file}.wasm"), component)?;
    }
    folder.write(&format!("modules/{odd}.wasm"), "no component")?;
    folder.write(&format!("{odd}/file.txt"), "x")?;
    folder.write(
        "host.toml",
        format!(
            "[module.given]\ndirectories = [{{ host = {}, guest = \"/data\" }}]\n",
            toml(&format!("./{odd}"))
        ),
    )?;
    // The configuration is the operator's own, by name: one that lies in a folder might count for less.
    let run = |arguments: &[&str]| {
        let arguments = [&["--config", "host.toml"], arguments].concat();
        folder.run(&arguments, BOUNDS)
    };
    // It must work, or nothing is proved.
    let listed = run(&["modules", "list"])?;
    for name in ["described", "tools", "given"] {
        ensure(
            listed.code == Some(0) && listed.stdout.contains(name),
            || format!("{name} is not listed: {}{}", listed.stdout, listed.stderr),
        )?;
    }
    let mut shown = 0;
    let mut commands: Vec<Vec<&str>> = vec![
        vec!["modules", "list"],
        vec!["modules", "list", "--json"],
        vec!["policy"],
        vec!["doctor"],
        vec!["config"],
        vec!["config", "--json"],
    ];
    let names = manifests.iter().map(|(name, _)| match *name {
        odd if odd.starts_with("odd") => "renamed",
        name => name.split('@').next().unwrap_or(name),
    });
    for name in names {
        for arguments in [
            vec!["modules", "inspect", name],
            vec!["modules", "inspect", name, "--json"],
            vec!["modules", "diff", name],
            vec!["modules", "diff", name, "--json"],
            vec!["modules", "approve", name, "--yes"],
        ] {
            commands.push(arguments);
        }
    }
    commands.push(vec!["audit", "search"]);
    let mut broke = Vec::new();
    for arguments in &commands {
        let ran = run(arguments)?;
        let what = format!("`{}`", arguments.join(" "));
        ran.ensure_ended(&what)?;
        shown += 1;
        // What is approved is shown before, as it is inspected.
        let shows_all = arguments.contains(&"inspect") || arguments.contains(&"approve");
        if let Err(fault) = ensure_plain(&ran, &what, shows_all) {
            broke.push(fault.to_string());
        }
    }
    ensure(broke.is_empty(), || {
        format!("{} of {shown}: {}", broke.len(), broke.join("; "))
    })?;
    Ok(format!("{shown} commands show it escaped"))
}

/// What the command printed can neither steer a terminal nor be taken for its own words.
fn ensure_plain(ran: &Ran, what: &str, shows_all: bool) -> Result<(), AttackFailure> {
    for text in [&ran.stdout, &ran.stderr] {
        let found = text.chars().find(|c| steers(*c));
        ensure(found.is_none(), || {
            let at = found.and_then(|c| text.find(c)).unwrap_or(0);
            let around: String = text[at..].chars().take(30).collect();
            format!("{what} prints {found:?} raw: {around:?}")
        })?;
    }
    for heading in ["what it may do", "pin"] {
        let times = ran.stdout.lines().filter(|line| *line == heading).count();
        let most = usize::from(shows_all);
        ensure(times <= most, || {
            format!("{what} shows a forged section {heading:?}")
        })?;
    }
    let forged = ran
        .stdout
        .lines()
        .any(|line| line == "  compute, and nothing else");
    ensure(!forged, || format!("{what} shows a forged line"))
}

/// A character that a terminal obeys, or that reorders or hides others.
pub fn steers(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{3164}'
                | '\u{115f}'
                | '\u{ffa0}'
                | '\u{2800}'
        )
        || matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}
