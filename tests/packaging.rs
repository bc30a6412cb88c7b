//! What is in `host/cli/packaging` is what the binary understands: flags, variables, keys, paths and times.

use serde_json::json;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use support::endpoint::{Endpoint, Reply, ReplyOrder, Scenario};
use support::host::Host;
use support::sandbox::repository;
use support::server::Server;

pub(super) fn packaged(file: &str) -> String {
    let path = repository().join("host/cli/packaging").join(file);
    std::fs::read_to_string(path).expect("it is packaged")
}

/// What stands after `key` in its line.
pub(super) fn after<'t>(text: &'t str, key: &str) -> &'t str {
    let mut lines = text.lines().map(str::trim_start);
    let found = lines.find_map(|line| line.strip_prefix(key));
    found.unwrap_or_else(|| panic!("no {key}")).trim()
}

fn words(array: &str) -> Vec<String> {
    serde_json::from_str(array).expect("an array of strings")
}

/// Starts the server as it is packaged, with this host's folder in the place of the machine's. `is_shared`: the
/// state is on a volume that others may write.
fn serves(command: &[String], variables: &[(String, String)], config: &str, is_shared: bool) {
    let host = Host::new();
    host.ship("calculator");
    let here = |text: &str| {
        let root = host.path().display();
        let text = text.replace("/var/lib/toolhold/modules", &format!("{root}/modules"));
        text.replace("/var/lib/toolhold", &format!("{root}/.state"))
            .replace("/var/cache/toolhold", &format!("{root}/cache"))
            .replace("/etc/toolhold", &format!("{root}/etc"))
    };
    host.write("etc/config.toml", config);
    assert!(command[0].ends_with("toolhold"), "{command:?}");
    assert!(command.contains(&"serve".to_owned()), "{command:?}");
    // The test's own address is given by the flag that a packaged one is given by.
    let listen = command.iter().position(|word| word == "--listen");
    let rest: Vec<String> = command[1..]
        .iter()
        .enumerate()
        .filter(|(at, word)| {
            let is_address = listen.is_some_and(|listen| (listen..listen + 2).contains(&(at + 1)));
            *word != "serve" && !is_address
        })
        .map(|(_, word)| here(word))
        .collect();
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let mut variables: Vec<(String, String)> = variables
        .iter()
        .map(|(name, value)| (name.clone(), here(value)))
        .collect();
    // Without an endpoint it would not be ready.
    let endpoint = Endpoint::start(Scenario::new([]));
    variables.push(("TOOLHOLD_BASE_URL".into(), endpoint.base_url()));
    variables.push(("TOOLHOLD_MODEL".into(), "m".into()));
    let variables: Vec<_> = variables
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    // As volumes are that a group shares.
    let volume = host.path().join(".state/state");
    std::fs::create_dir_all(&volume).unwrap();
    if is_shared {
        std::fs::set_permissions(&volume, Permissions::from_mode(0o2777)).unwrap();
    }
    let server = Server::start_with(&host, &rest, &variables);
    assert!(
        !server.said().contains("not be cached"),
        "{}",
        server.said()
    );
    let manifest = packaged("kubernetes.yaml");
    let probes: Vec<&str> = manifest
        .split("httpGet: { path: ")
        .skip(1)
        .filter_map(|rest| rest.split(',').next())
        .collect();
    assert!(probes.len() >= 3, "{probes:?}");
    for path in probes {
        assert_eq!(server.get(path).status, 200, "{path}: {}", server.said());
    }
    let modules = server.get("/v1/modules").good();
    assert_eq!(modules["modules"][0]["name"], "calculator", "{modules}");
}

#[test]
fn the_unit_starts_a_server() {
    let unit = packaged("toolhold.service");
    let command: Vec<String> = after(&unit, "ExecStart=")
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let variables: Vec<(String, String)> = after(&unit, "Environment=")
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    assert_eq!(variables.len(), 2, "{variables:?}");
    serves(&command, &variables, "", false);
    // It makes machine code.
    assert!(!unit.contains("\nMemoryDenyWriteExecute=") && !unit.contains("\nLimitAS="));
    let stop: u64 = after(&unit, "TimeoutStopSec=").parse().unwrap();
    assert!(stop * 1_000 > drain_ms(""), "{stop}");
}

