//! Rows 10 and 11: ways out of a granted directory, and writing where only reading was granted.

use crate::attack::{Attack, Company};
use crate::fault::{AttackFailure, ensure};
use crate::ground::{AttackFolders, SECRET};
use crate::lab::{Arena, Lab, kind, ms};
use serde_json::{Value, json};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};
use toolhold_policy::Grant;

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 10,
        name: "paths_that_lead_out",
        attack: "../, absolute, .. after links, NUL, long: all operations",
        must: "denied; nothing outside touched",
        company: Company::Others,
        tries: |lab| Box::pin(paths_that_lead_out(lab)),
    },
    Attack {
        row: 10,
        name: "links_that_lead_out",
        attack: "symbolic links out, absolute, in chains, in loops",
        must: "denied; nothing outside touched",
        company: Company::Others,
        tries: |lab| Box::pin(links_that_lead_out(lab)),
    },
    Attack {
        row: 10,
        name: "links_that_a_guest_makes",
        attack: "links made by the guest, then followed",
        must: "denied; nothing outside touched",
        company: Company::Others,
        tries: |lab| Box::pin(links_that_a_guest_makes(lab)),
    },
    Attack {
        row: 10,
        name: "across_grants",
        attack: "hard link and rename from read to read-write",
        must: "denied; the file stays unwritable",
        company: Company::Others,
        tries: |lab| Box::pin(across_grants(lab)),
    },
    Attack {
        row: 10,
        name: "special_files",
        attack: "FIFO, device, socket in a granted directory",
        must: "denied in time; no thread blocked",
        company: Company::Others,
        tries: |lab| Box::pin(special_files(lab)),
    },
    Attack {
        row: 11,
        name: "write_under_a_read_grant",
        attack: "every change under a read-only grant",
        must: "denied; nothing changed",
        company: Company::Others,
        tries: |lab| Box::pin(write_under_a_read_grant(lab)),
    },
];

/// An arena in which the guest of `attacker/` has `/data`, `/second` and `/readable`.
async fn on(ground: &AttackFolders, lab: &Lab) -> Result<Arena, AttackFailure> {
    let grant = Grant {
        directories: ground.directories(),
        ..Grant::default()
    };
    lab.against_guest(grant, |l| l.timeout_ms = 2_000).await
}

/// Everything that follows `path` to what it names.
fn following(dir: &str, path: &str) -> Vec<(&'static str, Value)> {
    let at = json!({"dir": dir, "path": path});
    let with = |key: &str, value: Value| {
        let mut at = at.clone();
        at[key] = value;
        at
    };
    vec![
        ("read", at.clone()),
        ("write", with("content", json!("gotcha"))),
        ("overwrite", with("content", json!("gotcha"))),
        ("list", at.clone()),
        ("stat", at.clone()),
        ("set_size", with("size", json!(0))),
        ("set_times", at.clone()),
        ("through", with("then", json!("secret.txt"))),
    ]
}

/// Everything else that can be done to `path`.
fn naming(dir: &str, path: &str) -> Vec<(&'static str, Value)> {
    let at = json!({"dir": dir, "path": path});
    let to = json!({"dir": dir, "path": path, "to-dir": "/data", "to-path": "gained"});
    let from = json!({"dir": "/data", "path": "file.txt", "to-dir": dir, "to-path": path});
    let link = json!({"dir": dir, "target": "file.txt", "path": path});
    let fill = json!({"dir": dir, "path": path, "chunk": 1024, "chunks": 4});
    vec![
        ("read_nofollow", at.clone()),
        ("read_link", at.clone()),
        ("make_dir", at.clone()),
        ("remove", at.clone()),
        ("remove_dir", at),
        ("fill", fill),
        ("rename", to.clone()),
        ("hard_link", to),
        ("rename", from.clone()),
        ("hard_link", from),
        ("symlink", link),
    ]
}

/// Calls the guest; the operation must be denied.
async fn denied(arena: &Arena, tool: &str, arguments: &Value) -> Result<(), AttackFailure> {
    let report = arena.call(&format!("bad.{tool}"), arguments.clone()).await;
    let said = format!("{:?}", report.result);
    ensure(!said.contains(SECRET), || {
        format!("{tool} {arguments:.200} read the secret")
    })?;
    ensure(kind(&report) == "tool", || {
        format!("{tool} {arguments} was not denied: {said:.200}")
    })
}

