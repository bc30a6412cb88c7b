//! Tests that may take longer than others, with the reasons. A limit is at least three times the longest time of its tests
//! on two processors; tests that install or compile have more, because a new machine does it for the first time.

/// The binary of [`INTEGRATION`], with the space behind its name.
pub const INTEGRATION_BINARY: &str = "toolhold-tests::integration ";

/// Tests with one limit.
pub struct TestClass {
    /// Beginning of the tests' names.
    pub tests: &'static str,
    /// Seconds that one of them may take.
    pub limit: f64,
    /// The reason of the limit.
    pub why: &'static str,
}

const fn class(tests: &'static str, limit: f64, why: &'static str) -> TestClass {
    TestClass { tests, limit, why }
}

/// Classes of the integration tests, by names that begin with their module. The first that fits counts.
pub const INTEGRATION: &[TestClass] = &[
    class("dev_build::", 360.0, "compiles in several languages"),
    class(
        "module_test::",
        360.0,
        "compiles and tests every shipped module",
    ),
    class(
        "new_module::",
        240.0,
        "installs toolchains and compiles templates",
    ),
    class("real_model::", 240.0, "a model on the CPU"),
    class(
        "example_modules::",
        180.0,
        "compiles interpreters to native code",
    ),
    class(
        "interpreters::",
        90.0,
        "compiles interpreters to native code",
    ),
    class(
        "portable_",
        120.0,
        "installs toolchains and compiles components",
    ),
    class("typed::", 90.0, "compiles components with their toolchain"),
    class(
        "http_languages::",
        120.0,
        "compiles a component in each language",
    ),
    class("docs::", 120.0, "runs every command of the documents"),
    class("page::", 90.0, "starts a browser for each test"),
    class(
        "mcp_server::clients::",
        120.0,
        "installs clients in Python and Node",
    ),
    class(
        "mcp::a_rule_about_a_server_holds_",
        90.0,
        "four runs that wait for a person until their time is over",
    ),
    class(
        "mcp::",
        40.0,
        "runs that wait for a person until their time is over",
    ),
    class(
        "mission::conversations::",
        180.0,
        "conversations of up to 300 turns",
    ),
    class(
        "mission::serving_templates::",
        240.0,
        "installs llama-server, and a model on the CPU",
    ),
    class("mission::", 60.0, "a server and a run for each language"),
    class(
        "serve::clients::",
        120.0,
        "hundreds of requests of each kind, and clients from registries",
    ),
    class(
        "serve::faults::",
        120.0,
        "a server that is killed at each stage",
    ),
    class(
        "serve::unread",
        90.0,
        "clients that leave answers unread until all memory for them is full",
    ),
    class(
        "serve::streamed_answers::",
        90.0,
        "each row of a table by every API",
    ),
    class(
        "serve::cut_answers::",
        60.0,
        "waits between attempts at an endpoint that breaks",
    ),
    class(
        "serve::takeover::",
        90.0,
        "leases of killed servers, which have to expire",
    ),
    class(
        "serve::database::",
        60.0,
        "clusters of PostgreSQL that stop and come back",
    ),
    class(
        "serve::retention::",
        60.0,
        "a cluster of PostgreSQL, and records that expire",
    ),
    class(
        "serve::one_of_simultaneous_turns_",
        60.0,
        "crowds of turns that begin at the same time",
    ),
    class(
        "serve::borders::",
        45.0,
        "a canary in every field of every API",
    ),
    class(
        "serve::",
        30.0,
        "starts a server, and waits for its deadlines",
    ),
    class(
        "faults::",
        60.0,
        "an endpoint, a database and clients that fail in each way",
    ),
    class(
        "keyring::",
        60.0,
        "keyrings that do not answer until a deadline",
    ),
    class(
        "host_files::a_server_",
        60.0,
        "a server that watches its files and pauses between looks",
    ),
    class(
        "module_runs::",
        60.0,
        "processes that are killed, and deadlines of runs",
    ),
    class("call_pipeline::", 60.0, "a run for each way to call a tool"),
    class(
        "modules::",
        45.0,
        "compiles the shipped modules to native code",
    ),
    class("ends::", 45.0, "calls that end at their deadlines"),
    class("terminal::", 40.0, "waits for what a terminal shows"),
    class("costs::", 40.0, "a hundred runs beside each other"),
    class("shields::", 40.0, "shields that use up their time"),
    class(
        "misbehaviours::",
        40.0,
        "a run for each misbehaviour of an endpoint",
    ),
    class(
        "cli_snapshots::",
        40.0,
        "starts the binary for each command",
    ),
    class(
        "markdown::",
        30.0,
        "hostile pages that reach limits of fuel and time",
    ),
    class("oci::", 30.0, "registries that keep a client waiting"),
    class(
        "capacity::",
        30.0,
        "compilers that reach their bounds of time and memory",
    ),
    class("model::", 30.0, "replies of a gigabyte"),
    class("eval::", 30.0, "plays every shipped task"),
    class(
        "https::",
        30.0,
        "connections that stall until their deadline",
    ),
    class("run::", 20.0, "a run for each failure of an endpoint"),
    class("telemetry::", 20.0, "a server and its collectors"),
    class(
        "knowledge::",
        20.0,
        "processes that are killed while they add documents",
    ),
    class(
        "older_state::",
        30.0,
        "a server on the state of each older version",
    ),
    class(
        "streamed_replies::",
        20.0,
        "a run for each way to divide a reply",
    ),
    class(
        "typed_docs::",
        120.0,
        "installs a toolchain's program and compiles a component",
    ),
    class(
        "packaged_formats::",
        120.0,
        "installs what checks manifests",
    ),
    class(
        "dialects::",
        30.0,
        "an endpoint and its probe for each dialect",
    ),
    class("sqlite::", 30.0, "writers in several processes"),
    class(
        "mcp_server::",
        30.0,
        "starts a server, and waits for its deadlines",
    ),
    class(
        "requests::",
        20.0,
        "a run for each way to call a saved Request",
    ),
    class("fallback::", 20.0, "a run for each way to set the order"),
    class("stats::", 20.0, "records of many runs"),
    class("policy::", 20.0, "starts the binary for each row"),
    class(
        "key_addresses::",
        20.0,
        "starts the binary for each variable",
    ),
    class(
        "pinning::",
        20.0,
        "starts the binary for each change of a module",
    ),
    class("grants::", 20.0, "calls that move as much as they may"),
    class(
        "untrusted_text::",
        20.0,
        "starts the binary for each command that shows text",
    ),
    class("plans::", 20.0, "random plans"),
];

