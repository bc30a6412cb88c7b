//! Row 47: files from which the host takes decisions, in directories that a module may write.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::ground::FolderSnapshot;
use crate::lab::{Arena, Lab, directory, expect_kind, kind};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use toolhold_policy::{Access, DirectoryGrant, ScratchGrant};
use toolhold_sandbox::{LoadError, Policy, ReservedPath};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 47,
        name: "reserved_names",
        attack: "every change to a file or folder of the host, there or missing, by its path and by links",
        must: "denied; it stays as it was; other files of the folder are written",
        company: Company::Others,
        tries: |lab| Box::pin(reserved_names(lab)),
    },
    Attack {
        row: 47,
        name: "reserved_names_by_a_race",
        attack: "one call swaps a folder and a link to the host's, others write through it",
        must: "nothing of the host's is written",
        company: Company::Others,
        tries: |lab| Box::pin(reserved_names_by_a_race(lab)),
    },
    Attack {
        row: 47,
        name: "reserved_bytes_by_another_name",
        attack: "hard links to a file of the host, in this and in another grant, made before and by the guest",
        must: "none is made, none is written through",
        company: Company::Others,
        tries: |lab| Box::pin(reserved_bytes_by_another_name(lab)),
    },
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

/// ```text
/// work/       granted as /data, read-write
///   conf/host.toml, missing.toml, new/deep/late.toml, requests/, named.toml -> conf/linked.toml    of the host
///   alias -> conf, to-host -> conf/host.toml, dangling -> missing.toml, to-requests -> requests    an operator's
///   second-name, outside-name                          hard links to conf/host.toml, elsewhere/config.toml
/// second/     granted as /second, read-write: the same hard links
/// elsewhere/  config.toml: of the host, not granted
/// ```
struct HostFiles {
    folder: TempDir,
}

/// Role in messages.
const ROLE: &str = "a file of the host";

/// Below `work`.
const RESERVED: [&str; 5] = [
    "work/conf/host.toml",
    "work/missing.toml",
    "work/new/deep/late.toml",
    "work/requests",
    "work/named.toml",
];

