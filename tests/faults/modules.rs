//! Faults of modules, and of the files that configure a server.

use super::{FaultRow, here, test, try_rows};
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use support::endpoint::{Endpoint, Scenario};
use support::host::Host;
use support::server::Server;
use support::until;

const CALCULATES: &str = "/v1/tools/calculator.evaluate";
const COUNTS: &str = "/v1/tools/text.count";

/// A server with two modules, whose tools are called without a model.
pub(super) struct ModulesBench {
    server: Server,
    host: Host,
    endpoint: Endpoint,
}

fn started(host: &Host, endpoint: &Endpoint) -> Server {
    let url = endpoint.base_url();
    Server::start(host, &["--base-url", &url, "--model", "m"])
}

impl ModulesBench {
    fn new() -> Self {
        let host = Host::new();
        host.ship("calculator").ship("text");
        let endpoint = Endpoint::start(Scenario::new([]));
        Self {
            server: started(&host, &endpoint),
            host,
            endpoint,
        }
    }

    fn component(&self) -> PathBuf {
        let folder = self.host.path().join("modules/calculator");
        folder.join("calculator.wasm")
    }

    /// The status of a call that adds.
    fn calculates(&self) -> u16 {
        let sum = json!({"arguments": {"expression": "2+2"}});
        self.server.post(CALCULATES, &sum).status
    }

    /// Calls the other module, which must work during all faults of the first.
    fn other_works(&self) {
        let text = json!({"arguments": {"text": "one two"}});
        let answer = self.server.post(COUNTS, &text);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(self.server.get("/readyz").status, 200);
    }

    fn says(&self, text: &str) {
        until(text, || self.server.said().contains(text).then_some(()));
    }

    /// A file that is written in halves: what was loaded stays in use until it is whole again.
    fn a_component_is_damaged(&mut self) {
        assert_eq!(self.calculates(), 200);
        let whole = fs::read(self.component()).unwrap();
        fs::write(self.component(), &whole[..whole.len() / 2]).unwrap();
        self.says("calculator");
        assert_eq!(self.calculates(), 200, "what was loaded stays in use");
        self.other_works();
        fs::write(self.component(), whole).unwrap();
        until("the module", || (self.calculates() == 200).then_some(()));
    }

    /// At a start nothing of it was loaded before.
    fn a_component_stays_damaged(&mut self) {
        let whole = fs::read(self.component()).unwrap();
        fs::write(self.component(), &whole[..whole.len() / 2]).unwrap();
        self.server = started(&self.host, &self.endpoint);
        self.other_works();
        assert_eq!(self.calculates(), 404);
        self.says("calculator");
        fs::write(self.component(), whole).unwrap();
        until("the module", || (self.calculates() == 200).then_some(()));
    }

    fn a_module_is_removed(&mut self) {
        let folder = self.host.path().join("modules/calculator");
        let aside = self.host.path().join("aside");
        fs::rename(&folder, &aside).unwrap();
        until("its end", || (self.calculates() == 404).then_some(()));
        self.other_works();
        fs::rename(&aside, &folder).unwrap();
        until("the module", || (self.calculates() == 200).then_some(()));
    }

    fn a_module_stays_away(&mut self) {
        let folder = self.host.path().join("modules/calculator");
        fs::remove_dir_all(folder).unwrap();
        until("its end", || (self.calculates() == 404).then_some(()));
        self.other_works();
    }
}

