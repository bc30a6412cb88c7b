//! Grants and shields of a server: changed while it runs, narrowed by agents and keys.

use super::{answers, ask, calls, host as plain, scripted, serve, until};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use support::endpoint::{Endpoint, Reply, ReplyOrder, Scenario};
use support::host::Host;
use support::sandbox::{component, repository};
use support::server::Server;
use toolhold_hostile::components::COMPUTE;

/// A host that has the probe, too, which uses whatever it was granted.
pub fn host(config: &str) -> Host {
    let host = plain(config);
    let probe = repository().join("modules/sdk/probe/probe.wasm");
    let probe = std::fs::read(probe).expect("the component is built");
    host.write("modules/probe.wasm", probe);
    host
}

/// Has the probe remember something as this agent: what came of it.
fn remember(server: &Server, agent: &str) -> Value {
    let arguments = json!({"key": "a", "value": "1"});
    let body = json!({"agent": agent, "arguments": arguments});
    let answered = server.post("/v1/tools/probe.remember", &body);
    if answered.status == 200 {
        answered.json()
    } else {
        json!({"error": answered.text})
    }
}

fn is_done(made: &Value) -> bool {
    made["result"] == json!(["a"])
}

/// Why it was not done.
fn error(made: &Value) -> &str {
    made["error"].as_str().unwrap_or_default()
}

#[test]
fn grants_and_revocations_reach_a_running_server() {
    let (host, endpoint) = (host(""), scripted([]));
    let server = serve(&host, &endpoint);
    assert!(error(&remember(&server, "default")).contains("Denied"));
    let granted = host.run(&["modules", "grant", "probe", "--key-value"]);
    assert_eq!(granted.code, Some(0), "{granted:?}");
    until("the grant", || {
        is_done(&remember(&server, "default")).then_some(())
    });
    until("what it says of it", || {
        server.said().contains("agents and grants").then_some(())
    });
    let revoked = host.run(&["modules", "revoke", "probe"]);
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    until("its end", || {
        (!is_done(&remember(&server, "default"))).then_some(())
    });
    let gone = remember(&server, "default");
    assert!(error(&gone).contains("probe.remember"), "{gone}");
    let shown = server.get("/v1/modules/probe").good();
    assert_eq!(shown["may"], json!([]));
    assert_eq!(shown["standing"]["state"], "pending");
}

#[test]
fn an_edited_policy_reaches_a_server_that_runs_and_a_broken_one_does_not() {
    let config = |rest: &str| format!("[modules]\npinning = \"never\"\n{rest}");
    let granting = config("[module.probe]\nkey_value = {}\nscratch = {}\n");
    let (host, endpoint) = (host(&granting), scripted([]));
    let server = serve(&host, &endpoint);
    assert!(is_done(&remember(&server, "default")));
    for broken in [
        config("[module.probe]\nkey_values = 1\n"),
        config("[module.probe\n"),
        config(
            "[module.probe]\nscratch = {}\n[shields.one]\nkind = \"wasm\"\nmodule = \"absent\"\n",
        ),
    ] {
        let before = server.said().len();
        host.write("toolhold.toml", &broken);
        until("the error", || {
            let said = server.said();
            said[before..].contains("stay as they were").then_some(())
        });
        assert!(is_done(&remember(&server, "default")), "{broken}");
    }
    host.write("toolhold.toml", config("[module.probe]\nscratch = {}\n"));
    until("less", || {
        error(&remember(&server, "default"))
            .contains("Denied")
            .then_some(())
    });
    host.write("toolhold.toml", &granting);
    until("more", || {
        is_done(&remember(&server, "default")).then_some(())
    });
    let before = server.said().len();
    server.signal("HUP");
    until("the signal", || {
        server.said()[before..].contains("reloaded:").then_some(())
    });
    assert!(is_done(&remember(&server, "default")));
}