/// Classes of all other tests, by names that begin with their binary and a space. The first that fits counts.
pub const OTHERS: &[TestClass] = &[
    class(
        "toolhold-tests::hostile ",
        120.0,
        "attacks reach bounds of time and memory",
    ),
    class(
        "toolhold-agent::scripted_runs quoted::",
        120.0,
        "1 400 runs, for each form, place and copy",
    ),
    class(
        "toolhold-agent::scripted_runs ",
        30.0,
        "runs that are killed after each of their events",
    ),
    class(
        "toolhold-agent run::machine::random_tests::",
        30.0,
        "random runs",
    ),
    class("toolhold-agent contract::leak::", 30.0, "MiB of text"),
    class("toolhold-agent contract::provenance::", 30.0, "MiB of text"),
    class(
        "toolhold-connections websocket::",
        30.0,
        "waits for a client that answers no ping",
    ),
    class(
        "toolhold-mcp serve::unread::",
        30.0,
        "clients that read nothing until their time is over",
    ),
    class(
        "toolhold-knowledge::knowledge ",
        40.0,
        "thousands of documents",
    ),
    class("toolhold-sandbox disk::", 60.0, "trees of 50 000 folders"),
    class(
        "toolhold-sandbox registry::",
        20.0,
        "calls in all places, and copies of scratch files",
    ),
    class(
        "toolhold-storage tests::",
        40.0,
        "each on SQLite and PostgreSQL, on a database of its own",
    ),
    class("toolhold-fuzz", 90.0, "random inputs for seconds"),
];
