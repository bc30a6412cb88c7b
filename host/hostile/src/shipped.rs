//! Row 51: another component under the name of a module that comes with the program.

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder, Ran};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use std::future::ready;
use std::time::Duration;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 51,
    name: "foreign_component_under_a_shipped_name",
    attack: "another component as text, calculator, files, search: at first sight, and after the real one ran",
    must: "it waits for a person; the real one runs without",
    company: Company::Others,
    tries: |lab| Box::pin(ready(foreign_component_under_a_shipped_name(lab))),
}];

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 2 << 30,
};
const NAMES: [&str; 4] = ["text", "calculator", "files", "search"];
const SUM: [&str; 4] = [
    "modules",
    "call",
    "calculator.evaluate",
    r#"{"expression":"6 * 7"}"#,
];

/// Files of a module: paths below the modules folder; `NAME` stands for its name.
const PLACES: [(&str, &str); 4] = [
    ("NAME.wasm", ""),
    ("NAME/NAME.wasm", ""),
    ("NAME@9.0.0.wasm", ""),
    (
        "NAME@9.0.0/NAME.wasm",
        "name = \"NAME\"
component = \"NAME.wasm\"
",
    ),
];

fn put(folder: &CommandFolder, name: &str, place: usize, number: u32) -> Result<(), AttackFailure> {
    let (path, manifest) = PLACES[place];
    let named = |text: &str| text.replace("NAME", name);
    if !manifest.is_empty() {
        folder.write(&named("modules/NAME@9.0.0/module.toml"), named(manifest))?;
    }
    let component = components::parse(&components::which(number))?;
    folder.write(&format!("modules/{}", named(path)), component)
}

/// Calls the tool that no shipped module has.
fn call(folder: &CommandFolder, name: &str) -> Result<Ran, AttackFailure> {
    let ran = folder.run(&["modules", "call", &format!("{name}.which")], BOUNDS)?;
    ran.ensure_ended(name)?;
    Ok(ran)
}

fn ensure_waits(folder: &CommandFolder, name: &str, what: &str) -> Result<(), AttackFailure> {
    let ran = call(folder, name)?;
    ensure(ran.code != Some(0), || {
        format!(
            "{what}: another component ran as {name}: {:.200}",
            ran.stdout
        )
    })?;
    ensure(ran.stderr.contains("approve"), || {
        format!(
            "{what}: nobody is told to approve {name}: {:.300}",
            ran.stderr
        )
    })
}

fn foreign_component_under_a_shipped_name(lab: &Lab) -> Result<String, AttackFailure> {
    let mut refused = 0;
    for (number, name) in NAMES.into_iter().enumerate() {
        for (place, (path, _)) in PLACES.into_iter().enumerate() {
            // Each name in one place, or in all of them.
            if place != number && lab.times(true, false) {
                continue;
            }
            let folder = CommandFolder::new(lab)?;
            let what = format!("{path} at first sight");
            put(&folder, name, place, 1)?;
            ensure_waits(&folder, name, &what)?;
            // A component that was only seen has no pin, and neither has a third one.
            ensure_waits(&folder, name, &format!("{what}, again"))?;
            put(&folder, name, place, 2)?;
            ensure_waits(&folder, name, &format!("{what}, then another one"))?;
            refused += 3;
            // A person may want it.
            let approved = folder.run(&["modules", "approve", name, "--yes"], BOUNDS)?;
            ensure(approved.code == Some(0), || {
                format!("{what}: it cannot be approved: {:.300}", approved.stderr)
            })?;
            let ran = call(&folder, name)?;
            ensure(ran.code == Some(0), || {
                format!(
                    "{what}: what a person approved does not run: {:.300}",
                    ran.stderr
                )
            })?;
        }
    }
    // The real one runs without a question, and does not leave its pin to another.
    for (place, (path, _)) in PLACES.into_iter().enumerate() {
        let folder = CommandFolder::new(lab)?;
        let sum = folder.run(&SUM, BOUNDS)?;
        ensure(sum.code == Some(0) && sum.stdout.contains("42"), || {
            format!(
                "the shipped module does not run: {}{}",
                sum.stdout, sum.stderr
            )
        })?;
        put(&folder, "calculator", place, 1)?;
        let what = format!("{path} after the real one ran");
        ensure_waits(&folder, "calculator", &what)?;
        refused += 1;
    }
    // Under a name of its own the same component runs at first sight: it is the name that waits.
    let folder = CommandFolder::new(lab)?;
    put(&folder, "mine", 0, 1)?;
    let ran = call(&folder, "mine")?;
    ensure(ran.code == Some(0), || {
        format!("a module of another name does not run: {:.300}", ran.stderr)
    })?;
    Ok(format!("{refused} calls waited for a person"))
}