/// The file is empty or cut, by a full disk, a shell's `>` or an editor; or an edit takes all grants away beside another
/// change. An unused endpoint is removed at once: the flags name the one that runs use.
#[test]
fn a_file_that_is_emptied_or_cut_takes_nothing_away_until_a_person_asks() {
    let unpinned = "[modules]\npinning = \"never\"\n";
    let granting = &format!("{unpinned}[module.probe]\nkey_value = {{}}\n");
    let other = "[endpoints.other]\nbase_url = \"http://127.0.0.1:9/v1\"\n";
    let whole = format!("{granting}{other}");
    let edited = &format!("{unpinned}[run]\nmax_steps = 7\n");
    let without_grants = &format!("{unpinned}{other}");
    let (host, endpoint) = (host(&whole), scripted([]));
    let server = serve(&host, &endpoint);
    let by_command = || {
        let told = host.run(&["serve", "--reload"]);
        assert_eq!(told.code, Some(0), "{told:?}");
        assert!(told.stdout.contains("reads its files again"), "{told:?}");
    };
    let by_request = || assert_eq!(server.post("/v1/reload", &json!({})).status, 202);
    let before = server.said().len();
    host.write("toolhold.toml", granting);
    until("the reload without an endpoint that nobody uses", || {
        server.said()[before..].contains("reloaded:").then_some(())
    });
    assert!(is_done(&remember(&server, "default")));
    let before = server.said().len();
    host.write("toolhold.toml", &whole);
    until("the whole file", || {
        server.said()[before..].contains("reloaded:").then_some(())
    });
    let confirmations: [(&str, _, &dyn Fn()); 3] = [
        ("", "sets nothing any more", &by_command),
        (edited, "grants nothing any more", &by_command),
        (without_grants, "grants nothing any more", &by_request),
    ];
    for (left, reason, confirm) in confirmations {
        let before = server.said().len();
        host.write("toolhold.toml", left);
        until("the reason", || {
            let said = server.said();
            said[before..].contains(reason).then_some(())
        });
        assert!(is_done(&remember(&server, "default")), "{left}");
        let before = server.said().len();
        confirm();
        until("the confirmed reload", || {
            server.said()[before..].contains("reloaded:").then_some(())
        });
        assert!(!is_done(&remember(&server, "default")));
        let before = server.said().len();
        host.write("toolhold.toml", &whole);
        until("the whole file", || {
            server.said()[before..].contains("reloaded:").then_some(())
        });
        until("its grants", || {
            is_done(&remember(&server, "default")).then_some(())
        });
    }
}

/// The file of `toolhold modules grant` may be emptied, too. `modules revoke` is a decision that needs no confirmation,
/// also for the last grant.
#[test]
fn an_emptied_file_of_grants_takes_nothing_away_and_a_revocation_does() {
    let (host, endpoint) = (host(""), scripted([]));
    let server = serve(&host, &endpoint);
    let grant = || {
        let granted = host.run(&["modules", "grant", "probe", "--key-value"]);
        assert_eq!(granted.code, Some(0), "{granted:?}");
        until("the grant", || {
            is_done(&remember(&server, "default")).then_some(())
        });
    };
    grant();
    let before = server.said().len();
    host.write(".state/grants.toml", "");
    until("the reason", || {
        let said = server.said();
        said[before..]
            .contains("sets nothing any more")
            .then_some(())
    });
    assert!(is_done(&remember(&server, "default")));
    grant();
    let revoked = host.run(&["modules", "revoke", "probe"]);
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    until("the end of the grant", || {
        let shown = server.get("/v1/modules/probe").good();
        (shown["may"] == json!([])).then_some(())
    });
    assert!(!is_done(&remember(&server, "default")));
}

