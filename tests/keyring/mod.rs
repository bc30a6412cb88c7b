//! `toolhold secrets` with a keyring: a session bus of its own, and a service on it that does as it is told.

mod service;

use crate::secrets::{KEY, endpoint, run, set_with};
use crate::terminal::at_terminal;
use serde_json::{Value, json};
use service::{Answer, Bus, Keyring};
use std::process::Command;
use std::time::{Duration, Instant};
use support::host::{Finished, Host, finish};
use support::sandbox::repository;
use support::server::Server;
use support::until;
use toolhold_needs::{Need, leave_out};

/// What a question to a keyring that does not answer may take, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// A person with a session bus.
struct User {
    host: Host,
    bus: Bus,
}

impl User {
    /// `None` where no bus can be started.
    fn new() -> Option<Self> {
        let Some(bus) = Bus::start() else {
            leave_out(
                Need::Dbus,
                "dbus-daemon is not installed, so no keyring is asked",
            );
            return None;
        };
        let host = Host::new();
        Some(Self { host, bus })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.host.command(arguments);
        command.env("DBUS_SESSION_BUS_ADDRESS", self.bus.address());
        command
    }

    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Finished {
        let mut command = self.command(arguments);
        command.envs(variables.iter().copied());
        let started = Instant::now();
        let done = finish(command.output().unwrap());
        assert!(started.elapsed() < SOON, "{arguments:?}: {done:?}");
        assert!(!format!("{done:?}").contains(KEY), "{arguments:?}");
        done
    }

    fn set(&self, name: &str, variables: &[(&str, &str)]) -> Finished {
        let mut command = self.command(&["secrets", "set", name]);
        command.envs(variables.iter().copied());
        let started = Instant::now();
        let done = set_with(command, KEY);
        assert!(started.elapsed() < SOON, "{done:?}");
        done
    }

    /// Asks a model with the key that is kept as OPENAI_API_KEY.
    fn ask(&self, variables: &[(&str, &str)]) -> Finished {
        let address = ("DBUS_SESSION_BUS_ADDRESS", self.bus.address());
        run(&self.host, &endpoint(), &[&[address], variables].concat())
    }

    fn file(&self) -> String {
        let path = self.host.path().join(".config/toolhold/secrets.toml");
        std::fs::read_to_string(path).unwrap_or_default()
    }

    fn list(&self) -> String {
        let listed = self.run(&["secrets", "list"], &[]);
        assert_eq!(listed.code, Some(0), "{listed:?}");
        listed.stdout
    }
}

const FILE: (&str, &str) = ("TOOLHOLD_SECRETS__STORE", "file");
const KEYRING: (&str, &str) = ("TOOLHOLD_SECRETS__STORE", "keyring");

