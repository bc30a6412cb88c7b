//! Files from which the host takes decisions, or that it runs, inside of directories that a module may write
//! (docs/security.md, "Files of the host inside of a grant").

use serde_json::json;
use std::collections::BTreeSet;
use support::endpoint::{Endpoint, Scenario};
use support::host::{Finished, Host};
use support::sandbox::repository;
use support::server::Server;
use support::until;

/// The configuration, under a name that is not found by itself.
const NAMED: &str = "proj/host.toml";
const GRANT: &str = "[module.files]\ndirectories = [{ host = \"./proj\", guest = \"/data\", access = \"read-write\" }]\n";
const NEVER: &str = "[modules]\npinning = \"never\"\n";

/// A host with the module `files`, which may write `proj`, and its configuration in that folder.
fn host(config: &str) -> Host {
    let host = Host::new();
    host.ship("files");
    host.write(NAMED, format!("{NEVER}{GRANT}{config}"));
    host
}

fn run(host: &Host, arguments: &[&str]) -> Finished {
    host.run(&[&["--config", NAMED], arguments].concat())
}

/// Has the module write a file of its folder, or over it.
fn write(host: &Host, path: &str, mode: &str) -> Finished {
    let arguments = json!({"path": path, "content": "written by a module", "mode": mode});
    run(
        host,
        &["modules", "call", "files.write", &arguments.to_string()],
    )
}

fn content(host: &Host, path: &str) -> Option<String> {
    std::fs::read_to_string(host.path().join(path)).ok()
}

/// Keys that name a file or a folder: the table, the key in it, and a configuration with a path in `proj`. The second
/// path is what the module tries to write; `None`: the grant itself is refused.
const KEYS: &[(&str, &str, &str, Option<&str>)] = &[
    (
        "RequestsTable",
        "folder",
        "[requests]\nfolder = \"./proj/requests\"",
        Some("requests/a.json"),
    ),
    (
        "KnowledgeTable",
        "weights",
        "[knowledge]\nweights = \"./proj/w.bin\"\ntokenizer = \"./proj/t.json\"",
        Some("w.bin"),
    ),
    (
        "KnowledgeTable",
        "tokenizer",
        "[knowledge]\nweights = \"./proj/w.bin\"\ntokenizer = \"./proj/t.json\"",
        Some("t.json"),
    ),
    (
        "AgentTable",
        "output_schema",
        "[agents.a]\noutput_schema = \"./proj/answer.json\"",
        Some("answer.json"),
    ),
    (
        "PathsTable",
        "state",
        "[paths]\nstate = \"./proj/state\"",
        None,
    ),
    (
        "PathsTable",
        "cache",
        "[paths]\ncache = \"./proj/cache\"",
        Some("cache/compiled/x"),
    ),
    (
        "SecretTable",
        "file",
        "[[module.other.secrets]]\nname = \"key\"\norigin = \"https://example.com\"\nplace = { header = { name = \"Authorization\" } }\nfile = \"./proj/key\"",
        None,
    ),
    (
        "ModulesTable",
        "folder",
        "",
        Some("modules/new/module.toml"),
    ),
    ("ModulesTable", "roots", "", Some("roots/new.wasm")),
    // A program, a script that is there, one that is not there yet, and a file that a variable names.
    (
        "McpTable",
        "command",
        "[mcp.s]\ncommand = [\"./proj/server\"]\ntools = [\"x\"]",
        Some("server"),
    ),
    (
        "McpTable",
        "command",
        "[mcp.s]\ncommand = [\"python3\", \"proj/answer.json\"]\ntools = [\"x\"]",
        Some("answer.json"),
    ),
    (
        "McpTable",
        "command",
        "[mcp.s]\ncommand = [\"sh\", \"-c\", \"exec proj/late.sh\"]\ntools = [\"x\"]",
        Some("late.sh"),
    ),
    (
        "McpTable",
        "env",
        "[mcp.s]\ncommand = [\"server\"]\ntools = [\"x\"]\nenv = { CONFIG = \"proj/answer.json\" }",
        Some("answer.json"),
    ),
];

