//! Faults of the database and its disk, and of the processes that share it.

use super::{FaultRow, ask, here, test, try_rows};
use std::thread;
use std::time::{Duration, Instant};
use support::endpoint::{Endpoint, ReplyOrder, Scenario};
use support::host::Host;
use support::postgres::Cluster;
use support::server::Server;
use support::transcript::answers;
use support::until;

/// A server on a PostgreSQL of its own.
pub(super) struct DatabaseBench {
    server: Server,
    cluster: Cluster,
    _endpoint: Endpoint,
    _host: Host,
}

impl DatabaseBench {
    /// Returns none where PostgreSQL is not installed.
    fn new() -> Option<Self> {
        let cluster = Cluster::start()?;
        let host = Host::new();
        let scenario = Scenario::new([answers("kept")]).in_order(ReplyOrder::Repeat);
        let endpoint = Endpoint::start(scenario);
        let url = endpoint.base_url();
        let database = cluster.url();
        let server = Server::start_with(
            &host,
            &["--base-url", &url, "--model", "m"],
            &[("TOOLHOLD_DATABASE_URL", &database)],
        );
        Some(Self {
            server,
            cluster,
            _endpoint: endpoint,
            _host: host,
        })
    }

    fn is_well(&self) {
        until("readiness", || {
            (self.server.get("/readyz").status == 200).then_some(())
        });
        let answer = self.server.post("/v1/agent", &ask("t"));
        assert_eq!(answer.good()["output"], "kept");
    }

    /// A request during a short standstill of the database gets its answer afterwards.
    fn freezes_for_a_moment(&mut self) {
        self.is_well();
        self.cluster.freeze();
        let answer = thread::scope(|scope| {
            let asked = scope.spawn(|| self.server.post("/v1/agent", &ask("t")));
            thread::sleep(Duration::from_millis(700));
            self.cluster.thaw();
            asked.join()
        });
        assert_eq!(answer.unwrap().good()["output"], "kept");
    }

    /// While it stands still, the server says so and takes nothing new.
    fn stays_frozen(&mut self) {
        self.cluster.freeze();
        let frozen = Instant::now();
        // A probe asks the database nothing, and so waits for nothing.
        self.server.get("/readyz");
        assert!(frozen.elapsed() < Duration::from_secs(2), "at once");
        until("the news", || {
            (self.server.get("/readyz").status == 503).then_some(())
        });
        let passed = frozen.elapsed();
        assert!(passed < Duration::from_secs(20), "{passed:?}");
        assert_eq!(self.server.get("/healthz").status, 200);
        let refused = self.server.post("/v1/agent", &ask("t"));
        assert_eq!(refused.status, 503, "{refused:?}");
        assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
        self.cluster.thaw();
        self.is_well();
    }
}

pub(super) const ROWS: &[FaultRow<DatabaseBench>] = &[
    FaultRow {
        what: "PostgreSQL stops.",
        passes: test(
            "Runs wait for it, for `storage.patience_ms`.",
            "serve/database.rs",
            "runs_outlast_a_database_that_comes_back",
        ),
        stays: test(
            "Runs stop where they are. They go on by themselves when it is back.",
            "serve/database.rs",
            "runs_that_stopped_for_want_of_a_database_go_on_when_it_is_back",
        ),
    },
    FaultRow {
        what: "PostgreSQL stands still.",
        passes: here("Requests wait for it.", DatabaseBench::freezes_for_a_moment),
        stays: here(
            "`/readyz` and new runs are `503`; `/healthz` is `200`.",
            DatabaseBench::stays_frozen,
        ),
    },
    FaultRow {
        what: "PostgreSQL is away when the server starts.",
        passes: test(
            "The server waits for it, and then serves.",
            "serve/health.rs",
            "a_server_that_starts_without_its_database_waits_for_it",
        ),
        stays: test(
            "`/healthz` is `200`, all else `503`. A database that does not exist ends the start at once.",
            "serve/health.rs",
            "an_unknown_database_ends_the_start_at_once",
        ),
    },
    FaultRow {
        what: "The disk is full.",
        passes: test(
            "When there is room, runs go on by themselves.",
            "serve/faults.rs",
            "a_full_disk_loses_nothing",
        ),
        stays: test(
            "New runs are `503`. All that was stored can be read.",
            "serve/faults.rs",
            "a_full_disk_loses_nothing",
        ),
    },
    FaultRow {
        what: "The database was restored from a backup.",
        passes: test(
            "With `--hold-runs` no run goes on before a person has looked.",
            "serve/backup.rs",
            "a_restored_server_has_approvals_grants_keys_and_values_and_holds_the_runs",
        ),
        stays: test(
            "Restored in another place, modules wait for a person, and that is told.",
            "serve/backup.rs",
            "a_backup_that_is_restored_elsewhere_says_that_the_modules_wait",
        ),
    },
    FaultRow {
        what: "The database is of another version.",
        passes: test(
            "An older one is migrated, and all in it is kept.",
            "older_state.rs",
            "a_server_goes_on_with_sessions_responses_and_runs",
        ),
        stays: test(
            "A newer one is refused, with the way back.",
            "../host/storage/src/tests/migrations.rs",
            "a_database_of_a_newer_version_is_refused_with_the_way_back",
        ),
    },
];

