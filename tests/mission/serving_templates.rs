//! 000.105: templates of Toolhold with vLLM, SGLang, TGI, TensorRT-LLM and llama.cpp, for one machine and for a cluster.

use crate::packaging::packaged;
use crate::real_model;
use serde_json::json;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::host::Host;
use support::sandbox::repository;
use support::server::Server;
use support::{foreign, until};
use toolhold_needs::{Need, leave_out};
use yaml_rust2::{Yaml, YamlLoader};

/// The template of llama.cpp for one machine, and the one for a cluster.
const LLAMA_CPP: [&str; 2] = [
    "servers/llama-cpp.compose.yaml",
    "servers/llama-cpp.kubernetes.yaml",
];
/// The pins of the wheel that has `llama-server`, which the image of these templates starts.
const LLAMA_SERVER_PINS: &str = ".config/llama-server.txt";

/// Server, template for one machine, template for a cluster, and a word of the command that starts the server.
const TEMPLATES: [(&str, &str, &str, &str); 5] = [
    ("vllm", "compose.yaml", "inference.yaml", "--model"),
    (
        "sglang",
        "servers/sglang.compose.yaml",
        "servers/sglang.kubernetes.yaml",
        "sglang.launch_server",
    ),
    (
        "tgi",
        "servers/tgi.compose.yaml",
        "servers/tgi.kubernetes.yaml",
        "--model-id",
    ),
    (
        "tensorrt-llm",
        "servers/tensorrt-llm.compose.yaml",
        "servers/tensorrt-llm.kubernetes.yaml",
        "trtllm-serve",
    ),
    ("llama-cpp", LLAMA_CPP[0], LLAMA_CPP[1], "--jinja"),
];