async fn paths_that_lead_out(lab: &Lab) -> Result<String, AttackFailure> {
    let ground = AttackFolders::new(lab)?;
    let arena = on(&ground, lab).await?;
    let before = ground.picture()?;
    let outside = ground.root().join("outside/secret.txt");
    let outside = outside.display().to_string();
    let long = "sub/../".repeat(3_000) + "../outside/secret.txt";
    let endless = "a/".repeat(40_000) + "x";
    let paths = [
        "../outside/secret.txt",
        "../outside/dir",
        "../outside/",
        "../outside/new.txt",
        "..",
        "../",
        "../../../../../../../../etc/passwd",
        "./../outside/secret.txt",
        "sub/../../outside/secret.txt",
        "sub/./.././../outside/secret.txt",
        "sub//..//..//outside//secret.txt",
        "/etc/passwd",
        "//etc/passwd",
        "/",
        outside.as_str(),
        "dir/secret.txt",
        "dir/dir/secret.txt",
        "dir/new.txt",
        "dir/../outside/secret.txt",
        "dir/../inside/file.txt",
        "absolute-dir/secret.txt",
        "absolute-dir/../outside/secret.txt",
        "link/../../outside/secret.txt",
        "sub/../dir/secret.txt",
        "loop/secret.txt",
        "file.txt/../../outside/secret.txt",
        "../readable/file.txt",
        "file.txt\0/../../outside/secret.txt",
        "../outside/secret.txt\0",
        long.as_str(),
        endless.as_str(),
        &"n".repeat(300),
        "",
    ];
    let mut tried = 0;
    for path in paths {
        for (tool, arguments) in following("/data", path)
            .into_iter()
            .chain(naming("/data", path))
        {
            // A name that is too long or unknown may be made anew inside, and "" may be looked at.
            if path == endless || path.is_empty() {
                let report = arena.call(&format!("bad.{tool}"), arguments).await;
                ensure(["tool", "ok"].contains(&kind(&report)), || {
                    format!("{tool} with a path of {} bytes: {report:?}", path.len())
                })?;
            } else {
                denied(&arena, tool, &arguments).await?;
            }
            tried += 1;
        }
    }
    before.ensure_same(&ground.picture()?)?;
    arena.unharmed().await?;
    Ok(format!("{tried} attempts denied; nothing outside touched"))
}

async fn links_that_lead_out(lab: &Lab) -> Result<String, AttackFailure> {
    let ground = AttackFolders::new(lab)?;
    let arena = on(&ground, lab).await?;
    let before = ground.picture()?;
    let mut tried = 0;
    for link in [
        "link",
        "link/",
        "link/.",
        "absolute-link",
        "chain",
        "dir",
        "dir/",
        "dir/.",
        "absolute-dir",
        "dangling",
        "loop",
        "zero",
        "environ",
        "sub/../link",
    ] {
        for (tool, arguments) in following("/data", link) {
            denied(&arena, tool, &arguments).await?;
            tried += 1;
        }
        denied(
            &arena,
            "read_nofollow",
            &json!({"dir": "/data", "path": link}),
        )
        .await?;
    }
    denied(&arena, "read", &json!({"dir": "/readable", "path": "link"})).await?;
    before.ensure_same(&ground.picture()?)?;
    arena.unharmed().await?;
    Ok(format!(
        "{} attempts denied; nothing outside touched",
        tried + 15
    ))
}

async fn links_that_a_guest_makes(lab: &Lab) -> Result<String, AttackFailure> {
    let ground = AttackFolders::new(lab)?;
    let arena = on(&ground, lab).await?;
    let before = ground.picture()?;
    let outside = ground.root().join("outside");
    let targets = [
        "../outside/secret.txt",
        "../outside",
        "sub/../../outside/secret.txt",
        "../inside/link",
        "/etc/passwd",
        "/proc/self/root",
        "..",
        &outside.display().to_string(),
    ];
    let mut made = 0;
    for (number, target) in targets.into_iter().enumerate() {
        let name = format!("own-{number}");
        let arguments = json!({"dir": "/data", "target": target, "path": name});
        // Creating such a link may be allowed or refused; following it out is never allowed.
        if arena.call("bad.symlink", arguments).await.result.is_err() {
            continue;
        }
        made += 1;
        followed(&arena, "/data", &name).await?;
        // From elsewhere, too.
        let arguments = json!({"dir": "/data", "path": name, "to-dir": "/second", "to-path": name});
        arena.value("bad.rename", arguments).await?;
        followed(&arena, "/second", &name).await?;
    }
    ensure(made > 0, || "the guest could make no link at all".into())?;
    before.ensure_same(&ground.picture()?)?;
    arena.unharmed().await?;
    Ok(format!(
        "{made} of 8 links could be made, none followed out"
    ))
}

