//! Row 56: commands that change the grants at the same time, in processes of their own.

use crate::attack::{Attack, Company};
use crate::command::CommandFolder;
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use std::fs;
use std::future::ready;
use std::io;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 56,
    name: "grants_of_many_processes",
    attack: "processes grant to some modules and revoke from others at the same time, while others read the file",
    must: "each change is kept, none comes back; no reader sees a part of the file",
    company: Company::Others,
    tries: |lab| Box::pin(ready(grants_of_many_processes(lab))),
}];

/// Three groups: granted first and kept, granted first and revoked, granted later.
const KEPT: [&str; 3] = ["alpha", "bravo", "charlie"];
const REVOKED: [&str; 3] = ["delta", "echo", "foxtrot"];
const LATER: [&str; 3] = ["golf", "hotel", "india"];

/// Text that the grant of this module alone has.
fn granted(name: &str) -> String {
    format!("granted-to-{name}")
}

/// Runs these commands about modules at the same time, each in a process of its own.
fn all_at_once(folder: &CommandFolder, commands: &[Vec<String>]) -> Result<(), AttackFailure> {
    let ended: Vec<io::Result<Output>> = std::thread::scope(|scope| {
        let running: Vec<_> = commands
            .iter()
            .map(|command| {
                scope.spawn(move || {
                    let mut arguments = vec!["--config", "host.toml", "modules"];
                    arguments.extend(command.iter().map(String::as_str));
                    folder.command(&arguments).output()
                })
            })
            .collect();
        let join = |each: std::thread::ScopedJoinHandle<'_, io::Result<Output>>| {
            each.join()
                .unwrap_or_else(|_| Err(io::Error::other("a thread of the attack panicked")))
        };
        running.into_iter().map(join).collect()
    });
    for (command, ended) in commands.iter().zip(ended) {
        let ended = ended?;
        ensure(ended.status.success(), || {
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            format!("`modules {}` failed: {said:.300}", command.join(" "))
        })?;
    }
    Ok(())
}

fn grants(names: &[&str]) -> Vec<Vec<String>> {
    let grant = |name: &&str| {
        let variable = format!("WORD={}", granted(name));
        vec![
            "grant".into(),
            (*name).to_owned(),
            "--with-env".into(),
            variable,
        ]
    };
    names.iter().map(grant).collect()
}

/// Reads the file until `is_over`. How often, if each time all of `names` had their grants.
fn read_until(file: &Path, names: &[&str], is_over: &AtomicBool) -> Result<u32, AttackFailure> {
    let mut times = 0;
    while !is_over.load(Ordering::Relaxed) {
        let text = fs::read_to_string(file)?;
        let lost = names.iter().find(|name| !text.contains(&granted(name)));
        ensure(lost.is_none(), || {
            format!("a reader did not see the grant of {lost:?}: {text:?}")
        })?;
        times += 1;
        // About as long as a read: reads go on all the time, and leave most of a processor to the commands.
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(times)
}

fn grants_of_many_processes(lab: &Lab) -> Result<String, AttackFailure> {
    let rounds = lab.times(1, 8);
    let mut reads = 0;
    for _ in 0..rounds {
        let folder = CommandFolder::new(lab)?;
        folder.write("host.toml", "")?;
        for name in [KEPT, REVOKED, LATER].concat() {
            let component = components::parse(&components::which(1))?;
            folder.write(&format!("modules/{name}.wasm"), component)?;
        }
        let file = folder.path().join("state/grants.toml");
        all_at_once(&folder, &grants(&[KEPT, REVOKED].concat()))?;
        let text = fs::read_to_string(&file)?;
        for name in [KEPT, REVOKED].concat() {
            ensure(text.contains(&granted(name)), || {
                format!("the grant of {name} is lost: {text}")
            })?;
        }
        let mut commands = grants(&LATER);
        commands.extend(REVOKED.map(|name| vec!["revoke".into(), name.to_owned()]));
        let is_over = AtomicBool::new(false);
        reads += std::thread::scope(|scope| {
            let reader = scope.spawn(|| read_until(&file, &KEPT, &is_over));
            let changed = all_at_once(&folder, &commands);
            is_over.store(true, Ordering::Relaxed);
            let read = reader
                .join()
                .unwrap_or_else(|_| Err(AttackFailure::Broke("a reader panicked".into())));
            changed.and(read)
        })?;
        let text = fs::read_to_string(&file)?;
        for name in [KEPT, LATER].concat() {
            ensure(text.contains(&granted(name)), || {
                format!("the grant of {name} is lost: {text}")
            })?;
        }
        for name in REVOKED {
            ensure(!text.contains(&granted(name)), || {
                format!("the grant of {name} came back: {text}")
            })?;
        }
    }
    ensure(reads > 0, || "nobody read: nothing is proved".into())?;
    Ok(format!("{} changes kept in {reads} reads", rounds * 12))
}
