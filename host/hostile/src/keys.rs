//! Row 50: settings that together would send a key to an address that it was not configured with.

use crate::attack::{Attack, Company};
use crate::command::CommandFolder;
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use crate::serving::Answering;
use std::future::ready;
use std::process::Output;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 50,
    name: "keys_sent_elsewhere",
    attack: "variables, flags, found files and redirects that name another address for an endpoint, an MCP server, a collector",
    must: "no key arrives there; it does at its own address",
    company: Company::Others,
    tries: |lab| Box::pin(ready(keys_sent_elsewhere(lab))),
}];

/// The variables with the keys, and their values. No other text has them.
const KEYS: [(&str, &str); 4] = [
    ("SMALL_KEY", "sk-small-3f2a9c"),
    ("BIG_KEY", "sk-big-77d01e"),
    ("FAR_TOKEN", "tok-far-b81c44"),
    ("SPAN_HEADERS", "authorization=Bearer tel-5e90aa"),
];
/// The part of the last value that is looked for.
const SPAN_KEY: &str = "tel-5e90aa";

/// The places that a person configured, and the one that hears no key.
struct KeyPlaces {
    right: Answering,
    redirecting: Answering,
    wrong: Answering,
}

impl KeyPlaces {
    fn new() -> std::io::Result<Self> {
        let wrong = Answering::start(400, "{}")?;
        Ok(Self {
            right: Answering::start(400, "{}")?,
            redirecting: Answering::redirecting(&format!("http://localhost:{}/v1", wrong.port))?,
            wrong,
        })
    }

    /// The user's own file.
    fn configuration(&self) -> String {
        let (right, other) = (self.right.port, self.redirecting.port);
        format!(
            "[endpoints.default]\nbase_url = \"http://127.0.0.1:{right}/v1\"\nmodel = \"m\"\napi_key_env = \"SMALL_KEY\"\n\
             [endpoints.big]\nbase_url = \"http://127.0.0.1:{right}/v1\"\nmodel = \"m\"\napi_key_env = \"BIG_KEY\"\n\
             [endpoints.leads]\nbase_url = \"http://127.0.0.1:{other}/v1\"\nmodel = \"m\"\napi_key_env = \"BIG_KEY\"\n\
             [mcp.far]\nurl = \"http://127.0.0.1:{right}/mcp\"\ntoken_env = \"FAR_TOKEN\"\n\
             [telemetry]\nendpoint = \"http://127.0.0.1:{right}\"\nheaders_env = \"SPAN_HEADERS\"\n"
        )
    }

    fn wrong_url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.wrong.port)
    }
}

/// Names of keys that a server heard.
fn heard(server: &Answering) -> Vec<&'static str> {
    let heard = server.heard();
    KEYS.iter()
        .filter(|(name, value)| {
            let value = if *name == "SPAN_HEADERS" {
                SPAN_KEY
            } else {
                *value
            };
            heard.iter().any(|text| text.contains(value))
        })
        .map(|(name, _)| *name)
        .collect()
}

/// Variables that lead to the wrong place: a path stands for one there.
const VARIABLES: [&[(&str, &str)]; 10] = [
    &[],
    &[("TOOLHOLD_BASE_URL", "/v1")],
    &[("TOOLHOLD_ENDPOINT", "big")],
    &[("TOOLHOLD_BASE_URL", "/v1"), ("TOOLHOLD_ENDPOINT", "big")],
    &[
        ("TOOLHOLD_BASE_URL", "/v1"),
        ("TOOLHOLD_MODEL", "m"),
        ("TOOLHOLD_ENDPOINT", "big"),
    ],
    &[("TOOLHOLD_ENDPOINTS__BIG__BASE_URL", "/v1")],
    &[("TOOLHOLD_ENDPOINTS__DEFAULT__BASE_URL", "/v1")],
    &[("TOOLHOLD_MCP__FAR__URL", "/mcp")],
    &[("TOOLHOLD_TELEMETRY__ENDPOINT", "/")],
    &[
        ("TOOLHOLD_BASE_URL", "/v1"),
        ("TOOLHOLD_ENDPOINTS__BIG__BASE_URL", "/v1"),
        ("TOOLHOLD_ENDPOINTS__LEADS__BASE_URL", "/v1"),
        ("TOOLHOLD_MCP__FAR__URL", "/mcp"),
        ("TOOLHOLD_TELEMETRY__ENDPOINT", "/"),
    ],
];