/// A link that leads out, and everything below it, is denied.
async fn followed(arena: &Arena, dir: &str, link: &str) -> Result<(), AttackFailure> {
    for path in [link.to_owned(), format!("{link}/secret.txt")] {
        for (tool, arguments) in following(dir, &path) {
            denied(arena, tool, &arguments).await?;
        }
    }
    Ok(())
}

async fn across_grants(lab: &Lab) -> Result<String, AttackFailure> {
    let ground = AttackFolders::new(lab)?;
    let arena = on(&ground, lab).await?;
    let before = ground.picture()?;
    let (readable, data) = (("/readable", "file.txt"), ("/data", "gained"));
    for (from, to) in [
        (readable, data),
        (("/data", "file.txt"), ("/readable", "given")),
        (("/readable", "sub"), data),
        (readable, ("/readable", "renamed")),
    ] {
        let arguments = json!({"dir": from.0, "path": from.1, "to-dir": to.0, "to-path": to.1});
        denied(&arena, "hard_link", &arguments).await?;
        denied(&arena, "rename", &arguments).await?;
    }
    // Between two read-write grants a file may move: both are the guest's.
    let arguments =
        json!({"dir": "/data", "path": "file.txt", "to-dir": "/second", "to-path": "moved"});
    arena.value("bad.rename", arguments).await?;
    before.ensure_same(&ground.picture()?)?;
    arena.unharmed().await?;
    Ok("denied, eight times; nothing gained".into())
}

async fn special_files(lab: &Lab) -> Result<String, AttackFailure> {
    let ground = AttackFolders::new(lab)?;
    let mut kinds = vec!["FIFO", "socket"];
    if !ground.special("mkfifo", "fifo", &[]) {
        return Err(AttackFailure::Unable(
            "no FIFO can be made here: `mkfifo` is missing".into(),
        ));
    }
    // Needs a privilege that a user rarely has.
    let device = ground.special("mknod", "device", &["c", "1", "5"]);
    if device {
        kinds.push("device");
    }
    let _socket = UnixListener::bind(ground.inside("socket"))?;
    let arena = on(&ground, lab).await?;
    let mut slowest = Duration::ZERO;
    for name in ["fifo", "socket", "device"] {
        if name == "device" && !device {
            continue;
        }
        for (tool, arguments) in following("/data", name) {
            // What it is may be asked, and its times are the directory's own affair.
            if ["stat", "set_times"].contains(&tool) {
                continue;
            }
            let started = Instant::now();
            denied(&arena, tool, &arguments).await?;
            slowest = slowest.max(started.elapsed());
        }
        let arguments = json!({"dir": "/data", "path": name});
        denied(&arena, "read_nofollow", &arguments).await?;
    }
    arena.unharmed().await?;
    Ok(format!(
        "{} denied; slowest after {}",
        kinds.join(", "),
        ms(slowest)
    ))
}

async fn write_under_a_read_grant(lab: &Lab) -> Result<String, AttackFailure> {
    let ground = AttackFolders::new(lab)?;
    let arena = on(&ground, lab).await?;
    let before = ground.picture()?;
    // Reading must work, or nothing is proved.
    let read = json!({"dir": "/readable", "path": "file.txt"});
    let content = arena.value("bad.read", read).await?;
    ensure(content == json!("granted"), || format!("it read {content}"))?;
    let reading = [
        "read",
        "list",
        "stat",
        "through",
        "read_nofollow",
        "read_link",
    ];
    let mut tried = 0;
    for path in ["file.txt", "sub/deep.txt", "sub", "new.txt", "link", "."] {
        for (tool, arguments) in following("/readable", path)
            .into_iter()
            .chain(naming("/readable", path))
        {
            if !reading.contains(&tool) {
                denied(&arena, tool, &arguments).await?;
                tried += 1;
            }
        }
    }
    before.ensure_same(&ground.picture()?)?;
    arena.unharmed().await?;
    Ok(format!("{tried} attempts denied; nothing changed"))
}