/// A module that takes long to compile holds up neither a grant that is taken back nor other modules.
#[test]
fn what_is_loaded_holds_up_nothing() {
    let config = |rest: &str| {
        format!("[modules]\npinning = \"never\"\n[limits]\ncompile_ms = 60_000\n{rest}")
    };
    let (host, endpoint) = (
        host(&config("[module.probe]\nkey_value = {}\nscratch = {}\n")),
        scripted([]),
    );
    let server = serve(&host, &endpoint);
    assert!(is_done(&remember(&server, "default")));
    let bomb = toolhold_hostile::components::compile_bomb(8_000);
    std::fs::write(host.path().join("part"), bomb).unwrap();
    std::fs::rename(
        host.path().join("part"),
        host.path().join("modules/bomb.wasm"),
    )
    .unwrap();
    host.write("modules/late.wasm", component(COMPUTE));
    until("the other module", || {
        let tools = server.get("/v1/tools").good().to_string();
        tools.contains("late.count").then_some(())
    });
    host.write("toolhold.toml", config("[module.probe]\nscratch = {}\n"));
    until("less", || {
        error(&remember(&server, "default"))
            .contains("Denied")
            .then_some(())
    });
    assert!(
        !server.said().contains("left out"),
        "the module that takes long is still compiled: {}",
        server.said()
    );
}

/// What was shown is what is approved: the component, and what it is given.
#[test]
fn a_pin_is_of_what_was_shown() {
    let (host, endpoint) = (host(""), scripted([]));
    host.write("toolhold.toml", "[module.probe]\nkey_value = {}\n");
    let server = serve(&host, &endpoint);
    let path = "/v1/modules/probe/approve";
    let shown = server.get("/v1/modules/probe").good();
    assert_eq!(shown["standing"]["state"], "pending");
    host.write(
        "toolhold.toml",
        "[module.probe]\nkey_value = {}\nscratch = {}\n",
    );
    until("the wider grant", || {
        let may = server.get("/v1/modules/probe").good()["may"].clone();
        (may.as_array()?.len() == 2).then_some(())
    });
    let of = |shown: &Value| json!({"digest": shown["digest"], "etag": shown["etag"]});
    let stale = server.post(path, &of(&shown));
    assert_eq!(stale.status, 409, "{stale:?}");
    assert!(stale.text.contains("is given"), "{stale:?}");
    let now = server.get("/v1/modules/probe").good();
    assert_eq!(
        (&now["standing"]["state"], &now["digest"]),
        (&json!("pending"), &shown["digest"])
    );
    let mut other = of(&now);
    other["digest"] = json!("sha256:00");
    assert_eq!(server.post(path, &other).status, 409);
    let unseen = server.post(path, &json!({"digest": now["digest"]}));
    assert_eq!(unseen.status, 400, "{unseen:?}");
    let approved = server.post(path, &of(&now)).good();
    assert_eq!(approved["standing"]["state"], "approved");
    assert!(is_done(&remember(&server, "default")));
}

/// The endpoint takes its time to say which models it has; what happens to the modules meanwhile is noticed.
#[test]
fn a_module_that_comes_while_the_server_starts_is_loaded() {
    let host = host("");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (part, late) = (
        host.path().join("part"),
        host.path().join("modules/late.wasm"),
    );
    std::fs::write(&part, component(COMPUTE)).unwrap();
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut asked = [0; 4_096];
            if !matches!(client.read(&mut asked), Ok(1..)) {
                continue;
            }
            let _ = std::fs::rename(&part, &late);
            let models = r#"{"object":"list","data":[{"id":"m"}]}"#;
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json";
            let length = models.len();
            let _ = write!(client, "{head}\r\ncontent-length: {length}\r\n\r\n{models}");
        }
    });
    let server = Server::start(&host, &["--base-url", &url]);
    until("the module", || {
        let tools = server.get("/v1/tools").good().to_string();
        tools.contains("late.count").then_some(())
    });
}