#[test]
fn no_key_that_names_a_file_leads_to_one_that_a_module_can_write() {
    for (table, key, config, path) in KEYS {
        // Of the table `modules`, the configuration has a part already.
        let modules = match (*table, *key) {
            ("ModulesTable", "folder") => "folder = \"./proj/modules\"\n",
            ("ModulesTable", "roots") => "roots = [\"./modules\", \"./proj/roots\"]\n",
            _ => "",
        };
        let host = Host::new();
        host.ship("files");
        for (path, text) in [
            ("proj/answer.json", "{}"),
            ("proj/key", "secret"),
            ("proj/requests/b.json", "{}"),
            ("proj/modules/files/module.toml", ""),
            ("proj/roots/x", ""),
        ] {
            host.write(path, text);
        }
        for file in ["files.wasm", "module.toml"] {
            let from = host.path().join("modules/files").join(file);
            std::fs::copy(from, host.path().join("proj/modules/files").join(file)).unwrap();
        }
        host.write(NAMED, format!("{NEVER}{modules}{GRANT}{config}\n"));
        let mut command = host.command(&["--config", NAMED, "modules", "call", "files.write"]);
        // The paths of the test itself are stronger than those of the file.
        if *table == "PathsTable" {
            command
                .env_remove("TOOLHOLD_PATHS__STATE")
                .env_remove("TOOLHOLD_PATHS__CACHE");
        }
        let target = path.unwrap_or("free.txt");
        let before = content(&host, &format!("proj/{target}"));
        let mode = if before.is_some() {
            "overwrite"
        } else {
            "create"
        };
        let arguments = json!({"path": target, "content": "written by a module", "mode": mode});
        let done = support::host::finish(command.arg(arguments.to_string()).output().unwrap());
        let what = format!("{table}.{key}: {done:?}");
        assert_ne!(done.code, Some(0), "{what}");
        let words = match path {
            Some(_) => "no grant lets a module change it",
            None => "the grant for it cannot be given",
        };
        assert!(done.stderr.contains(words), "{what}");
        assert_eq!(content(&host, &format!("proj/{target}")), before, "{what}");
    }
}

/// A new key that names a file takes a row above.
#[test]
fn every_key_that_names_a_file_has_a_row() {
    let folder = repository().join("host/runtime/src/config");
    let mut found = BTreeSet::new();
    let mut files = vec![folder];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(path).unwrap();
            files.extend(entries.map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        let mut table = None;
        for line in text.lines() {
            if let Some((_, rest)) = line.split_once("struct ") {
                let name = rest.split([' ', '(', '<']).next().unwrap_or_default();
                table = name.ends_with("Table").then(|| name.to_owned());
            } else if line == "}" {
                table = None;
            } else if let (Some(table), true) = (&table, line.contains("PathBuf")) {
                let field = line.split(':').next().unwrap_or_default();
                let field = field.split_whitespace().last().unwrap_or_default();
                found.insert((table.clone(), field.to_owned()));
            }
        }
    }
    let rows = KEYS
        .iter()
        .map(|(table, key, ..)| ((*table).to_owned(), (*key).to_owned()));
    let rows: BTreeSet<_> = rows.collect();
    // Words of a command are texts.
    let texts = [("McpTable", "command"), ("McpTable", "env")];
    let texts = texts.map(|(table, key)| (table.to_owned(), key.to_owned()));
    found.extend(texts);
    assert_eq!(found, rows);
}

#[test]
fn a_module_goes_on_in_a_folder_with_the_hosts_configuration() {
    let host = host("");
    let denied = write(&host, "host.toml", "overwrite");
    assert!(
        denied.stderr.contains(
            "to change \"host.toml\" in /data, which is the configuration that --config names"
        ),
        "{denied:?}"
    );
    // Another file, a folder, the found file (which is pinned), and a second time.
    for (path, mode) in [
        ("other.toml", "create"),
        ("src/deep/main.rs", "create"),
        ("toolhold.toml", "create"),
        ("other.toml", "append"),
    ] {
        let done = write(&host, path, mode);
        assert_eq!(done.code, Some(0), "{path}: {done:?}");
    }
    assert!(content(&host, NAMED).unwrap().starts_with(NEVER));
    let shown = run(&host, &["doctor"]).stdout;
    assert!(
        shown.contains("it is the configuration that --config names"),
        "{shown}"
    );
    let shown = run(&host, &["policy"]).stdout;
    assert!(
        shown.contains("so the module files cannot change it"),
        "{shown}"
    );
}