fn documents(file: &str) -> Vec<Yaml> {
    YamlLoader::load_from_str(&packaged(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn text<'y>(value: &'y Yaml, what: &str) -> &'y str {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{what}: {value:?}"))
}

fn words(value: &Yaml) -> Vec<&str> {
    let words = value.as_vec().into_iter().flatten();
    words.filter_map(Yaml::as_str).collect()
}

#[test]
fn statement_000_105_templates_of_one_machine_start_each_server() {
    let usual = documents("compose.yaml");
    for (server, file, _, word) in TEMPLATES {
        let all = documents(file);
        let [compose] = all.as_slice() else {
            panic!("{file} has {} documents", all.len());
        };
        let own = &compose["services"][server];
        let command = words(&own["command"]);
        assert!(command.contains(&word), "{file}: {command:?}");
        assert!(text(&own["image"], file).contains(':'), "{file}");
        let check = words(&own["healthcheck"]["test"]);
        assert_eq!(
            check.last(),
            Some(&"http://localhost:8000/health"),
            "{file}"
        );
        // vLLM's own port is this one.
        let port = command.iter().position(|word| *word == "--port");
        let port = port.and_then(|at| command.get(at + 1));
        assert!(
            port.map_or(server == "vllm", |port| *port == "8000"),
            "{file}"
        );
        let toolhold = &compose["services"]["toolhold"];
        let url = text(&toolhold["environment"]["TOOLHOLD_BASE_URL"], file);
        assert_eq!(url, format!("http://{server}:8000/v1"));
        let waits = &toolhold["depends_on"][server]["condition"];
        assert_eq!(text(waits, file), "service_healthy");
        // All else of Toolhold is the same in each.
        let same = &usual[0]["services"]["toolhold"];
        for key in [
            "ports",
            "volumes",
            "cap_drop",
            "security_opt",
            "stop_grace_period",
        ] {
            assert!(!same[key].is_badvalue(), "{key}");
            assert_eq!(toolhold[key], same[key], "{file}: {key}");
        }
        let build = &toolhold["build"];
        let folder = repository().join("host/cli/packaging").join(file);
        let context = folder.parent().unwrap().join(text(&build["context"], file));
        assert!(
            context.join(text(&build["dockerfile"], file)).is_file(),
            "{file}"
        );
        for volume in ["models", "state"] {
            let volumes = compose["volumes"].as_hash().unwrap();
            assert!(
                volumes.contains_key(&Yaml::String(volume.to_owned())),
                "{file}"
            );
        }
    }
}

#[test]
fn statement_000_105_templates_of_a_cluster_serve_each_server() {
    for (server, _, file, word) in TEMPLATES {
        let all = documents(file);
        let kinds: Vec<&str> = all.iter().map(|it| text(&it["kind"], file)).collect();
        assert_eq!(kinds, ["Deployment", "Service", "NetworkPolicy"], "{file}");
        for document in &all {
            assert_eq!(text(&document["metadata"]["name"], file), server);
        }
        let [deployment, service, policy] = all.as_slice() else {
            panic!("{file}");
        };
        let pod = &deployment["spec"]["template"];
        assert_eq!(text(&pod["metadata"]["labels"]["app"], file), server);
        let container = &pod["spec"]["containers"][0];
        let command = [words(&container["command"]), words(&container["args"])].concat();
        assert!(command.contains(&word), "{file}: {command:?}");
        assert_eq!(container["ports"][0]["containerPort"].as_i64(), Some(8_000));
        for probe in ["startupProbe", "readinessProbe"] {
            let path = &container[probe]["httpGet"]["path"];
            assert_eq!(text(path, file), "/health", "{probe}");
        }
        // Each mount has its volume.
        let names = |list: &Yaml| -> Vec<String> {
            let list = list.as_vec().into_iter().flatten();
            list.map(|it| text(&it["name"], file).to_owned()).collect()
        };
        let volumes = names(&pod["spec"]["volumes"]);
        let mounts = names(&container["volumeMounts"]);
        assert!(!mounts.is_empty(), "{file}");
        assert_eq!(volumes, mounts, "{file}");
        assert_eq!(text(&service["spec"]["selector"]["app"], file), server);
        assert_eq!(service["spec"]["ports"][0]["port"].as_i64(), Some(8_000));
        let pods = &policy["spec"]["podSelector"]["matchLabels"]["app"];
        assert_eq!(text(pods, file), server);
        if server != "vllm" {
            let address = format!("base_url = \"http://{server}:8000/v1\"");
            assert!(packaged(file).contains(&address), "{file}");
        }
    }
}

/// Toolhold as the template of llama.cpp starts it, with the server of `cargo xtask local-model` in the place of the container.
#[test]
fn statement_000_105_the_template_of_llama_cpp_starts() {
    let Ok(url) = std::env::var("TOOLHOLD_E2E_BASE_URL") else {
        leave_out(
            Need::Model,
            "no llama.cpp (TOOLHOLD_E2E_BASE_URL is not set; `cargo xtask test` starts one)",
        );
        return;
    };
    let compose = documents(LLAMA_CPP[0]);
    let services = &compose[0]["services"];
    let toolhold = services["toolhold"]["environment"].as_hash().unwrap();
    let host = Host::new();
    host.ship("calculator");
    let variables: Vec<(&str, &str)> = toolhold
        .iter()
        .map(|(name, value)| {
            let name = text(name, "a variable");
            let is_address = name == "TOOLHOLD_BASE_URL";
            (
                name,
                if is_address {
                    url.as_str()
                } else {
                    text(value, name)
                },
            )
        })
        .collect();
    // llama.cpp has the path that the health check of the container asks for.
    let check = words(&services["llama-cpp"]["healthcheck"]["test"]);
    let path = check.last().unwrap().strip_prefix("http://localhost:8000");
    let health = format!("{}{}", url.trim_end_matches("/v1"), path.unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let status = runtime.block_on(async { reqwest::get(&health).await.unwrap().status() });
    assert_eq!(status.as_u16(), 200, "{health}");
    let server = Server::start_with(&host, &[], &variables);
    assert_eq!(server.get("/readyz").status, 200, "{}", server.said());
    let task = json!({
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 64,
        "max_steps": 1,
    });
    let answer = server.post("/v1/agent", &task).good();
    assert!(
        answer["usage"]["total_tokens"].as_u64() > Some(0),
        "{answer}"
    );
}

/// `--version` ends llama-server when it has read the words before it, and before it fetches or loads a model.
#[test]
fn statement_000_105_llama_cpp_has_the_options_of_its_templates() {
    let Some(program) = llama_server() else {
        return;
    };
    let host = Host::new();
    let [compose, cluster] = LLAMA_CPP.map(documents);
    let container = &cluster[0]["spec"]["template"]["spec"]["containers"][0];
    let version = |options: &[&str]| {
        let mut command = command(&program, &host);
        command.args(options).arg("--version").output().unwrap()
    };
    for options in [
        words(&compose[0]["services"]["llama-cpp"]["command"]),
        words(&container["args"]),
    ] {
        assert!(options.contains(&"--jinja"), "{options:?}");
        let read = version(&options);
        assert!(read.status.success(), "{options:?}: {read:?}");
        // An option that it does not have ends it before.
        let unread = version(&[&options[..], &["--no-such-option"]].concat());
        assert!(!unread.status.success(), "{options:?}: {unread:?}");
    }
}

/// llama-server starts with the options of the template for one machine. Two values are others: the model, which it would
/// fetch, and the address, which other machines can reach.
#[test]
fn statement_000_105_llama_cpp_starts_by_its_template() {
    let Ok(weights) = std::env::var("TOOLHOLD_E2E_WEIGHTS") else {
        leave_out(
            Need::Model,
            "no weights for llama-server (TOOLHOLD_E2E_WEIGHTS, which `cargo xtask test` sets)",
        );
        return;
    };
    let Some(program) = llama_server() else {
        return;
    };
    let compose = documents(LLAMA_CPP[0]);
    let services = &compose[0]["services"];
    let own = &services["llama-cpp"];
    let free = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    let address = free.unwrap();
    let port = address.port().to_string();
    let mut options = words(&own["command"]);
    for (option, here) in [
        ("-hf", ["--model", &weights]),
        ("--host", ["--host", "127.0.0.1"]),
        ("--port", ["--port", &port]),
    ] {
        let at = options.iter().position(|word| *word == option);
        let at = at.unwrap_or_else(|| panic!("no {option}: {options:?}"));
        options[at..at + 2].copy_from_slice(&here);
    }
    // An address of the template, on this machine.
    let here = |url: &str, documented: &str| {
        assert!(url.contains(documented), "{url}");
        url.replace(documented, &address.to_string())
    };
    let check = words(&own["healthcheck"]["test"]);
    let health = here(check.last().unwrap(), "localhost:8000");
    let url = &services["toolhold"]["environment"]["TOOLHOLD_BASE_URL"];
    let url = here(text(url, "the address"), "llama-cpp:8000");

    let host = Host::new();
    host.ship("calculator");
    let mut server = LlamaServer::start(&program, &options, &host);
    server.await_health(&health);
    // So small a model misses now and then.
    let mut faults = Vec::new();
    loop {
        let events = real_model::events(&host, &url, "", "Say hello.", faults.len());
        match events {
            Ok(events) if !real_model::output(&events).trim().is_empty() => break,
            other => faults.push(other),
        }
        assert!(faults.len() < 3, "{faults:#?} {}", server.said());
    }
}

/// The program that the image of llama.cpp starts. `None` if this machine cannot have it, and the test is left out.
fn llama_server() -> Option<PathBuf> {
    if !has_instructions() {
        leave_out(
            Need::Processor,
            "the wheel of llama-server is for Linux on x86-64 with AVX2, BMI2, F16C and FMA",
        );
        return None;
    }
    let programs = foreign::locked_python(&repository().join(LLAMA_SERVER_PINS))?;
    Some(programs.join("llama-server-vulkan"))
}

/// Whether the processor has the instructions of the wheel, which checks none of them.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn has_instructions() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("bmi2")
        && std::arch::is_x86_feature_detected!("f16c")
        && std::arch::is_x86_feature_detected!("fma")
        && std::arch::is_x86_feature_detected!("lzcnt")
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn has_instructions() -> bool {
    false
}

/// The program without the variables of this process, which may be options of it (`LLAMA_ARG_…`).
fn command(program: &Path, host: &Host) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("HOME", host.path())
        .env("LLAMA_CACHE", host.path())
        // The image has no code for GPUs, and the wheel has.
        .env("GGML_VK_VISIBLE_DEVICES", "")
        // Threads sleep at OpenMP barriers, as in `host/xtask/src/local_model/server.rs`.
        .env("OMP_WAIT_POLICY", "passive")
        .stdin(Stdio::null());
    command
}

/// A llama-server that runs until it is dropped.
struct LlamaServer {
    child: Child,
    log: PathBuf,
}

impl LlamaServer {
    fn start(program: &Path, options: &[&str], host: &Host) -> Self {
        let log = host.path().join("llama-server.log");
        let output = File::create(&log).unwrap();
        let errors = output.try_clone().unwrap();
        let mut command = command(program, host);
        let child = command.args(options).stdout(output).stderr(errors).spawn();
        Self {
            child: child.unwrap(),
            log,
        }
    }

    /// Asks this address until the answer is a success, as the health check of the container does.
    fn await_health(&mut self, address: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(10))
            .build()
            .unwrap();
        until("a llama-server in good health", || {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", self.said());
            let answer = runtime.block_on(async { client.get(address).send().await });
            answer
                .is_ok_and(|answer| answer.status().is_success())
                .then_some(())
        });
    }

    /// The text of its log.
    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for LlamaServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