pub(super) const PROCESSES: &[FaultRow<()>] = &[
    FaultRow {
        what: "A server is killed.",
        passes: test(
            "When it starts again, its runs go on. No acknowledged turn is lost, no finished call made again.",
            "serve/faults.rs",
            "kills_lose_no_turn_and_repeat_no_completed_call",
        ),
        stays: test(
            "Another server with the same database goes on with its runs, once.",
            "serve/takeover.rs",
            "runs_of_a_killed_server_go_on_in_one_that_lives",
        ),
    },
    FaultRow {
        what: "A server is stopped (SIGTERM).",
        passes: test(
            "Runs that end within `serve.drain_ms` are answered; clients are sent to another server.",
            "serve/mod.rs",
            "a_server_that_stops_sends_its_clients_away",
        ),
        stays: test(
            "Runs that do not end are parked, and go on at the next start.",
            "serve/mod.rs",
            "a_server_that_stops_parks_what_does_not_end",
        ),
    },
    FaultRow {
        what: "A server on PostgreSQL is frozen.",
        passes: test(
            "When it wakes, it writes nothing more to runs that were taken over.",
            "serve/takeover.rs",
            "a_run_that_was_taken_over_is_cancelled_through_the_server_that_wakes",
        ),
        stays: test(
            "Another server goes on with its runs within 15 s.",
            "serve/takeover.rs",
            "runs_of_a_frozen_server_are_taken_over_and_it_writes_no_more",
        ),
    },
    FaultRow {
        what: "A server loses its connection to PostgreSQL.",
        passes: test(
            "It has five seconds for another connection, and keeps its runs.",
            "serve/takeover.rs",
            "a_living_server_keeps_its_runs",
        ),
        stays: test(
            "It lets go of runs that another one has taken over.",
            "serve/database.rs",
            "a_server_that_was_taken_for_dead_lets_go_of_its_runs",
        ),
    },
    FaultRow {
        what: "A process is killed during a call.",
        passes: test(
            "The run goes on, and makes no call twice.",
            "module_runs/processes.rs",
            "a_killed_run_is_resumed_and_makes_no_call_twice",
        ),
        stays: test(
            "The call has an end in the record and the audit log.",
            "ends/runs.rs",
            "a_run_whose_server_is_killed_ends_its_calls",
        ),
    },
    FaultRow {
        what: "The process has no descriptor left.",
        passes: test(
            "When descriptors are free again, all are served.",
            "serve/no_place.rs",
            "clients_are_refused_with_503_while_no_descriptor_is_left",
        ),
        stays: test(
            "New connections get `503` and `Retry-After`, and the log says how many.",
            "serve/no_place.rs",
            "clients_are_refused_with_503_while_no_descriptor_is_left",
        ),
    },
    FaultRow {
        what: "The service manager hears nothing of a server.",
        passes: test(
            "A server that lives tells it in time, also while its database is away.",
            "serve/health.rs",
            "a_server_that_starts_without_its_database_waits_for_it",
        ),
        stays: test(
            "A frozen server gives no sign of life. That systemd then restarts it (`WatchdogSec=`) is not tried.",
            "serve/health.rs",
            "a_service_manager_is_told_of_the_start_of_reloads_and_of_the_stop",
        ),
    },
    FaultRow {
        what: "The MCP server is killed during a call.",
        passes: test(
            "A server that is stopped records calls that it interrupts.",
            "mcp_server/records.rs",
            "a_stopping_server_records_interrupted_calls",
        ),
        stays: test(
            "The call is in the audit log as interrupted.",
            "mcp_server/records.rs",
            "a_call_during_which_the_server_is_killed_is_in_the_log_as_interrupted",
        ),
    },
    FaultRow {
        what: "The machine's clock is set.",
        passes: test(
            "Nothing is deleted because of it for an hour.",
            "serve/retention.rs",
            "a_clock_that_was_set_deletes_nothing_at_once",
        ),
        stays: test(
            "What is then still too old by the new clock is deleted.",
            "../host/server/src/retention.rs",
            "a_clock_that_was_set_is_not_believed_at_once",
        ),
    },
];

#[test]
fn faults_of_the_database() {
    if let Some(mut bench) = DatabaseBench::new() {
        try_rows(&mut bench, ROWS);
    }
}