#[test]
fn a_key_is_kept_in_the_keyring_and_used_from_there() {
    let Some(user) = User::new() else { return };
    let keyring = Keyring::start(&user.bus);
    let kept = user.set("openai", &[]);
    assert_eq!(kept.code, Some(0), "{kept:?}");
    assert_eq!(kept.stdout, "kept OPENAI_API_KEY in the keyring\n");
    assert_eq!(kept.stderr, "");
    assert_eq!(keyring.secrets()["OPENAI_API_KEY"], KEY);
    assert!(!user.file().contains(KEY), "{}", user.file());
    assert_eq!(user.list(), "OPENAI_API_KEY  (in the keyring)\n");
    let listed = user.run(&["secrets", "list", "--json"], &[]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed[0]["place"], "keyring");
    for store in ["auto", "keyring"] {
        let done = user.ask(&[("TOOLHOLD_SECRETS__STORE", store)]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.stdout.contains("done"), "{done:?}");
    }
    let again = user.set("OPENAI_API_KEY", &[]);
    assert_eq!(again.stdout, "replaced OPENAI_API_KEY in the keyring\n");
    assert_eq!(keyring.state().items.len(), 1);
    let doctor = user.run(&["doctor"], &[]);
    assert!(
        doctor
            .stdout
            .contains("secrets: new ones are kept in the keyring"),
        "{doctor:?}"
    );
    let removed = user.run(&["secrets", "remove", "openai"], &[]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert!(keyring.secrets().is_empty());
    assert_eq!(user.list(), "");
    let again = user.run(&["secrets", "remove", "openai"], &[]);
    assert!(
        again.stderr.contains("no secret OPENAI_API_KEY"),
        "{again:?}"
    );
    assert_eq!(keyring.state().asked, 0);
}

#[test]
fn a_secret_that_is_kept_anew_leaves_its_older_place() {
    let Some(user) = User::new() else { return };
    let keyring = Keyring::start(&user.bus);
    let kept = user.set("A_KEY", &[FILE]);
    assert!(kept.stdout.contains("secrets.toml"), "{kept:?}");
    assert!(user.file().contains(KEY) && keyring.secrets().is_empty());
    let kept = user.set("A_KEY", &[]);
    assert_eq!(kept.stdout, "replaced A_KEY in the keyring\n");
    assert!(!user.file().contains(KEY) && keyring.secrets().len() == 1);
    let kept = user.set("A_KEY", &[FILE]);
    assert_eq!((kept.code, &*kept.stderr), (Some(0), ""), "{kept:?}");
    assert!(user.file().contains(KEY) && keyring.secrets().is_empty());
    // Two of one name, which somebody else made: neither is taken for the one, and all of them go.
    keyring.put("OPENAI_API_KEY", b"one");
    keyring.put("OPENAI_API_KEY", b"two");
    let refused = user.ask(&[KEYRING]);
    assert!(
        refused.stderr.contains("2 secrets of this name"),
        "{refused:?}"
    );
    let kept = user.set("OPENAI_API_KEY", &[]);
    assert_eq!(kept.code, Some(0), "{kept:?}");
    assert_eq!(keyring.secrets().len(), 1);
    assert_eq!(user.ask(&[]).code, Some(0));
}

/// Where each place has one, the file says which holds; a store that was chosen is not mixed with the other.
#[test]
fn the_file_says_where_a_secret_lies() {
    let Some(user) = User::new() else { return };
    let keyring = Keyring::start(&user.bus);
    // Not ours until it is kept, or the keyring is the store.
    keyring.put("OPENAI_API_KEY", KEY.as_bytes());
    assert_eq!(user.ask(&[]).code, Some(3));
    assert_eq!(user.ask(&[KEYRING]).code, Some(0));
    let listed = user.run(&["secrets", "list"], &[KEYRING]);
    assert_eq!(listed.stdout, "OPENAI_API_KEY  (in the keyring)\n");
    user.set("OPENAI_API_KEY", &[FILE]);
    keyring.put("OPENAI_API_KEY", b"another");
    assert_eq!(user.ask(&[]).code, Some(0));
    let refused = user.ask(&[KEYRING]);
    assert!(
        refused.stderr.contains("is kept in the file") && refused.stderr.contains("secrets set"),
        "{refused:?}"
    );
    let removed = user.run(&["secrets", "remove", "openai"], &[]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert!(keyring.secrets().is_empty() && !user.file().contains(KEY));
    // Somebody took it out of the keyring.
    user.set("OPENAI_API_KEY", &[]);
    let refused = user.ask(&[FILE]);
    assert!(
        refused.stderr.contains("is kept in the keyring"),
        "{refused:?}"
    );
    keyring.state().items.clear();
    let refused = user.ask(&[]);
    assert!(refused.stderr.contains("any more"), "{refused:?}");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let removed = user.run(&["secrets", "remove", "openai"], &[]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
}

#[test]
fn a_locked_keyring_is_told_and_asks_nobody_who_is_not_there() {
    let Some(user) = User::new() else { return };
    let keyring = Keyring::start(&user.bus);
    user.set("OPENAI_API_KEY", &[]);
    keyring.state().is_locked = true;
    // No part of the configuration names it yet.
    assert_eq!(user.run(&["config"], &[]).code, Some(0));
    for store in ["auto", "keyring"] {
        let refused = user.ask(&[("TOOLHOLD_SECRETS__STORE", store)]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(
            refused.stderr.contains("it is locked")
                && refused
                    .stderr
                    .contains("toolhold secrets set OPENAI_API_KEY"),
            "{refused:?}"
        );
    }
    // A variable that is set wins.
    assert_eq!(user.ask(&[("OPENAI_API_KEY", KEY)]).code, Some(0));
    let refused = user.set("B_KEY", &[KEYRING]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("it is locked"), "{refused:?}");
    let kept = user.set("B_KEY", &[]);
    assert_eq!(kept.code, Some(0), "{kept:?}");
    assert!(
        kept.stdout.contains("secrets.toml") && kept.stderr.contains("it is locked"),
        "{kept:?}"
    );
    // One that the keyring has gets no copy that is not encrypted, unless that is asked for.
    let refused = user.set("OPENAI_API_KEY", &[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("STORE=file"), "{refused:?}");
    assert!(!user.file().contains(&format!("OPENAI_API_KEY = \"{KEY}")));
    let kept = user.set("OPENAI_API_KEY", &[FILE]);
    assert!(kept.stderr.contains("a copy of OPENAI_API_KEY"), "{kept:?}");
    assert_eq!(user.ask(&[]).code, Some(0));
    let doctor = user.run(&["doctor"], &[]);
    assert!(doctor.stdout.contains("it is locked"), "{doctor:?}");
    assert_eq!(keyring.state().asked, 0);
}

/// As KeePassXC does with a database that is locked.
#[test]
fn what_a_locked_keyring_hides_is_not_taken_for_gone() {
    let Some(user) = User::new() else { return };
    let keyring = Keyring::start(&user.bus);
    user.set("OPENAI_API_KEY", &[]);
    keyring.state().hides = true;
    keyring.state().is_locked = true;
    for store in ["auto", "keyring"] {
        let variables = &[("TOOLHOLD_SECRETS__STORE", store)];
        let refused = user.ask(variables);
        assert!(refused.stderr.contains("it is locked"), "{refused:?}");
        let refused = user.run(&["secrets", "remove", "openai"], variables);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("it is locked"), "{refused:?}");
    }
    assert!(user.file().contains("OPENAI_API_KEY"), "{}", user.file());
    let listed = user.run(&["secrets", "list"], &[KEYRING]);
    assert!(listed.stderr.contains("it is locked"), "{listed:?}");
    // Nobody knows of it, but it may be there.
    let unknown = user.run(&["secrets", "remove", "B_KEY"], &[]);
    assert!(unknown.stderr.contains("a copy of B_KEY"), "{unknown:?}");
    let removed = user.run(&["secrets", "remove", "openai"], &[FILE]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert!(removed.stderr.contains("a copy of OPENAI"), "{removed:?}");
    assert_eq!(keyring.secrets().len(), 1);
}

/// Has the probe remember something: whether it may.
fn remembers(server: &Server) -> bool {
    let arguments = json!({"key": "a", "value": "1"});
    let body = json!({"agent": "default", "arguments": arguments});
    let answered = server.post("/v1/tools/probe.remember", &body);
    answered.status == 200 && answered.json()["result"] == json!(["a"])
}

#[test]
fn a_keyring_that_cannot_be_used_keeps_nothing_from_being_taken_back() {
    let Some(user) = User::new() else { return };
    let keyring = Keyring::start(&user.bus);
    user.set("OPENAI_API_KEY", &[]);
    user.set("A_KEY", &[]);
    let probe = std::fs::read(repository().join("modules/sdk/probe/probe.wasm")).unwrap();
    user.host.write("modules/probe.wasm", probe);
    // One for requests, and one for the module itself.
    let config = |steps: u32| {
        format!(
            "[endpoints.default]\napi_key_env = \"OPENAI_API_KEY\"\n[run]\nmax_steps = {steps}\n\
             [module.probe]\nsecrets = [{{ name = \"key\", origin = \"https://api.example.com\", \
             place = {{ header = {{ name = \"X-Key\" }} }}, env = \"A_KEY\" }}]\n"
        )
    };
    user.host.write("toolhold.toml", config(7));
    let endpoint = endpoint();
    let url = endpoint.base_url();
    let arguments = ["--base-url", &url, "--model", "m"];
    let address = ("DBUS_SESSION_BUS_ADDRESS", user.bus.address());
    let server = Server::start_with(&user.host, &arguments, &[address]);
    let reloaded = |why: &dyn Fn()| {
        let before = server.said().len();
        why();
        until("the configuration", || {
            let said = server.said();
            said[before..].contains("reloaded:").then_some(())
        });
    };
    for is_silent in [false, true] {
        let granted = user.run(&["modules", "grant", "probe", "--key-value"], &[]);
        assert_eq!(granted.code, Some(0), "{granted:?}");
        // A grant does not approve a module whose pin was revoked.
        let approved = user.run(&["modules", "approve", "probe", "--yes"], &[]);
        assert_eq!(approved.code, Some(0), "{approved:?}");
        until("the grant", || remembers(&server).then_some(()));
        keyring.state().is_locked = !is_silent;
        keyring.state().is_silent = is_silent;
        // What the server has read stays in use.
        reloaded(&|| {
            user.host
                .write("toolhold.toml", config(8 + u32::from(is_silent)));
        });
        assert!(remembers(&server), "{}", server.said());
        reloaded(&|| {
            let revoked = user.run(&["modules", "revoke", "probe"], &[]);
            assert_eq!(revoked.code, Some(0), "{revoked:?}");
            until("its end", || (!remembers(&server)).then_some(()));
        });
        assert!(!remembers(&server), "{}", server.said());
        // Nothing else that needs no secret waits for a person either, and it is said what is missing.
        for arguments in [
            &["modules", "list"][..],
            &["approvals", "list"],
            &["runs"],
            &["audit", "verify"],
            &["policy"],
            &["keys", "list"],
        ] {
            let done = user.run(arguments, &[]);
            assert_eq!(done.code, Some(0), "{arguments:?}: {done:?}");
            let told = done.stderr.contains("cannot be read from the keyring");
            assert!(told, "{arguments:?}: {done:?}");
        }
        let refused = user.run(&["run", "t", "--model", "m"], &[]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        keyring.state().is_locked = false;
        keyring.state().is_silent = false;
    }
    assert_eq!(keyring.state().asked, 0);
}

#[test]
fn at_a_terminal_the_keyring_may_ask_for_its_password() {
    let Some(user) = User::new() else { return };
    let keyring = Keyring::start(&user.bus);
    let set = |name: &str, answer: Answer, typed: &[(&str, &str)]| {
        keyring.state().is_locked = true;
        keyring.state().answer = answer;
        let prompt = format!("{name}: ");
        let line = format!("{KEY}\n");
        let dialogue = [&[(prompt.as_str(), line.as_str())], typed].concat();
        at_terminal(&user.command(&["secrets", "set", name]), &dialogue)
    };
    let kept = set("A_KEY", Answer::Password, &[]);
    assert_eq!(kept.code, Some(0), "{kept:?}");
    assert!(
        kept.stdout
            .contains("asks for its password; this waits for 60 s")
            && kept.stdout.contains("kept A_KEY in the keyring"),
        "{kept:?}"
    );
    let refused = set("B_KEY", Answer::Dismissed, &[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stdout.contains("STORE=file")
            && refused.stdout.contains("not answered with a password"),
        "{refused:?}"
    );
    assert!(!user.file().contains(KEY), "{}", user.file());
    let stopped = set("C_KEY", Answer::None, &[("waits for 60 s", "\u{3}")]);
    assert_eq!(stopped.code, Some(130), "{stopped:?}");
    assert_eq!(keyring.state().asked, 3);
    assert_eq!(keyring.secrets().len(), 1);
    assert_eq!(user.list(), "A_KEY  (in the keyring)\n");
}

/// As KeePassXC does where it asks before it gives a secret to a program.
#[test]
fn a_secret_that_is_locked_for_each_program_is_told() {
    let Some(user) = User::new() else { return };
    let keyring = Keyring::start(&user.bus);
    user.set("A_KEY", &[]);
    keyring.state().locks_items = true;
    let refused = user.set("A_KEY", &[KEYRING]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("it is locked"), "{refused:?}");
    let line = format!("{KEY}\n");
    let dialogue = [("A_KEY: ", line.as_str())];
    let kept = at_terminal(&user.command(&["secrets", "set", "A_KEY"]), &dialogue);
    assert_eq!(kept.code, Some(0), "{kept:?}");
    assert_eq!(keyring.state().asked, 1);
    assert!(
        kept.stdout.contains("replaced A_KEY in the keyring")
            && kept
                .stdout
                .contains("cannot read it from there: it is locked")
            && kept.stdout.contains("TOOLHOLD_SECRETS__STORE=file"),
        "{kept:?}"
    );
    let removed = at_terminal(&user.command(&["secrets", "remove", "A_KEY"]), &[]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert!(keyring.secrets().is_empty());
}

/// A keyring that has a person confirm what is deleted is given up soon where nobody is, and not where somebody is.
#[test]
fn a_person_has_time_to_confirm() {
    let Some(user) = User::new() else { return };
    let keyring = Keyring::start(&user.bus);
    user.set("A_KEY", &[]);
    keyring.state().confirms = Some(Duration::from_secs(4));
    let removed = at_terminal(&user.command(&["secrets", "remove", "A_KEY"]), &[]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert!(removed.stdout.contains("may be asking you"), "{removed:?}");
    assert!(keyring.secrets().is_empty());
    user.set("A_KEY", &[]);
    let refused = user.run(&["secrets", "remove", "A_KEY"], &[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("within 2 s"), "{refused:?}");
    assert!(user.file().contains("A_KEY"), "{}", user.file());
}

#[test]
fn a_keyring_that_does_not_answer_is_given_up_in_time() {
    let Some(user) = User::new() else { return };
    let keyring = Keyring::start(&user.bus);
    user.set("OPENAI_API_KEY", &[]);
    keyring.state().is_silent = true;
    let refused = user.ask(&[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("within 2 s"), "{refused:?}");
    let refused = user.set("B_KEY", &[KEYRING]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let kept = user.set("B_KEY", &[]);
    assert_eq!(kept.code, Some(0), "{kept:?}");
    assert!(
        kept.stdout.contains("secrets.toml") && kept.stderr.contains("within 2 s"),
        "{kept:?}"
    );
    // It may have been put there before it became silent.
    assert!(kept.stderr.contains("a copy of B_KEY"), "{kept:?}");
    let refused = user.run(&["secrets", "remove", "openai"], &[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(user.file().contains("OPENAI_API_KEY"), "{}", user.file());
    // With the file as the store it is forgotten here, and what may be left is said.
    let removed = user.run(&["secrets", "remove", "openai"], &[FILE]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert!(
        removed.stderr.contains("a copy of OPENAI_API_KEY"),
        "{removed:?}"
    );
}

#[test]
fn what_is_no_secret_is_not_taken_for_one() {
    let Some(user) = User::new() else { return };
    let keyring = Keyring::start(&user.bus);
    user.set("OPENAI_API_KEY", &[]);
    for bytes in [300 << 10, 10 << 20] {
        keyring.state().flood = Some(bytes);
        let refused = user.ask(&[]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        let expect = "answers with more than 262144 bytes";
        assert!(refused.stderr.contains(expect), "{refused:?}");
    }
    keyring.state().flood = None;
    // A keyring that fails is no reason to keep a key unencrypted.
    keyring.state().fails = true;
    for name in ["OPENAI_API_KEY", "B_KEY"] {
        let refused = user.set(name, &[]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("STORE=file"), "{refused:?}");
    }
    assert!(!user.file().contains(KEY), "{}", user.file());
    keyring.state().fails = false;
    let long = vec![b'x'; 70_000];
    for secret in [&[0xff, 0xfe][..], b"", b" \n", &long] {
        let mut state = keyring.state();
        state
            .items
            .values_mut()
            .for_each(|(_, kept)| *kept = secret.to_vec());
        drop(state);
        let refused = user.ask(&[]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(
            refused.stderr.contains("no text of at most 64 KiB"),
            "{refused:?}"
        );
    }
    // More of them than are looked at.
    for number in 0..257 {
        keyring.put(&format!("K{number}"), b"x");
    }
    let listed = user.run(&["secrets", "list"], &[KEYRING]);
    assert!(listed.stderr.contains("258 secrets"), "{listed:?}");
}

#[test]
fn without_a_keyring_the_file_is_used_unless_only_a_keyring_may_be() {
    let Some(user) = User::new() else { return };
    let (host, none) = (Host::new(), "no keyring answers on the session bus");
    let no_bus = "no session bus";
    let address = |address: &'static str| ("DBUS_SESSION_BUS_ADDRESS", address);
    for (bus, expect) in [
        (None, none),
        (Some(address("disabled:")), no_bus),
        (Some(address("unix:path=/nowhere/bus")), no_bus),
        (Some(address("")), no_bus),
    ] {
        let bus: Vec<_> = bus.into_iter().collect();
        let kept = user.set("A_KEY", &bus);
        assert_eq!(kept.code, Some(0), "{kept:?}");
        assert!(
            kept.stdout.contains("secrets.toml") && kept.stderr.contains(expect),
            "{kept:?}"
        );
        // A key in the file needs no bus, and what needs no key does not either.
        assert_eq!(user.run(&["runs"], &bus).code, Some(0));
        let only = [&bus[..], &[KEYRING]].concat();
        assert_eq!(user.run(&["config"], &only).code, Some(0));
        for refused in [
            user.set("A_KEY", &only),
            user.run(&["run", "t", "--model", "m"], &only),
            user.run(&["runs"], &only),
            user.run(&["secrets", "remove", "A_KEY"], &only),
        ] {
            assert_eq!(refused.code, Some(1), "{refused:?}");
            assert!(refused.stderr.contains(expect), "{refused:?}");
            // What else to choose, and no variable that nobody named.
            assert!(refused.stderr.contains("SECRETS__STORE="), "{refused:?}");
            assert!(!refused.stderr.contains("DATABASE_URL"), "{refused:?}");
            assert!(!refused.stdout.contains("A_KEY"), "{refused:?}");
        }
        let listed = user.run(&["secrets", "list"], &only);
        assert!(
            listed.stdout.contains("(in the file)") && listed.stderr.contains(expect),
            "{listed:?}"
        );
        let removed = user.run(&["secrets", "remove", "A_KEY"], &bus);
        assert_eq!(
            (removed.code, &*removed.stderr),
            (Some(0), ""),
            "{removed:?}"
        );
    }
    // A found file does not choose.
    host.write_untrusted("toolhold.toml", "[secrets]\nstore = \"keyring\"\n");
    let shown = host.run(&["config"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
}
