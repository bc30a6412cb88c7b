//! Row 47: grants over files and secrets of the host, given before a call and while it runs.

use super::host_files::{
    self, HostFiles, ROLE, denied, goes_on, naming, policy, reserved, writing,
};
use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, directory, expect_kind};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::time::Duration;
use toolhold_policy::Access;
use toolhold_sandbox::LoadError;

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 47,
        name: "grants_over_files_of_the_host",
        attack: "grants in, on and above folders and secrets of the host, by links too",
        must: "refused, with the name of the file",
        company: Company::Others,
        tries: |lab| Box::pin(grants_over_files_of_the_host(lab)),
    },
    Attack {
        row: 47,
        name: "reserved_while_a_call_runs",
        attack: "a running call writes, or reads, what becomes a file of the host",
        must: "ended; nothing written, nothing read after it",
        company: Company::Others,
        tries: |lab| Box::pin(reserved_while_a_call_runs(lab)),
    },
];

/// A grant of one directory, and what is reserved: the path, and whether it is a secret.
struct GrantOver {
    granted: &'static str,
    access: Access,
    reserved: &'static str,
    is_secret: bool,
    is_refused: bool,
}

const fn over(
    granted: &'static str,
    access: Access,
    (reserved, is_secret): (&'static str, bool),
    is_refused: bool,
) -> GrantOver {
    GrantOver {
        granted,
        access,
        reserved,
        is_secret,
        is_refused,
    }
}

/// Reserved, and no secret.
const fn decisive(path: &'static str) -> (&'static str, bool) {
    (path, false)
}

const fn secret(path: &'static str) -> (&'static str, bool) {
    (path, true)
}

const GRANTS: [GrantOver; 24] = {
    use Access::{Read, ReadWrite};
    [
        // In a folder of the host, and the folder itself.
        over("work/requests", ReadWrite, decisive("work/requests"), true),
        over(
            "work/requests/sub",
            ReadWrite,
            decisive("work/requests"),
            true,
        ),
        over(
            "work/to-requests",
            ReadWrite,
            decisive("work/requests"),
            true,
        ),
        over(
            "work/to-requests/sub",
            ReadWrite,
            decisive("work/requests"),
            true,
        ),
        over(
            "work/requests",
            ReadWrite,
            decisive("work/to-requests"),
            true,
        ),
        over(
            "work/spare/../requests",
            ReadWrite,
            decisive("work/requests"),
            true,
        ),
        over("work/requests", Read, decisive("work/requests"), false),
        over("work/requests/sub", Read, decisive("work/requests"), false),
        over("work/requests", Read, secret("work/requests"), true),
        over("work/requests/sub", Read, secret("work/requests"), true),
        over("work/to-requests/sub", Read, secret("work/requests"), true),
        over(
            "work/requests/sub",
            ReadWrite,
            secret("work/requests"),
            true,
        ),
        // Above: a decision stays in the grant, a secret does not.
        over("work", ReadWrite, decisive("work/requests"), false),
        over("work", ReadWrite, decisive("work/conf/host.toml"), false),
        over("work", Read, secret("work/requests"), true),
        over("work", Read, secret("work/conf/host.toml"), true),
        over("work", ReadWrite, secret("work/conf/host.toml"), true),
        over("work/conf", Read, secret("work/to-host"), true),
        over("work/alias", Read, secret("work/conf/host.toml"), true),
        over("work", Read, secret("work/named.toml"), true),
        // It is not there yet.
        over("work", Read, secret("work/new/deep/key"), true),
        over("work", Read, secret("work/dangling"), true),
        // Beside.
        over("work/spare", ReadWrite, secret("work/requests"), false),
        over("second", ReadWrite, secret("elsewhere/config.toml"), false),
    ]
};

async fn grants_over_files_of_the_host(lab: &Lab) -> Result<String, AttackFailure> {
    let (mut refused, mut given) = (0, 0);
    let files = HostFiles::new(lab)?;
    for case in GRANTS {
        let granted = directory(&files.at(case.granted), "/data", case.access);
        let path = files.at(case.reserved);
        let reserved = vec![reserved(path.clone(), case.is_secret)];
        let mut arena = lab.arena(|own| *own = policy(vec![granted], reserved))?;
        arena.benign().await?;
        let loaded = arena.load("bad", components::ATTACKER.to_vec()).await;
        let what = format!(
            "{:?} of {} over {} (secret: {})",
            case.access, case.granted, case.reserved, case.is_secret
        );
        match loaded {
            Err(LoadError::Grant { reason }) if case.is_refused => {
                let is_named = reason.contains(&path.display().to_string());
                ensure(is_named && reason.contains(ROLE), || {
                    format!("{what} was refused without the name of the file: {reason}")
                })?;
                refused += 1;
            }
            Ok(()) if !case.is_refused => given += 1,
            Ok(()) => return Err(AttackFailure::Broke(format!("{what} was given"))),
            Err(other) => {
                return Err(AttackFailure::Broke(format!("{what}: {other}")));
            }
        }
        arena.unharmed().await?;
    }
    Ok(format!("{refused} grants refused, {given} given"))
}

async fn reserved_while_a_call_runs(lab: &Lab) -> Result<String, AttackFailure> {
    const NEWS: &str = "written after it became a secret";
    let files = HostFiles::new(lab)?;
    let late = files.at("work/late.toml");
    let before = || policy(files.directories(None), files.reserved());
    let mut after = before();
    let mut reserved_now = files.reserved();
    reserved_now.push(reserved(late.clone(), false));
    after.reserved = reserved_now.into();

    // A byte at a time for longer than this takes.
    let arena = host_files::arena(lab, before()).await?;
    let fill = json!({"dir": "/data", "path": "late.toml", "chunk": 1, "chunks": 4_000_000});
    let running = async { arena.call("bad.fill", fill).await };
    let governing = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        ensure(length(&late) > 0, || "the call writes nothing".into())?;
        arena.registry.govern(after).await;
        tokio::time::sleep(lab.grace()).await;
        let at_first = length(&late);
        tokio::time::sleep(Duration::from_millis(250)).await;
        Ok::<_, AttackFailure>((at_first, length(&late)))
    };
    let (report, lengths) = tokio::join!(running, governing);
    let (at_first, later) = lengths?;
    ensure(at_first == later, || {
        format!("the call went on to write: {at_first} bytes, then {later}")
    })?;
    expect_kind(&report, "revoked")?;
    let written = fs::read(&late)?;
    for (tool, arguments) in writing("/data", "late.toml")
        .into_iter()
        .chain(naming("/data", "late.toml"))
    {
        denied(&arena, tool, &arguments).await?;
    }
    ensure(fs::read(&late)? == written, || {
        "a later call wrote to it".into()
    })?;
    goes_on(&arena).await?;

    // The same for reading, where it becomes a secret.
    let free = files.at("second/free.txt");
    let readable = || vec![directory(&files.at("second"), "/data", Access::Read)];
    let arena = host_files::arena(lab, policy(readable(), Vec::new())).await?;
    let watch = json!({
        "dir": "/data", "path": "free.txt", "times": 500, "nanoseconds": 10_000_000,
    });
    let running = async { arena.call("bad.watch", watch).await };
    let governing = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let secret = policy(readable(), vec![reserved(free.clone(), true)]);
        arena.registry.govern(secret).await;
        tokio::time::sleep(lab.grace()).await;
        fs::write(&free, NEWS)
    };
    let (report, wrote) = tokio::join!(running, governing);
    wrote?;
    let said = format!("{report:?}");
    ensure(!said.contains(NEWS), || "the call read the secret".into())?;
    expect_kind(&report, "revoked")?;
    let read = json!({"dir": "/data", "path": "free.txt"});
    let said = arena.call("bad.read", read).await;
    ensure(said.result.is_err(), || {
        "a later call read the secret".into()
    })?;
    let failures = arena.registry.failures();
    let is_named = failures.iter().any(|failure| {
        failure
            .error
            .to_string()
            .contains(&free.display().to_string())
    });
    ensure(is_named, || {
        format!("the refusal does not name the file: {failures:?}")
    })?;
    arena.unharmed().await?;
    Ok(format!(
        "ended after {at_first} bytes; the reader ended too"
    ))
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}
