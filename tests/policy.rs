//! `toolhold policy`: what it prints is what holds, and its hash is the one that records carry.

use serde_json::{Value, json};
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::Host;
use support::sandbox::repository;
use support::server::Server;

pub const POLICY: &str = r#"
[shields.private]
kind = "pii"
hide = ["email", "api_key"]
reveal = ["text.reverse"]
block = ["card"]
places = ["output"]

[shields.hosts]
kind = "domains"
allow = ["example.com", "*.example.org"]
tools = ["text"]

[shields.words]
kind = "wasm"
module = "guard"
order = -1
on_failure = "pass"
timeout_ms = 700
settings = { block = ["bomb"] }

[decisions]
default = "on-write"
always = ["text.reverse"]
never = ["text"]
plans = true

[module.text]
scratch = { guest = "/tmp", quota_bytes = 4096 }
"#;

fn host(policy: &str) -> Host {
    let guard = repository().join("tests/components/guard/guard.wasm");
    let host = Host::new();
    host.ship("text")
        .write(
            "modules/guard.wasm",
            std::fs::read(guard).expect("the shield"),
        )
        .write("toolhold.toml", policy);
    host
}

fn json_of(host: &Host, extra: &[&str]) -> Value {
    let shown = host.run(&[&["policy", "--json"], extra].concat());
    assert_eq!(shown.code, Some(0), "{shown:?}");
    serde_json::from_str(&shown.stdout).expect("one object")
}

/// The part of the text under a heading.
fn part<'t>(text: &'t str, heading: &str) -> &'t str {
    let (_, rest) = text.split_once(&format!("\n{heading}\n")).expect(heading);
    rest.split("\n\n").next().unwrap_or_default().trim_end()
}