pub(super) const ROWS: &[FaultRow<ModulesBench>] = &[
    FaultRow {
        what: "A module's component is damaged, or only half of it written.",
        passes: here(
            "What was loaded before stays in use.",
            ModulesBench::a_component_is_damaged,
        ),
        stays: here(
            "After a start the module is absent, and the log says why. All others work.",
            ModulesBench::a_component_stays_damaged,
        ),
    },
    FaultRow {
        what: "A module's folder is removed.",
        passes: here(
            "Its tools are there again when it is.",
            ModulesBench::a_module_is_removed,
        ),
        stays: here(
            "Its tools are unknown (`404`). All others work.",
            ModulesBench::a_module_stays_away,
        ),
    },
    FaultRow {
        what: "No module may run, such as after a restore without approvals.",
        passes: test(
            "The server is ready once one is approved.",
            "serve/health.rs",
            "a_server_none_of_whose_modules_was_ever_approved_is_not_ready",
        ),
        stays: test(
            "`/readyz` is `503`, and says what to do.",
            "serve/health.rs",
            "a_server_none_of_whose_modules_was_ever_approved_is_not_ready",
        ),
    },
    FaultRow {
        what: "A module is exchanged under load.",
        passes: test(
            "Each call runs the one version or the other, whole.",
            "module_pins.rs",
            "a_module_is_exchanged_under_32_callers",
        ),
        stays: test(
            "However often it is exchanged: a version that nobody approved never runs.",
            "module_pins.rs",
            "row_18_a_file_swapped_a_thousand_times_never_runs_unapproved",
        ),
    },
    FaultRow {
        what: "Modules still have to be compiled or fetched.",
        passes: test(
            "A run that goes on waits for its own.",
            "oci.rs",
            "a_run_that_goes_on_waits_for_its_modules",
        ),
        stays: test(
            "Others are served meanwhile.",
            "serve/grants.rs",
            "what_is_loaded_holds_up_nothing",
        ),
    },
    FaultRow {
        what: "A registry of components is away.",
        passes: test(
            "A component that was fetched before is used.",
            "oci.rs",
            "a_tools_component_stays_when_its_source_is_gone",
        ),
        stays: test(
            "It is left in time.",
            "oci.rs",
            "a_registry_that_keeps_us_waiting_is_left_in_time",
        ),
    },
    FaultRow {
        what: "A module computes without end.",
        passes: test(
            "The call ends at its limit, and delays no other call.",
            "mcp_server/sessions.rs",
            "a_spinning_guest_ends_at_its_limit_and_delays_no_other_call",
        ),
        stays: test(
            "A module never holds more places than its limit.",
            "capacity.rs",
            "a_module_holds_no_more_places_than_its_limit",
        ),
    },
    FaultRow {
        what: "The configuration has a mistake.",
        passes: test(
            "The state before stays in use until it is mended.",
            "serve/grants.rs",
            "an_edited_policy_reaches_a_server_that_runs_and_a_broken_one_does_not",
        ),
        stays: test(
            "Each refused reload is counted.",
            "monitoring.rs",
            "a_refused_reload_is_counted",
        ),
    },
    FaultRow {
        what: "The configuration is emptied or cut.",
        passes: test(
            "Nothing is taken away.",
            "serve/grants.rs",
            "a_file_that_is_emptied_or_cut_takes_nothing_away_until_a_person_asks",
        ),
        stays: test(
            "It holds once a person confirms it.",
            "serve/grants.rs",
            "a_file_that_is_emptied_or_cut_takes_nothing_away_until_a_person_asks",
        ),
    },
    FaultRow {
        what: "An agent is taken out of the configuration while its run waits.",
        passes: test(
            "The run goes on when there is one again.",
            "serve/faults.rs",
            "a_run_whose_agent_is_gone_goes_on_when_there_is_one_again",
        ),
        stays: test(
            "The run is parked, and can be cancelled.",
            "serve/mod.rs",
            "parked_runs_can_be_cancelled",
        ),
    },
    FaultRow {
        what: "A grant is taken back during a call.",
        passes: test(
            "Given again, it holds for later calls.",
            "serve/grants.rs",
            "grants_and_revocations_reach_a_running_server",
        ),
        stays: test(
            "The call ends.",
            "ends/runs.rs",
            "a_call_whose_grant_is_taken_back_ends",
        ),
    },
];

#[test]
fn faults_of_modules() {
    try_rows(&mut ModulesBench::new(), ROWS);
}