#[test]
fn the_container_starts_a_server() {
    let file = packaged("Containerfile");
    let variables: Vec<(String, String)> = after(&file, "ENV ")
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    assert_eq!(variables.len(), 2, "{variables:?}");
    serves(&words(after(&file, "CMD ")), &variables, "", false);
    for line in file
        .lines()
        .filter(|line| line.starts_with("COPY modules/"))
    {
        let mut paths: Vec<&str> = line.split_whitespace().skip(1).collect();
        let to = paths.pop().unwrap();
        assert!(to.starts_with("/var/lib/toolhold/modules/"), "{line}");
        for path in paths {
            assert!(repository().join(path).is_file(), "{path}");
        }
    }
    // The licence, and the notices of what is in the binary by others.
    let documents = after(&file, "COPY LICENSE ");
    let (notices, folder) = documents.split_once(' ').unwrap();
    assert!(repository().join(notices).is_file(), "{notices}");
    assert_eq!(folder, "/usr/share/doc/toolhold/");
    // What is built elsewhere does not get into the build.
    let ignored = std::fs::read_to_string(repository().join(".dockerignore")).unwrap();
    assert!(ignored.lines().any(|line| line == "**/target"), "{ignored}");
}

#[test]
fn the_manifest_starts_a_server() {
    let manifest = packaged("kubernetes.yaml");
    let config: Vec<&str> = manifest
        .lines()
        .skip_while(|line| line.trim() != "config.toml: |")
        .skip(1)
        .take_while(|line| line.is_empty() || line.starts_with("    "))
        .map(str::trim_start)
        .collect();
    let config = config.join("\n");
    assert!(config.contains("[serve]"), "{config}");
    let variables: Vec<(String, String)> = manifest
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- { name: TOOLHOLD_"))
        .filter_map(|rest| rest.trim_end_matches(" }").split_once(", value: "))
        .map(|(name, value)| (format!("TOOLHOLD_{name}"), value.to_owned()))
        .collect();
    assert_eq!(variables.len(), 1, "{variables:?}");
    serves(
        &words(after(&manifest, "args: ")),
        &variables,
        &config,
        true,
    );

    let grace: u64 = after(&manifest, "terminationGracePeriodSeconds: ")
        .parse()
        .unwrap();
    let sleeps: u64 = words(after(&manifest, "exec: { command: ").trim_end_matches(" }"))[1]
        .parse()
        .unwrap();
    assert!(
        (grace - sleeps) * 1_000 > drain_ms(&config),
        "{grace} {sleeps}"
    );
    let image = packaged("Containerfile");
    for name in ["TOOLHOLD_PATHS__STATE", "TOOLHOLD_PATHS__CACHE"] {
        let (_, rest) = image.split_once(&format!("{name}=")).unwrap();
        let path = rest.split_whitespace().next().unwrap();
        let mounted = format!("mountPath: {path} }}");
        assert!(manifest.contains(&mounted), "{path} is read-only");
    }
    let user = after(&image, "USER ");
    assert!(manifest.contains(&format!("runAsUser: {user}\n")));
}

/// The template's inference server is where the manifest's configuration, and compose's variable, say that it is.
#[test]
fn the_inference_server_is_where_it_is_looked_for() {
    let manifest = packaged("kubernetes.yaml");
    let url = after(&manifest, "base_url = ").trim_matches('"').to_owned();
    let address = url.strip_prefix("http://").unwrap();
    let (host, port) = address.trim_end_matches("/v1").split_once(':').unwrap();
    let inference = packaged("inference.yaml");
    assert!(inference.contains(&format!("kind: Service\nmetadata:\n  name: {host}\n")));
    assert!(inference.contains(&format!("port: {port}, targetPort")));

    let compose = packaged("compose.yaml");
    assert_eq!(after(&compose, "TOOLHOLD_BASE_URL: "), url);
    assert!(compose.contains(&format!("\n  {host}:\n")), "{compose}");
    let file = after(&compose, "dockerfile: ");
    assert!(repository().join(file).is_file(), "{file}");
    let volume = after(&compose, "- state:");
    assert!(packaged("Containerfile").contains(&format!("VOLUME {volume}\n")));
    let stop = after(&compose, "stop_grace_period: ").trim_end_matches('s');
    assert!(stop.parse::<u64>().unwrap() * 1_000 > drain_ms(""));
}

/// With these arguments, tasks that are all solved pass, and tasks that are not fail.
#[test]
fn the_nightly_evaluation_judges_the_operators_tasks() {
    let unit = packaged("toolhold-eval.service");
    let timer = packaged("toolhold-eval.timer");
    assert!(timer.contains("\nOnCalendar="), "{timer}");
    for (answer, code) in [("42", 0), ("41", 1)] {
        let reply = Reply::solution(json!({"calls": [], "output": answer}));
        let endpoint = Endpoint::start(Scenario::new([reply]).in_order(ReplyOrder::Repeat));
        let host = Host::new();
        host.ship("calculator");
        let root = host.path().display().to_string();
        host.write("etc/config.toml", "");
        host.write(
            "etc/tasks.toml",
            "[[tasks]]\nid = \"six\"\ntask = \"6 * 7?\"\nexpect.answer.contains = [\"42\"]\n",
        );
        let arguments: Vec<String> = after(&unit, "ExecStart=/usr/local/bin/toolhold ")
            .split_whitespace()
            // systemd's way to write a percent sign.
            .map(|word| word.replace("%%", "%"))
            .map(|word| word.replace("/var/lib/toolhold/modules", &format!("{root}/modules")))
            .map(|word| word.replace("/etc/toolhold", &format!("{root}/etc")))
            .collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let done = host
            .command(&arguments)
            .env("TOOLHOLD_BASE_URL", endpoint.base_url())
            .env("TOOLHOLD_MODEL", "m")
            .output()
            .unwrap();
        assert_eq!(done.status.code(), Some(code), "{done:?}");
    }
}

/// The server's modules are in its state folder, which systemd closes to other users; its variables name its database.
#[test]
fn the_nightly_evaluation_shares_the_servers_modules_and_not_its_database() {
    let (unit, server) = (
        packaged("toolhold-eval.service"),
        packaged("toolhold.service"),
    );
    // The user of a unit with DynamicUser= has the unit's name.
    assert!(server.contains("\nDynamicUser=yes\n") && !server.contains("\nUser="));
    assert!(unit.contains("\nUser=toolhold\n"), "{unit}");
    let folders = |unit: &str| -> Vec<String> {
        let folders = after(unit, "StateDirectory=");
        folders.split_whitespace().map(str::to_owned).collect()
    };
    assert!(folders(&unit).contains(&folders(&server)[0]), "{unit}");
    assert!(
        unit.contains("\nUnsetEnvironment=TOOLHOLD_DATABASE_URL\n"),
        "{unit}"
    );
}

/// Kubernetes tells every container of the services around it, in variables that begin with their names. Those of a
/// service that is called `toolhold` would be settings.
#[test]
fn the_manifest_keeps_variables_out_that_are_no_settings() {
    let refused = Host::new()
        .command(&["config"])
        .env("TOOLHOLD_SERVICE_HOST", "10.0.0.1")
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(packaged("kubernetes.yaml").contains("\n      enableServiceLinks: false\n"));
}

/// How long runs have to end with this configuration.
fn drain_ms(config: &str) -> u64 {
    let host = Host::new();
    host.write("toolhold.toml", config);
    let shown = host.run(&["config", "--json"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let settings: serde_json::Value = serde_json::from_str(&shown.stdout).expect("JSON");
    let mut settings = settings.as_array().expect("a list").iter();
    let drain = settings.find(|it| it["key"] == "serve.drain_ms");
    drain.and_then(|it| it["value"].as_u64()).expect("a number")
}