#[test]
fn policy_is_shown_by_place() {
    let shown = host(POLICY).run(&["policy"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let text = shown.stdout.as_str();
    let names = |heading: &str| -> Vec<&str> {
        part(text, heading)
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .collect()
    };
    assert_eq!(names("screened: input"), ["words"], "{text}");
    assert_eq!(names("screened: tool input"), ["words", "hosts"], "{text}");
    assert_eq!(names("screened: output"), ["words", "private"], "{text}");
    for (heading, says) in [
        ("screened: input", "component guard (sha256:"),
        (
            "screened: input",
            "settings {\"block\":[\"bomb\"]}  (lets pass without a verdict within 700 ms)",
        ),
        (
            "screened: tool input",
            "lets URLs name example.com, *.example.org; only of text  (blocks without",
        ),
        ("screened: output", "blocks card"),
        (
            "hidden from the model",
            "personal data: email; given to text.reverse",
        ),
        ("hidden from the model", "secrets: api_key; given to none"),
        ("calls that wait for a person", "of text: none"),
        ("calls that wait for a person", "of text.reverse: all"),
        (
            "calls that wait for a person",
            "of other tools: those of tools that do not say that they only read",
        ),
        ("calls that wait for a person", "lazy plans wait as a whole"),
        ("granted", "text may"),
        ("granted", "keep 4096 bytes of scratch files in /tmp"),
    ] {
        assert!(
            part(text, heading).contains(says),
            "{heading}: {says}\n{text}"
        );
    }
}

/// Whatever decides what is screened, hidden, asked about or given changes the hash, and nothing else.
#[test]
fn the_hash_is_the_one_that_records_carry() {
    let host = host(POLICY);
    let policy = json_of(&host, &[]);
    let endpoint = Endpoint::start(Scenario::new([done(), done()]));
    let url = endpoint.base_url();
    for extra in [&[][..], &["--tools", "text.count"]] {
        let policy = json_of(&host, extra);
        let done = host.run(&[&["run", "hello", "--json", "--base-url", &url], extra].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(
            done.stdout
                .contains(&format!("\"hash\":{}", policy["hash"])),
            "{policy}\n{}",
            done.stdout
        );
    }
    let text = host.run(&["policy"]).stdout;
    assert!(
        text.contains(policy["hash"].as_str().expect("a hash")),
        "{text}"
    );
    assert_eq!(policy["privacy"]["reveal"], json!(["text.reverse"]));
    assert_eq!(policy["approval"]["tools"]["text.reverse"], "always");
    assert_eq!(policy["shields"][0]["name"], "words");
    assert!(
        policy["grants"]["modules"]["text"]["scratch"].is_object(),
        "{policy}"
    );

    let hash = |policy: &str, extra: &[&str]| {
        host.write("toolhold.toml", policy);
        json_of(&host, extra)["hash"].clone()
    };
    let same = hash(&format!("{POLICY}\n[run]\nmax_steps = 3\n"), &[]);
    assert_eq!(same, policy["hash"]);
    for (from, to) in [
        ("\"bomb\"", "\"bombs\""),
        ("\"email\", ", ""),
        ("\"*.example.org\"", "\"*.example.net\""),
        ("plans = true", "plans = false"),
        ("quota_bytes = 4096", "quota_bytes = 8192"),
        ("timeout_ms = 700", "timeout_ms = 701"),
    ] {
        assert!(POLICY.contains(from), "{from}");
        assert_ne!(
            hash(&POLICY.replace(from, to), &[]),
            policy["hash"],
            "{from}"
        );
    }
    assert_ne!(hash(POLICY, &["--tools", "text.count"]), policy["hash"]);
    // What the model is instructed to do, too.
    let agents = format!("{POLICY}\n[agents.short]\ninstructions = \"Be short.\"\n[agents.same]\n");
    assert_ne!(hash(&agents, &["--agent", "short"]), policy["hash"]);
    assert_eq!(hash(&agents, &["--agent", "same"]), policy["hash"]);
}

const AGENTS: &str = r#"
[modules]
pinning = "never"

[shields.cards]
kind = "pii"
block = ["card"]

[decisions]
always = ["text.hash"]

[module.text]
scratch = { guest = "/tmp", quota_bytes = 4096 }
key_value = {}

[agents.reader]
tools = ["text.count", "text.reverse", "text.hash", "absent"]
decisions = { always = ["text.reverse"] }
grants.text = { scratch = { guest = "/tmp", quota_bytes = 4096 }, environment = { A = "a" } }
shields.mails = { kind = "pii", block = ["email"] }
"#;

/// What holds for one agent, and for a key of it, and the hash that records of its runs carry.
#[test]
fn an_agent_and_a_key_are_shown_what_is_left_for_them() {
    let host = host(AGENTS);
    let make = |arguments: &[&str]| {
        let made = host.run(&[&["keys", "create"], arguments].concat());
        assert_eq!(made.code, Some(0), "{made:?}");
        made.stdout.trim().to_owned()
    };
    let key = make(&["ann", "--tools", "text.count", "--grants", "none"]);
    make(&["other", "--agents", "default"]);
    make(&["gone"]);
    assert_eq!(host.run(&["keys", "revoke", "gone"]).code, Some(0));

    let shown = |extra: &[&str]| {
        let shown = host.run(&[&["policy"], extra].concat());
        assert_eq!(shown.code, Some(0), "{shown:?}");
        shown.stdout
    };
    let everybodys = shown(&[]);
    assert!(!everybodys.contains("mails"), "{everybodys}");
    let agents = shown(&["--agent", "reader"]);
    for (heading, says) in [
        ("screened: input", "cards  blocks card  (blocks without"),
        ("screened: input", "mails  blocks email; this agent's own"),
        ("calls that wait for a person", "of text.reverse: all"),
        ("tools", "text.count\n"),
        ("tools", "text.reverse  waits for a person"),
        ("tools", "absent  is not there, or may not run"),
        ("granted", "keep 4096 bytes of scratch files in /tmp"),
        ("granted", "key_value not granted to this agent"),
        (
            "granted",
            "in vain: the agent leaves environment, which text was not granted",
        ),
    ] {
        assert!(
            part(&agents, heading).contains(says),
            "{heading}: {says}\n{agents}"
        );
    }
    assert!(!part(&agents, "tools").contains("text.diff"), "{agents}");
    assert!(!part(&agents, "granted").contains("remember"), "{agents}");
    let keys = shown(&["--agent", "reader", "--key", "ann"]);
    assert_eq!(part(&keys, "tools"), "  text.count", "{keys}");
    assert!(
        part(&keys, "granted").contains("scratch not granted to this key"),
        "{keys}"
    );
    assert!(
        part(&keys, "granted").contains("  text may\n    nothing"),
        "{keys}"
    );
    let plain = shown(&["--key", "ann"]);
    assert!(
        plain.contains("agent default\n") && !plain.contains("mails"),
        "{plain}"
    );

    let whose = json_of(&host, &["--agent", "reader"]);
    assert_eq!(whose["whose"]["own_shields"], json!(["mails"]));
    assert_eq!(
        whose["tools"],
        json!([
            {"name": "text.count", "waits": false},
            {"name": "text.hash", "waits": false},
            {"name": "text.reverse", "waits": true},
        ])
    );

    let endpoint = Endpoint::start(Scenario::new([done(), done()]));
    let url = endpoint.base_url();
    let mut server = Server::start(&host, &["--base-url", &url, "--model", "m"]);
    server.use_key(&key);
    for (agent, extra) in [
        ("reader", &["--agent", "reader", "--key", "ann"][..]),
        ("default", &["--key", "ann"]),
    ] {
        let task = json!({"agent": agent, "messages": [{"role": "user", "content": "t"}]});
        let run = server.post("/v1/agent", &task).good()["id"].clone();
        let events = server.get(&format!("/v1/runs/{}/events", run.as_str().unwrap()));
        let hash = events.events()[0].json()["request"]["policy"]["hash"].clone();
        assert_eq!(hash, json_of(&host, extra)["hash"], "{agent}");
        assert_ne!(hash, json_of(&host, &["--agent", agent])["hash"], "{agent}");
    }

    for (extra, says) in [
        (&["--agent", "nobody"][..], "there are default, reader"),
        (&["--key", "nobody"], "toolhold keys list"),
        (&["--agent", "reader", "--key", "other"], "only default"),
        (&["--key", "gone"], "revoked"),
    ] {
        let refused = host.run(&[&["policy"], extra].concat());
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains(says), "{says}: {refused:?}");
    }
    let both = host.run(&["policy", "--agent", "reader", "--tools", "text"]);
    assert_eq!(both.code, Some(2), "{both:?}");
}

fn done() -> Reply {
    Reply::solution(json!({"calls": [], "output": "done"}))
}

#[test]
fn without_a_policy_it_says_so() {
    let host = Host::new();
    let shown = host.run(&["policy"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    for heading in ["screened: input", "screened: output"] {
        assert_eq!(part(&shown.stdout, heading), "  by nothing", "{shown:?}");
    }
    assert_eq!(part(&shown.stdout, "hidden from the model"), "  nothing");
    assert_eq!(part(&shown.stdout, "granted"), "  nothing");
}

/// A policy that cannot be enforced is no policy: why not, and what to do.
#[test]
fn a_shield_that_cannot_be_had_is_an_error_with_a_remedy() {
    for (policy, says) in [
        (
            "[shields.words]\nkind = \"wasm\"\nmodule = \"absent\"\n",
            "there is no module \"absent\"",
        ),
        (
            "[shields.words]\nkind = \"wasm\"\nmodule = \"text\"\n",
            "is no shield",
        ),
        (
            "[shields.words]\nkind = \"model\"\nendpoint = \"absent\"\n",
            "absent",
        ),
    ] {
        for form in [&["policy"][..], &["policy", "--json"]] {
            let shown = host(policy).run(form);
            assert_eq!(shown.code, Some(1), "{shown:?}");
            assert_eq!(shown.stdout, "", "{shown:?}");
            for part in [says, "words"] {
                assert!(shown.stderr.contains(part), "{shown:?}");
            }
        }
    }
    let unapproved = host(
        "[modules]\npinning = \"always\"\n[shields.words]\nkind = \"wasm\"\nmodule = \"guard\"\n",
    );
    let shown = unapproved.run(&["policy"]);
    assert_eq!(shown.code, Some(1), "{shown:?}");
    assert!(
        shown.stderr.contains("toolhold modules approve guard"),
        "{shown:?}"
    );
    assert!(
        shown.stderr.contains("no run can start under this policy"),
        "{shown:?}"
    );
}
