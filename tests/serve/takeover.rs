//! Runs of a server that is gone, where others that live share its database.

use super::{ask, host, scripted, streamed, until};
use serde_json::{Value, json};
use std::time::Duration;
use support::endpoint::{Endpoint, Reply};
use support::host::{Host, finish};
use support::postgres::Cluster;
use support::server::{Server, ServerSentEvent};
use support::transcript::answers;

/// Servers that share a database: the state folder, or the cluster.
struct SharedDatabase {
    host: Host,
    cluster: Option<Cluster>,
}

impl SharedDatabase {
    fn serve(&self, endpoint: &Endpoint) -> Server {
        let url = endpoint.base_url();
        let arguments = ["--base-url", &url, "--model", "m"];
        Server::start_with(&self.host, &arguments, &borrowed(&self.variables()))
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let url = self.cluster.iter().map(Cluster::url);
        url.map(|url| ("TOOLHOLD_DATABASE_URL", url)).collect()
    }

    fn replays(&self, run: &str) {
        let mut replay = self.host.command(&["runs", "replay", run]);
        let replayed = finish(replay.envs(self.variables()).output().unwrap());
        assert_eq!(replayed.code, Some(0), "{replayed:?}");
    }
}

fn borrowed<'a>(variables: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    variables.iter().map(|(k, v)| (*k, v.as_str())).collect()
}

/// SQLite, and PostgreSQL where there is one.
fn databases(config: &str) -> Vec<SharedDatabase> {
    let of = |cluster| SharedDatabase {
        host: host(config),
        cluster,
    };
    let mut all = vec![of(None)];
    all.extend(Cluster::start().map(|cluster| of(Some(cluster))));
    all
}

fn count(events: &[ServerSentEvent], kind: &str) -> usize {
    events.iter().filter(|sent| sent.event == kind).count()
}

/// Killed with runs in hand, while two others serve: each run goes on in one of them, once.
#[test]
fn runs_of_a_killed_server_go_on_in_one_that_lives() {
    const RUNS: usize = 4;
    for shared in databases("[serve]\nkey_requests_per_minute = 0\n") {
        let endless = (0..RUNS).map(|_| Reply::endless().delayed_ms(0, 50));
        let later = (0..RUNS).map(|_| answers("later"));
        let endpoint = scripted(endless.chain(later));
        let mut first = shared.serve(&endpoint);
        let others = [(); 2].map(|()| shared.serve(&endpoint));
        let runs: Vec<String> = (0..RUNS)
            .map(|number| streamed(&first, &format!("task {number}"), 4))
            .collect();
        first.kill();
        for run in &runs {
            let events = others[0].get(&format!("/v1/runs/{run}/events")).events();
            let done = events.last().unwrap().json();
            assert_eq!(done["output"], "later", "{done} {}", others[0].said());
            let ids: Vec<usize> = events.iter().map(|sent| sent.id.parse().unwrap()).collect();
            assert_eq!(ids, (0..events.len()).collect::<Vec<_>>());
            assert_eq!(
                (count(&events, "resumed"), count(&events, "done")),
                (1, 1),
                "{run}"
            );
            shared.replays(run);
        }
        assert_eq!(
            endpoint.requests().len(),
            2 * RUNS,
            "each was asked for once more"
        );
        let said: String = others.iter().map(Server::said).collect();
        assert!(
            said.contains(&runs[0]) && said.contains("a run whose server is gone"),
            "{said}"
        );
    }
}

/// A stopping server releases the runs that do not end in time; a running server resumes them.
#[test]
fn runs_of_a_stopped_server_go_on_in_one_that_lives() {
    for shared in databases("[serve]\ndrain_ms = 0\n") {
        let endpoint = scripted([Reply::endless().delayed_ms(0, 50), answers("later")]);
        let first = shared.serve(&endpoint);
        let other = shared.serve(&endpoint);
        let run = streamed(&first, "t", 4);
        first.signal("TERM");
        let events = other.get(&format!("/v1/runs/{run}/events")).events();
        let done = events.last().unwrap().json();
        assert_eq!(done["output"], "later", "{done} {}", other.said());
        assert_eq!(count(&events, "resumed"), 1);
        shared.replays(&run);
    }
}

/// One that does nothing for a while is not gone, and nor are runs of people at their terminals.
#[test]
fn a_living_server_keeps_its_runs() {
    for shared in databases("") {
        let endpoint = scripted([Reply::endless().delayed_ms(0, 10_000), answers("other")]);
        let first = shared.serve(&endpoint);
        let other = shared.serve(&endpoint);
        let run = streamed(&first, "t", 2);
        // Until it has written what there is so far: SQLite lets one write at a time.
        std::thread::sleep(Duration::from_secs(1));
        first.signal("STOP");
        std::thread::sleep(Duration::from_secs(9));
        let shown: Value = other.get(&format!("/v1/runs/{run}")).good();
        assert_eq!(shown["state"], "running", "{}", other.said());
        assert_eq!(other.post("/v1/agent", &ask("t")).good()["output"], "other");
        first.signal("CONT");
        until("its end", || {
            first.post(&format!("/v1/runs/{run}/cancel"), &json!({}));
            let shown: Value = first.get(&format!("/v1/runs/{run}")).good();
            (shown["state"] == "done").then_some(())
        });
        assert_eq!(endpoint.requests().len(), 2);
        let events = first.get(&format!("/v1/runs/{run}/events")).events();
        assert_eq!(count(&events, "resumed"), 0);
    }
}
