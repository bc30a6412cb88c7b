//! `storage.keep_days` and `storage.keep_audit_days`: what is over for long goes, by a server whose time the test makes pass.

use super::{ask, two_plus_two, until};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;
use support::clock::FakeClock;
use support::host::Host;
use support::postgres::Cluster;
use support::server::Server;
use support::transcript::answers;

const DAY: Duration = Duration::from_hours(24);
const KEEP: &str =
    "[storage]\nkeep_days = 7\n[run]\ntimeout_ms = 60000\n[decisions]\nalways = [\"text\"]\n";

struct RetentionFixture {
    host: Host,
    cluster: Option<Cluster>,
    clock: FakeClock,
}

impl RetentionFixture {
    /// In SQLite, and in PostgreSQL where there is one.
    fn everywhere(config: &str) -> Vec<Self> {
        let of = |cluster| Self {
            host: super::host(config),
            cluster,
            clock: FakeClock::new(),
        };
        let mut all = vec![of(None)];
        all.extend(Cluster::start().map(|cluster| of(Some(cluster))));
        all
    }

    fn serve(&self, url: &str) -> Server {
        let variables = [self.clock.variables(), self.database()].concat();
        let variables: Vec<_> = variables.iter().map(|(k, v)| (*k, v.as_str())).collect();
        let arguments = ["--base-url", url, "--model", "m"];
        let mut server = Server::start_with(&self.host, &arguments, &variables);
        server.connect_anew();
        server
    }

    fn database(&self) -> Vec<(&'static str, String)> {
        let url = self.cluster.iter().map(Cluster::url);
        url.map(|url| ("TOOLHOLD_DATABASE_URL", url)).collect()
    }