/// Commands that ask an endpoint or a server; `WRONG` stands for the wrong address.
const COMMANDS: [&[&str]; 8] = [
    &["run", "t"],
    &["run", "t", "--endpoint", "big"],
    &["run", "t", "--endpoint", "leads"],
    &["run", "t", "--base-url", "WRONG"],
    &["run", "t", "--endpoint", "big", "--base-url", "WRONG"],
    &["run", "t", "--model", "m", "--base-url", "WRONG"],
    &["doctor"],
    &["mcp", "inspect", "far"],
];

/// A file in the working folder: what it is, its text, and whether a person trusts it.
fn found_files(places: &KeyPlaces) -> Vec<(&'static str, String, bool)> {
    let (model, tools, spans) = (
        places.wrong_url("/v1"),
        places.wrong_url("/mcp"),
        places.wrong_url("/"),
    );
    let moved = format!(
        "[endpoints.default]\nbase_url = \"{model}\"\n[endpoints.big]\nbase_url = \"{model}\"\n\
         [mcp.far]\nurl = \"{tools}\"\n[telemetry]\nendpoint = \"{spans}\"\n"
    );
    let theirs = format!(
        "endpoint = \"theirs\"\n[endpoints.theirs]\nbase_url = \"{model}\"\nmodel = \"m\"\n"
    );
    vec![
        ("no file", String::new(), false),
        ("a trusted file with other addresses", moved.clone(), true),
        ("a found file with other addresses", moved, false),
        ("a trusted file with an endpoint of its own", theirs, true),
    ]
}

fn keys_sent_elsewhere(lab: &Lab) -> Result<String, AttackFailure> {
    let places = KeyPlaces::new()?;
    let folder = CommandFolder::in_memory(lab)?.without_programs();
    folder.write(".config/toolhold/config.toml", places.configuration())?;
    let (mut tried, mut broke, mut arrived) = (0, Vec::new(), Vec::new());
    let files = found_files(&places);
    for (what, file, is_trusted) in files.iter().take(lab.times(2, 4)) {
        if !file.is_empty() {
            folder.write("toolhold.toml", file)?;
        }
        if *is_trusted {
            let trusted = run(&folder, &places, &["trust", "--yes"], &[])?;
            ensure(trusted.status.success(), || {
                let said = String::from_utf8_lossy(&trusted.stderr).into_owned();
                format!("{what} cannot be trusted: {said:.300}")
            })?;
        }
        for variables in VARIABLES {
            for command in COMMANDS {
                run(&folder, &places, command, variables)?;
                let told = heard(&places.wrong);
                if !told.is_empty() {
                    broke.push(format!("{command:?} {variables:?} beside {what}: {told:?}"));
                }
                arrived.extend(heard(&places.right));
                arrived.extend(heard(&places.redirecting));
                tried += 1;
            }
        }
    }
    ensure(broke.is_empty(), || {
        format!(
            "{} of {tried} told a key: {}",
            broke.len(),
            broke.join("; ")
        )
    })?;
    // Each key is used, or nothing is proved.
    for (name, _) in KEYS {
        ensure(arrived.contains(&name), || {
            format!("{name} did not arrive at its own address")
        })?;
    }
    Ok(format!("{tried} combinations, no key elsewhere"))
}

fn run(
    folder: &CommandFolder,
    places: &KeyPlaces,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<Output, AttackFailure> {
    let url = places.wrong_url("/v1");
    let arguments: Vec<&str> = arguments
        .iter()
        .map(|argument| {
            if *argument == "WRONG" {
                url.as_str()
            } else {
                *argument
            }
        })
        .collect();
    let mut command = folder.command(&arguments);
    command.envs(KEYS);
    for (name, value) in variables {
        if value.starts_with('/') {
            command.env(name, places.wrong_url(value));
        } else {
            command.env(name, value);
        }
    }
    Ok(command.output()?)
}