#[test]
fn an_agent_has_less_of_what_modules_are_granted() {
    let config = |agent: &str| {
        format!(
            "[modules]\npinning = \"never\"\n[module.probe]\nkey_value = {{}}\nscratch = {{}}\n\
             [agents.whole]\ndescription = \"all\"\n[agents.narrow.grants.probe]\n{agent}"
        )
    };
    let (host, endpoint) = (host(&config("")), scripted([]));
    let server = serve(&host, &endpoint);
    assert!(is_done(&remember(&server, "whole")));
    let denied = remember(&server, "narrow");
    assert!(
        error(&denied).contains("key_value not granted to this agent"),
        "{denied}"
    );
    host.write("toolhold.toml", config("key_value = { quota_bytes = 1 }\n"));
    until("a little", || {
        error(&remember(&server, "narrow"))
            .contains("Quota")
            .then_some(())
    });
    host.write("toolhold.toml", config("key_value = {}\n"));
    until("all of it", || {
        is_done(&remember(&server, "narrow")).then_some(())
    });
    // What the module was not granted, no agent gives it.
    let widening =
        config("key_value = {}\nenvironment = { A = \"a\" }\ntools = [\"calculator\"]\n");
    let before = server.said().len();
    host.write("toolhold.toml", widening);
    let ask = json!({"tool": "calculator.evaluate", "arguments": {"expression": "1"}});
    let body = json!({"agent": "narrow", "arguments": ask});
    until("the wider share", || {
        let said = server.said();
        said[before..].contains("reloaded:").then_some(())
    });
    let asked = server.post("/v1/tools/probe.ask", &body).good();
    assert!(
        error(&asked).contains("was not granted the tool"),
        "{asked}"
    );
    // The record names the policy that it was under, which is each agent's own.
    let hash = |agent: &str| {
        let run = remember(&server, agent)["run"].as_str().unwrap().to_owned();
        let event = &server.get(&format!("/v1/runs/{run}/events")).events()[0];
        event.json()["request"]["policy"]["hash"].clone()
    };
    assert_ne!(hash("whole"), hash("narrow"));
}

#[test]
fn an_agents_shields_are_beside_those_of_everybody() {
    let config = |own: &str| {
        format!(
            "[shields.cards]\nkind = \"pii\"\nblock = [\"card\"]\n[agents.free]\ndescription = \"free\"\n\
             [agents.strict.shields.{own}]\nkind = \"pii\"\nblock = [\"email\"]\n"
        )
    };
    let host = host(&config("mails"));
    let endpoint = Endpoint::start(Scenario::new([answers("done")]).in_order(ReplyOrder::Repeat));
    let server = serve(&host, &endpoint);
    let came_of = |agent: &str, text: &str| {
        let mut task = ask(text);
        task["agent"] = agent.into();
        server.post("/v1/agent", &task).good()["reason"].clone()
    };
    let (card, mail) = ("4111 1111 1111 1111", "ada@example.org");
    for (agent, text, reason) in [
        ("free", "hello", "output"),
        ("free", card, "blocked"),
        ("free", mail, "output"),
        ("strict", "hello", "output"),
        ("strict", card, "blocked"),
        ("strict", mail, "blocked"),
    ] {
        assert_eq!(came_of(agent, text), reason, "{agent}: {text}");
    }
    let before = server.said().len();
    host.write("toolhold.toml", config("cards"));
    until("the error", || {
        let said = server.said();
        said[before..]
            .contains("never in their place")
            .then_some(())
    });
    assert_eq!(came_of("strict", mail), "blocked", "as it was");
}

