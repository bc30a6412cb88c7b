//! Row 47: the bytes of files of the host, by names that are not theirs.

use super::host_files::{HostFiles, arena, denied, policy, reserved, writing};
use crate::attack::{Attack, Company};
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use serde_json::json;
use std::fs;
use toolhold_policy::ScratchGrant;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 47,
    name: "reserved_bytes_by_another_name",
    attack: "hard links to a file of the host, in this and in another grant, made before and by the guest",
    must: "none is made, none is written through",
    company: Company::Others,
    tries: |lab| Box::pin(reserved_bytes_by_another_name(lab)),
}];

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
