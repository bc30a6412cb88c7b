//! Row 47: the names of files of the host, by every path that leads there.

use super::host_files::{HostFiles, denied, goes_on, moved, naming, writing};
use crate::attack::{Attack, Company};
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, kind};
use serde_json::json;

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
];

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