#[test]
fn the_files_of_the_users_configuration_are_the_hosts() {
    for (path, words) in [
        (
            ".config/toolhold/config.toml",
            "which is your configuration",
        ),
        (
            ".config/toolhold/secrets.toml",
            "your stored secrets, which no module may read",
        ),
        (".state/grants.toml", "the grant for it cannot be given"),
        (".local/state/toolhold/approvals/x", "which no module may"),
    ] {
        let host = Host::new();
        host.ship("files");
        let (folder, name) = path.rsplit_once('/').unwrap();
        std::fs::create_dir_all(host.path().join(folder)).unwrap();
        for access in ["read-write", "read"] {
            let grant = format!(
                "{NEVER}[module.files]\ndirectories = [{{ host = \"./{folder}\", guest = \"/data\", access = \"{access}\" }}]\n"
            );
            host.write(NAMED, grant);
            let done = write(&host, name, "create");
            assert_ne!(done.code, Some(0), "{path}: {done:?}");
            // The folder of the user's configuration has the secrets, too.
            let words = if path.ends_with("config.toml") {
                "your stored secrets"
            } else {
                words
            };
            assert!(done.stderr.contains(words), "{path} {access}: {done:?}");
        }
    }
}

/// Issue 35, 1: a call rewrites the configuration, and the server runs its commands.
#[test]
fn a_server_takes_bytes_over_that_a_module_may_have_written_when_a_person_trusts_them() {
    let endpoint = Endpoint::start(Scenario::new([]));
    let model = format!(
        "[module.other]\nkey_value = {{}}\n[endpoints.default]\nbase_url = \"{}\"\nmodel = \"m\"\n",
        endpoint.base_url()
    );
    let host = host(&model);
    let server = Server::start(&host, &["--config", NAMED]);
    let mark = host.path().join("native");
    let evil = format!(
        "{NEVER}{GRANT}{model}[mcp.evil]\ncommand = [\"/bin/sh\", \"-c\", \"id > {}\"]\ntools = [\"x\"]\noffer = true\n",
        mark.display()
    );
    // As if another process' module had written it.
    std::fs::write(host.path().join(NAMED), &evil).unwrap();
    until("the refusal", || {
        server
            .said()
            .contains("the module files may write files where it lies")
            .then_some(())
    });
    assert!(
        !server.said().contains("reloaded:") && !mark.exists(),
        "{}",
        server.said()
    );
    // Less holds at once, whoever wrote it, and stays.
    let file = json!({"arguments": {"path": "free.txt", "content": "x"}});
    let call = || server.post("/v1/tools/files.write", &file);
    assert_eq!(call().status, 200);
    let less = format!("{NEVER}{model}");
    std::fs::write(host.path().join(NAMED), &less).unwrap();
    until("less", || {
        let refused = call().text.contains("no directory is granted");
        refused.then_some(())
    });
    let trusted = run(&host, &["trust", "--yes"]);
    assert_eq!(trusted.code, Some(0), "{trusted:?}");
    until("the change", || {
        server.said().contains("reloaded:").then_some(())
    });
}

#[test]
fn sources_that_a_module_may_write_are_not_built_natively() {
    let host = Host::new();
    host.ship("files");
    let manifest =
        "name = \"own\"\nversion = \"0.1.0\"\ndescription = \"x\"\n[build]\nlanguage = \"rust\"\n";
    host.write("proj/own/module.toml", manifest);
    host.write(NAMED, format!("{NEVER}{GRANT}"));
    let refused = run(&host, &["build", "proj/own"]);
    assert!(
        refused.code != Some(0)
            && refused.stderr.contains("the module files may write")
            && refused.stderr.contains("toolhold build --yes"),
        "{refused:?}"
    );
    // What a person has read is built; this has no source.
    let tried = run(&host, &["build", "--yes", "proj/own"]);
    assert!(!tried.stderr.contains("may write"), "{tried:?}");
}