impl HostFiles {
    fn new(lab: &Lab) -> Result<Self, AttackFailure> {
        let files = Self {
            folder: lab.folder()?,
        };
        for folder in [
            "work/conf",
            "work/requests/sub",
            "work/spare",
            "second",
            "elsewhere",
        ] {
            fs::create_dir_all(files.at(folder))?;
        }
        for file in [
            "work/conf/host.toml",
            "work/conf/linked.toml",
            "work/requests/one.json",
            "work/requests/sub/two.json",
            "elsewhere/config.toml",
        ] {
            fs::write(files.at(file), "of the host")?;
        }
        for file in ["work/free.txt", "work/conf/free.txt", "second/free.txt"] {
            fs::write(files.at(file), "of the guest")?;
        }
        for (target, name) in [
            ("conf/linked.toml", "work/named.toml"),
            ("conf", "work/alias"),
            ("conf/host.toml", "work/to-host"),
            ("missing.toml", "work/dangling"),
            ("requests", "work/to-requests"),
        ] {
            symlink(target, files.at(name))?;
        }
        for (of, name) in [
            ("work/conf/host.toml", "work/second-name"),
            ("work/conf/host.toml", "second/second-name"),
            ("elsewhere/config.toml", "work/outside-name"),
            ("elsewhere/config.toml", "second/outside-name"),
        ] {
            fs::hard_link(files.at(of), files.at(name))?;
        }
        Ok(files)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn reserved(&self) -> Vec<ReservedPath> {
        let outside = ["elsewhere/config.toml"];
        let all = RESERVED.iter().chain(&outside);
        all.map(|path| reserved(self.at(path), false)).collect()
    }

    fn directories(&self, quota_bytes: Option<u64>) -> Vec<DirectoryGrant> {
        [("work", "/data"), ("second", "/second")]
            .into_iter()
            .map(|(host, guest)| DirectoryGrant {
                quota_bytes,
                ..directory(&self.at(host), guest, Access::ReadWrite)
            })
            .collect()
    }

    async fn arena(&self, lab: &Lab, quota_bytes: Option<u64>) -> Result<Arena, AttackFailure> {
        let directories = self.directories(quota_bytes);
        arena(lab, policy(directories, self.reserved())).await
    }

    /// Everything that must not change.
    fn picture(&self) -> Result<FolderSnapshot, AttackFailure> {
        let mut picture = FolderSnapshot::default();
        for name in [
            "work/conf/host.toml",
            "work/conf/linked.toml",
            "work/requests",
            "work/named.toml",
            "elsewhere",
        ] {
            picture.take(&self.at(name))?;
        }
        for name in ["work/missing.toml", "work/new"] {
            ensure(fs::symlink_metadata(self.at(name)).is_err(), || {
                format!("{name} was made")
            })?;
        }
        Ok(picture)
    }
}

fn reserved(path: PathBuf, is_secret: bool) -> ReservedPath {
    ReservedPath {
        path,
        what: ROLE.into(),
        is_secret,
    }
}

fn policy(directories: Vec<DirectoryGrant>, reserved: Vec<ReservedPath>) -> Policy {
    let mut policy = Policy::default();
    policy.limits.timeout_ms = 10_000;
    policy.limits.calls_per_minute = 0;
    let bad = policy.modules.entry("bad".into()).or_default();
    bad.grant.directories = directories;
    policy.reserved = reserved.into();
    policy
}

async fn arena(lab: &Lab, policy: Policy) -> Result<Arena, AttackFailure> {
    let mut arena = lab.arena(|own| *own = policy)?;
    arena.benign().await?;
    arena.load("bad", components::ATTACKER.to_vec()).await?;
    Ok(arena)
}

/// Every change of the bytes that a path leads to, and of the times.
fn writing(dir: &str, path: &str) -> Vec<(&'static str, Value)> {
    let with = |more: Value| {
        let mut arguments = json!({"dir": dir, "path": path});
        if let (Some(all), Value::Object(more)) = (arguments.as_object_mut(), more) {
            all.extend(more);
        }
        arguments
    };
    vec![
        ("write", with(json!({"content": "gotcha"}))),
        ("overwrite", with(json!({"content": "gotcha"}))),
        ("fill", with(json!({"chunk": 16, "chunks": 2}))),
        ("write_at", with(json!({"offset": 3, "by-stream": false}))),
        ("write_at", with(json!({"offset": 3, "by-stream": true}))),
        ("set_size", with(json!({"size": 0}))),
        ("set_times", with(json!({}))),
    ]
}

/// Every change of the entry that a path names.
fn naming(dir: &str, path: &str) -> Vec<(&'static str, Value)> {
    let at = json!({"dir": dir, "path": path});
    let from = |name: &str| json!({"dir": "/data", "path": name, "to-dir": dir, "to-path": path});
    let to = |to: &str| json!({"dir": dir, "path": path, "to-dir": to, "to-path": "gained"});
    vec![
        (
            "symlink",
            json!({"dir": dir, "target": "free.txt", "path": path}),
        ),
        ("make_dir", at.clone()),
        ("hard_link", from("free.txt")),
        ("hard_link", to("/data")),
        ("hard_link", to("/second")),
        ("rename", from("free.txt")),
        ("rename", from("spare")),
        ("rename", from("alias")),
        ("rename", to("/data")),
        ("rename", to("/second")),
        ("remove", at.clone()),
        ("remove_dir", at),
    ]
}

/// Calls the guest; it must be told that it may not.
async fn denied(arena: &Arena, tool: &str, arguments: &Value) -> Result<(), AttackFailure> {
    let report = arena.call(&format!("bad.{tool}"), arguments.clone()).await;
    ensure(kind(&report) == "tool", || {
        let said = format!("{:?}", report.result);
        format!("{tool} {arguments} was not denied: {said:.200}")
    })
}

/// Paths to a file or folder of the host that lead there without a link of a guest. The links on their way are not
/// reserved themselves, so only what they lead to is tried.
const BY_PATH: [&str; 17] = [
    "conf/host.toml",
    "./conf//host.toml",
    "conf/../conf/host.toml",
    "alias/host.toml",
    "alias/../conf/host.toml",
    "named.toml",
    "conf/linked.toml",
    "missing.toml",
    "new",
    "new/",
    "new/deep",
    "new/deep/late.toml",
    "requests/",
    "requests/one.json",
    "requests/new.json",
    "to-requests/sub/two.json",
    "requests/sub/../new",
];
/// Folders: the names are tried, and not what is written to them.
const FOLDERS: [&str; 4] = ["conf", "requests", "requests/sub", "requests/."];
/// Links and hard links: what they lead to is tried, and not their own names.
const BY_LINK: [&str; 3] = ["to-host", "dangling", "second-name"];

async fn reserved_names(lab: &Lab) -> Result<String, AttackFailure> {
    let mut tried = 0;
    for quota in [None, Some(1 << 20)] {
        let files = HostFiles::new(lab)?;
        let arena = files.arena(lab, quota).await?;
        let before = files.picture()?;
        for (target, made) in [
            ("conf/host.toml", "guest-link"),
            ("alias/host.toml", "guest-alias"),
            ("missing.toml", "guest-dangling"),
            ("requests/new.json", "guest-new"),
        ] {
            let link = json!({"dir": "/data", "target": target, "path": made});
            arena.value("bad.symlink", link).await?;
        }
        let guests = ["guest-link", "guest-alias", "guest-dangling", "guest-new"];
        let written = BY_PATH.iter().chain(&BY_LINK).chain(&guests);
        let named = BY_PATH.iter().chain(&FOLDERS);
        let written = written.flat_map(|path| writing("/data", path));
        let named = named.flat_map(|path| naming("/data", path));
        for (tool, arguments) in written.chain(named) {
            denied(&arena, tool, &arguments).await?;
            before
                .ensure_same(&files.picture()?)
                .map_err(|fault| AttackFailure::Broke(format!("{tool} {arguments}: {fault}")))?;
            tried += 1;
        }
        goes_on(&arena).await?;
        before.ensure_same(&files.picture()?)?;
        arena.unharmed().await?;
    }
    Ok(format!("{tried} attempts denied; nothing changed"))
}

/// The module changes its own files beside those of the host, or nothing is proved.
async fn goes_on(arena: &Arena) -> Result<(), AttackFailure> {
    for folder in ["", "conf/", "alias/", "spare/../conf/"] {
        let path = format!("{folder}own.txt");
        let at = json!({"dir": "/data", "path": path});
        let write = json!({"dir": "/data", "path": path, "content": "mine"});
        arena.value("bad.write", write.clone()).await?;
        arena.value("bad.write", write).await?;
        let seen = arena.value("bad.read", at.clone()).await?;
        ensure(seen == json!("mine"), || format!("{path} holds {seen}"))?;
        arena.value("bad.set_times", at).await?;
        let moved = format!("{folder}moved.txt");
        let arguments = json!({"dir": "/data", "path": path, "to-dir": "/data", "to-path": moved});
        arena.value("bad.rename", arguments).await?;
        let at = json!({"dir": "/data", "path": moved});
        arena.value("bad.remove", at).await?;
        let made = json!({"dir": "/data", "path": format!("{folder}made")});
        arena.value("bad.make_dir", made.clone()).await?;
        arena.value("bad.remove_dir", made).await?;
    }
    Ok(())
}

async fn reserved_names_by_a_race(lab: &Lab) -> Result<String, AttackFailure> {
    let rounds = lab.times(60, 400);
    let files = HostFiles::new(lab)?;
    let arena = files.arena(lab, None).await?;
    let before = files.picture()?;
    let made = json!({"dir": "/data", "path": "a"});
    arena.value("bad.make_dir", made).await?;
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let over = &is_over;
    let ordering = std::sync::atomic::Ordering::Relaxed;
    // The folder `a`, and links to the host's folders in its place.
    let swapping = async {
        for round in 0..rounds {
            let target = ["requests", "conf", "alias"][round % 3];
            for (tool, arguments) in [
                ("rename", moved("a", "b")),
                (
                    "symlink",
                    json!({"dir": "/data", "target": target, "path": "a"}),
                ),
                ("remove", json!({"dir": "/data", "path": "a"})),
                ("rename", moved("b", "a")),
            ] {
                arena.value(&format!("bad.{tool}"), arguments).await?;
            }
        }
        over.store(true, ordering);
        Ok::<_, AttackFailure>(())
    };
    let writer = async |names: &[&str]| {
        let mut tried = 0_u32;
        while !over.load(ordering) {
            for name in names {
                let path = format!("a/{name}");
                let mut all = writing("/data", &path);
                all.push(("remove", json!({"dir": "/data", "path": path})));
                all.push(("rename", moved("free.txt", &path)));
                all.push(("rename", moved(&path, "free.txt")));
                for (tool, arguments) in all {
                    let report = arena.call(&format!("bad.{tool}"), arguments).await;
                    ensure(["ok", "tool"].contains(&kind(&report)), || {
                        format!("{tool} {path}: {:?}", report.result)
                    })?;
                    tried += 1;
                }
            }
        }
        Ok::<_, AttackFailure>(tried)
    };
    let bounded = async |names: &[&str]| {
        let tried = writer(names).await;
        over.store(true, ordering);
        tried
    };
    let (swapped, first, second, third) = tokio::join!(
        async {
            let swapped = swapping.await;
            over.store(true, ordering);
            swapped
        },
        bounded(&["new.json", "one.json"]),
        bounded(&["host.toml", "linked.toml"]),
        bounded(&["sub/two.json", "host.toml"]),
    );
    swapped?;
    let tried = first? + second? + third?;
    before.ensure_same(&files.picture()?)?;
    arena.unharmed().await?;
    Ok(format!(
        "{rounds} swaps against {tried} changes; nothing of the host's changed"
    ))
}

fn moved(from: &str, to: &str) -> Value {
    json!({"dir": "/data", "path": from, "to-dir": "/data", "to-path": to})
}

async fn reserved_bytes_by_another_name(lab: &Lab) -> Result<String, AttackFailure> {
    let mut tried = 0;
    // With and without a reserved name inside of the grant that holds the hard link.
    for is_inside in [true, false] {
        let files = HostFiles::new(lab)?;
        let mut policy = policy(files.directories(None), files.reserved());
        if !is_inside {
            policy.reserved = [reserved(files.at("elsewhere/config.toml"), false)].into();
        }
        let scratch = lab.folder()?;
        policy.storage.scratch = Some(scratch.path().join("scratch"));
        let bad = policy.modules.entry("bad".into()).or_default();
        bad.grant.scratch = Some(ScratchGrant {
            guest: "/scratch".into(),
            ..ScratchGrant::default()
        });
        let arena = arena(lab, policy).await?;
        let content = |name: &str| fs::read_to_string(files.at(name));
        let mut names = vec!["outside-name"];
        if is_inside {
            names.push("second-name");
            // No second name is made.
            for path in ["conf/host.toml", "requests/one.json", "second-name"] {
                for to in ["/data", "/second", "/scratch"] {
                    let arguments = json!({
                        "dir": "/data", "path": path, "to-dir": to, "to-path": "made",
                    });
                    denied(&arena, "hard_link", &arguments).await?;
                    denied(&arena, "rename", &arguments).await?;
                    tried += 2;
                }
            }
        }
        for (dir, name) in names
            .into_iter()
            .flat_map(|name| [("/data", name), ("/second", name)])
        {
            let opened = writing(dir, name).into_iter();
            // The times of a name that an operator made are not the host's to keep.
            for (tool, arguments) in opened.filter(|(tool, _)| *tool != "set_times") {
                denied(&arena, tool, &arguments).await?;
                tried += 1;
            }
            // Under a third name, if there may be one.
            let third = json!({"dir": dir, "path": name, "to-dir": dir, "to-path": "third"});
            if arena.call("bad.hard_link", third).await.result.is_ok() {
                let opened = writing(dir, "third").into_iter();
                for (tool, arguments) in opened.filter(|(tool, _)| *tool != "set_times") {
                    denied(&arena, tool, &arguments).await?;
                    tried += 1;
                }
                let third = json!({"dir": dir, "path": "third"});
                arena.value("bad.remove", third).await?;
            }
        }
        for name in ["work/conf/host.toml", "elsewhere/config.toml"] {
            if is_inside || name.starts_with("elsewhere") {
                let seen = content(name)?;
                ensure(seen == "of the host", || format!("{name} holds {seen}"))?;
            }
        }
        // A file with two names that are both the guest's is written.
        let link = json!({"dir": "/data", "path": "free.txt", "to-dir": "/data", "to-path": "two"});
        arena.value("bad.hard_link", link).await?;
        let write = json!({"dir": "/data", "path": "two", "content": "mine"});
        arena.value("bad.write", write).await?;
        arena.unharmed().await?;
    }
    Ok(format!("{tried} attempts denied; nothing written"))
}

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
    let arena = arena(lab, before()).await?;
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
    let arena = self::arena(lab, policy(readable(), Vec::new())).await?;
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