/// A key may use less than its agent, in runs and in direct calls, and the model learns that the key is the reason.
#[test]
fn a_key_has_less_than_its_agent() {
    let config = "[modules]\npinning = \"never\"\n[module.probe]\nkey_value = {}\n";
    let host = host(config);
    let endpoint = scripted([
        calls([("probe.remember", json!({"key": "a", "value": "1"}))]),
        answers("It did not work."),
    ]);
    let key = |arguments: &[&str]| {
        let made = host.run(&[&["keys", "create"], arguments].concat());
        assert_eq!(made.code, Some(0), "{made:?}");
        made.stdout.trim().to_owned()
    };
    let whole = key(&["whole"]);
    let some = key(&["some", "--grants", "scratch,probe:key_value"]);
    let none = key(&["nothing", "--grants", "none"]);
    let wrong = host.run(&["keys", "create", "wrong", "--grants", "files"]);
    assert_eq!(wrong.code, Some(1), "{wrong:?}");
    assert!(
        wrong.stderr.contains("key_value") && wrong.stderr.contains("none alone"),
        "{wrong:?}"
    );
    let listed = host.run(&["keys", "list"]).stdout;
    assert!(
        listed.contains("grants scratch, probe:key_value"),
        "{listed}"
    );
    assert!(listed.contains("grants none"), "{listed}");
    let told = host
        .run(&["audit", "search", "--json", "probe:key_value"])
        .stdout;
    assert!(told.contains("key_created"), "{told}");

    let mut server = serve(&host, &endpoint);
    for key in [&whole, &some] {
        server.use_key(key);
        assert!(is_done(&remember(&server, "default")));
    }
    server.use_key(&none);
    let denied = remember(&server, "default");
    assert!(
        error(&denied).contains("key_value not granted to this key"),
        "{denied}"
    );
    server.post("/v1/agent", &ask("Remember it.")).good();
    let shown = endpoint.requests()[1].to_string();
    assert!(shown.contains("not granted to this key"), "{shown}");
}

/// Pieces of an answer come before a shield has seen it, and the record of a run holds it whatever the shield
/// says: the record is for the operator.
#[test]
fn text_removed_by_an_output_shield_is_in_no_event_for_others() {
    let shield = "[shields.cards]\nkind = \"pii\"\nblock = [\"card\"]\nplaces = [\"output\"]\n";
    let host = host(shield);
    let card = "4111 1111 1111 1111";
    // A blocked answer goes back to the model once.
    let calls = calls([("probe.answer", json!({}))]);
    let endpoint = scripted([calls, answers(card), answers(card)]);
    let key = |arguments: &[&str]| {
        let made = host.run(&[&["keys", "create"], arguments].concat());
        made.stdout.trim().to_owned()
    };
    let (ann, root) = (key(&["ann"]), key(&["root", "--scopes", "admin"]));
    let mut server = serve(&host, &endpoint);
    server.use_key(&ann);
    let mut task = ask("t");
    task["stream"] = true.into();
    let live = server.post("/v1/agent", &task);
    let run = live.events()[0].json()["run"].as_str().unwrap().to_owned();
    let path = format!("/v1/runs/{run}/events");
    let whole = server.get(&path);
    let rest = server.get(&format!("{path}?after=2"));
    for told in [&live, &whole, &rest] {
        assert!(!told.text.contains(card), "{}", told.text);
        let kinds: Vec<String> = told.events().into_iter().map(|sent| sent.event).collect();
        assert!(!kinds.iter().any(|kind| kind == "delta"), "{kinds:?}");
        assert!(kinds.iter().any(|kind| kind == "tool_result"), "{kinds:?}");
        assert_eq!(told.events().last().unwrap().json()["reason"], "blocked");
    }
    server.use_key(&root);
    assert!(server.get(&path).text.contains(card), "it is in the record");

    // Nor where the model does not keep the form of an answer.
    let prose = Reply::content(format!("It is {card}, of course."));
    let endpoint = Endpoint::start(Scenario::new([prose]).in_order(ReplyOrder::Repeat));
    let mut server = serve(&host, &endpoint);
    server.use_key(&ann);
    let whole = server.post("/v1/agent", &ask("t"));
    let live = server.post("/v1/agent", &task);
    for told in [&whole, &live] {
        assert!(!told.text.contains(card), "{}", told.text);
        assert!(told.text.contains("could not be used"), "{}", told.text);
    }
}