    /// What a command prints, a line of JSON each.
    fn run(&self, arguments: &[&str]) -> Vec<Value> {
        let mut command = self.host.command(arguments);
        let done = support::host::finish(command.envs(self.database()).output().unwrap());
        assert_eq!(done.code, Some(0), "{done:?}");
        let lines = done.stdout.lines().filter(|line| line.starts_with('{'));
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn id(answer: &Value) -> String {
    answer["id"].as_str().expect("an id").to_owned()
}

fn once(server: &Server) -> String {
    let task = ask("What is 2+2?");
    let header = [("idempotency-key", "once")];
    let answered = server.ask(Method::POST, "/v1/agent", Some(&task), &header);
    id(&answered.good())
}

fn session_with_a_turn(server: &Server) -> String {
    let session = id(&server.post("/v1/sessions", &json!({})).good());
    turn(server, &session);
    session
}

fn turn(server: &Server, session: &str) -> String {
    let path = format!("/v1/sessions/{session}/turns");
    id(&server.post(&path, &ask("t")).good())
}

/// Waits until it has found what passed: its connections are old, too.
fn settled(server: &Server) {
    until("readiness", || {
        (status(server, "/readyz") == 200).then_some(())
    });
}

fn status(server: &Server, path: &str) -> u16 {
    server.get(path).status
}

/// Runs, responses, sessions and what is remembered of requests go when they are over for long, with their
/// journals; what is not over for so long stays, and so does every row of the audit log.
#[test]
fn records_that_ended_long_ago_are_deleted() {
    for mut kept in RetentionFixture::everywhere(KEEP) {
        let [call, sum] = two_plus_two();
        let waits = super::calls([("text.reverse", json!({"text": "a"}))]);
        let first = [
            call.clone(),
            sum.clone(),
            answers("r"),
            answers("s"),
            answers("s"),
            waits,
        ];
        let later = [answers("new"), answers("s"), call, sum];
        let endpoint = super::scripted(first.into_iter().chain(later));
        let server = kept.serve(&endpoint.base_url());

        let old = once(&server);
        let asked = json!({"model": "default", "input": "t", "metadata": {"who": "test"}});
        let response = id(&server.post("/v1/responses", &asked).good());
        let over = session_with_a_turn(&server);
        let goes_on = session_with_a_turn(&server);
        let path = format!("/v1/responses/{response}");
        assert_eq!(status(&server, &path), 200);
        assert_eq!(once(&server), old, "one run");
        let waiting = super::streamed(&server, "Reverse it.", 1);
        until("the call that waits", || {
            let calls = server.get("/v1/approvals").good();
            (!calls["calls"].as_array()?.is_empty()).then_some(())
        });

        kept.clock.pass(4 * DAY);
        // It was not over; now its time is.
        until("its end", || {
            // The database may be looked for first.
            let shown = server.get(&format!("/v1/runs/{waiting}"));
            (shown.status == 200 && shown.json()["state"] == "done").then_some(())
        });
        settled(&server);
        let new = id(&server.post("/v1/agent", &ask("t")).good());
        let second = turn(&server, &goes_on);
        assert_eq!(status(&server, &format!("/v1/runs/{old}")), 200);

        kept.clock.pass(4 * DAY);
        until("the old run to go", || {
            (status(&server, &format!("/v1/runs/{old}")) == 404).then_some(())
        });
        until("the old session to go", || {
            (status(&server, &format!("/v1/sessions/{over}")) == 404).then_some(())
        });
        settled(&server);
        assert_eq!(status(&server, &path), 404);
        assert_eq!(status(&server, &format!("/v1/runs/{old}/events")), 404);
        let left = server.get(&format!("/v1/sessions/{goes_on}")).good();
        let turns = left["turns"].as_array().unwrap();
        assert_eq!(
            (turns.len(), turns[1]["id"].as_str()),
            (2, Some(second.as_str()))
        );
        let listed = server.get("/v1/runs").good();
        let listed: Vec<String> = listed["runs"].as_array().unwrap().iter().map(id).collect();
        let first_turn = turns[0]["id"].as_str().unwrap().to_owned();
        assert_eq!(listed, [second, new.clone(), waiting, first_turn]);
        for run in &listed {
            kept.run(&["runs", "replay", run]);
        }

        let pruned = kept.run(&["audit", "search", "pruned", "--json"]);
        let all = |what: &str| -> Vec<&str> {
            let rows = pruned.iter().filter_map(|row| row[what].as_array());
            rows.flatten().filter_map(Value::as_str).collect()
        };
        assert!(
            pruned
                .iter()
                .all(|row| row["keep_days"] == 7 && row["by"] == "retention"),
            "{pruned:?}"
        );
        assert_eq!(all("sessions"), [over.as_str()], "{pruned:?}");
        assert_eq!(all("runs").len(), 3, "{pruned:?}");
        assert!(all("runs").contains(&old.as_str()), "{pruned:?}");
        let told = kept.run(&["audit", "search", "--run", &old, "--json"]);
        assert!(
            told.iter().any(|row| row["tool"] == "calculator.evaluate"),
            "{told:?}"
        );
        kept.run(&["audit", "verify"]);

        // The earlier request is forgotten.
        assert_ne!(once(&server), old);
    }
}

/// Entries of the audit log go by their own key, as `toolhold audit prune` deletes them; records of runs stay.
#[test]
fn audit_entries_that_are_old_are_deleted() {
    for mut kept in RetentionFixture::everywhere("[storage]\nkeep_audit_days = 7\n") {
        let script = [two_plus_two(), two_plus_two()].into_iter().flatten();
        let endpoint = super::scripted(script);
        let server = kept.serve(&endpoint.base_url());
        let sum = || id(&server.post("/v1/agent", &ask("What is 2+2?")).good());
        let calls_of = |kept: &RetentionFixture, run: &str| {
            let arguments = ["audit", "search", "--json", "--run", run];
            let rows = kept.run(&arguments).into_iter();
            rows.filter(|row| row["tool"] == "calculator.evaluate")
                .count()
        };
        let old = sum();
        let count = calls_of(&kept, &old);
        assert!(count > 0);

        kept.clock.pass(4 * DAY);
        settled(&server);
        let new = sum();

        kept.clock.pass(4 * DAY);
        until("the old entries to go", || {
            (calls_of(&kept, &old) == 0).then_some(())
        });
        settled(&server);
        assert_eq!(calls_of(&kept, &new), count);
        let expired = kept.run(&["audit", "search", "audit_expired", "--json"]);
        let [row] = expired.as_slice() else {
            panic!("one row: {expired:?}");
        };
        assert_eq!(
            (&row["by"], &row["keep_days"]),
            (&json!("retention"), &json!(7))
        );
        kept.run(&["audit", "verify"]);
        for run in [&old, &new] {
            assert_eq!(status(&server, &format!("/v1/runs/{run}")), 200);
            kept.run(&["runs", "replay", run]);
        }
    }
}

/// A clock that somebody sets ahead deletes nothing for an hour: it may be put right.
#[test]
fn a_clock_that_was_set_deletes_nothing_at_once() {
    let look = || std::thread::sleep(Duration::from_secs(3));
    let minutes = |minutes: u64| Duration::from_mins(minutes);
    let mut kept = RetentionFixture {
        host: super::host(KEEP),
        cluster: None,
        clock: FakeClock::new(),
    };
    let endpoint = super::scripted([answers("a")]);
    let server = kept.serve(&endpoint.base_url());
    let run = id(&server.post("/v1/agent", &ask("t")).good());
    let path = format!("/v1/runs/{run}");
    // The first hour, in which the server cannot know whether the clock was set before.
    kept.clock.set_ahead(8 * DAY);
    for passes in [11, 40] {
        kept.clock.pass(minutes(passes));
        look();
        assert_eq!(status(&server, &path), 200);
    }
    kept.clock.pass(minutes(30));
    until("its end", || (status(&server, &path) == 404).then_some(()));
}
