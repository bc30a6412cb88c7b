//! Frameworks that speak OpenAI's APIs, in the versions of their locks (`tests/fixtures/openai_clients`). `cargo xtask test
//! --long` tries them; each change is tried with OpenAI's own SDKs.

use super::clients::scripts;
use super::{host, serve};
use serde_json::json;
use std::process::Command;
use support::endpoint::{Endpoint, Expect, Reply, ReplyOrder, Scenario};
use support::foreign;
use support::transcript::{answers, calls};

/// Text of the error for a reply without the call that the client demands.
const NO_CALL: &str = "it calls no tool";

/// Checks that every script prints for each API, some more than once with the variant behind it.
const CHECKS: [&str; 7] = [
    "answer",
    "stream",
    "client tool",
    "streamed client tool",
    "forced tool",
    "structured output",
    "image",
];

/// The scripted model's reply to requests with these texts.
fn when<const N: usize>(texts: [&str; N], reply: Reply) -> Reply {
    reply.expecting(Expect {
        contains: texts.map(str::to_owned).to_vec(),
        ..Expect::default()
    })
}

/// The replies to the questions of the scripts (`checks.py`); the first that fits is given. `function` is the one by which
/// the framework wants structured output. Where a call is demanded, the model makes none at first, so that it is seen
/// whether the demand came through.
fn replies(function: &str) -> Vec<Reply> {
    let (bern, oslo) = ("What is the weather in Bern?", "And the weather in Oslo?");
    let (by_schema, by_call) = ("Describe Bern.", "Describe Rome.");
    let weather = |city: &str| calls([("weather", json!({"city": city}))]);
    let city = |name: &str, people: u32| json!({"name": name, "people": people});
    vec![
        when([bern, "sunny, 21 degrees"], answers("It is sunny in Bern.")),
        when([bern], weather("Bern")),
        when([oslo, NO_CALL], weather("Oslo")),
        when([oslo], answers("It rains in Oslo.")),
        when([by_schema], answers(city("Bern", 134_000))),
        when(
            [by_call, NO_CALL],
            calls([(function, city("Rome", 2_800_000))]),
        ),
        when([by_call], answers("Rome is old.")),
        when(
            ["What is in the picture?", "iVBORw0KGgpsb2dv"],
            answers("a logo"),
        ),
        when(["What is 2+2?"], answers("It is 4.")),
    ]
}

/// Runs a script, and looks at the checks that it says hold. `function` is as for [`replies`].
fn tried(script: &mut Command, function: &str, apis: &[&str]) {
    let host = host("");
    let key = host.run(&["keys", "create", "sdk"]).stdout;
    let scenario = Scenario::new(replies(function)).in_order(ReplyOrder::FirstMatch);
    let endpoint = Endpoint::start(scenario);
    let server = serve(&host, &endpoint);
    let address = format!("{}/v1", server.address());
    let done = script
        .args([address.as_str(), key.trim()])
        // What a framework keeps for the user is not kept here.
        .env("HOME", host.path())
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&done.stdout);
    let errors = String::from_utf8_lossy(&done.stderr);
    let all = format!("{words}\n{errors}\n{}", server.said());
    assert!(done.status.success(), "{all}");
    for check in apis
        .iter()
        .flat_map(|api| CHECKS.map(|it| format!("{api}: {it}")))
    {
        let holds = words.lines().any(|line| {
            let variant = line.strip_prefix(&check);
            variant.is_some_and(|it| it.is_empty() || it.starts_with(" ("))
        });
        assert!(holds, "{check} was not tried: {all}");
    }
}

fn python(lock: &str, script: &str, function: &str) {
    let lock = scripts().join(format!("locks/{lock}.txt"));
    let Some(bin) = foreign::locked_python(&lock) else {
        return;
    };
    let mut command = Command::new(bin.join("python"));
    // The script takes `checks.py` from its folder, which is in the source.
    let script = command
        .arg(scripts().join(script))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    tried(script, function, &["chat", "responses"]);
}

#[test]
#[ignore = "cargo xtask test --long installs it"]
fn openais_agents_sdk_works_with_it() {
    python("agents", "agents_sdk.py", "City");
}

#[test]
#[ignore = "cargo xtask test --long installs it"]
fn langchain_works_with_it() {
    python("langchain", "langchain_client.py", "City");
}

#[test]
#[ignore = "cargo xtask test --long installs it"]
fn pydantic_ai_works_with_it() {
    python("pydantic_ai", "pydantic_ai_client.py", "final_result");
}

#[test]
#[ignore = "cargo xtask test --long installs it"]
fn litellm_works_with_it() {
    python("litellm", "litellm_client.py", "City");
}

#[test]
#[ignore = "cargo xtask test --long installs it"]
fn llama_index_works_with_it() {
    python("llama_index", "llama_index_client.py", "City");
}

#[test]
#[ignore = "cargo xtask test --long installs it"]
fn vercels_ai_sdk_works_with_it() {
    let Some(folder) = foreign::locked_node(&scripts().join("locks/vercel")) else {
        return;
    };
    let mut command = Command::new("node");
    let script = command
        .arg(scripts().join("vercel_client.mjs"))
        .current_dir(&folder);
    tried(script, "City", &["chat", "responses", "compatible"]);
}
