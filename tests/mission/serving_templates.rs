//! 000.105: templates of Toolhold with vLLM, SGLang, TGI, TensorRT-LLM and llama.cpp, for one machine and for a cluster.

use crate::packaging::packaged;
use serde_json::json;
use support::host::Host;
use support::sandbox::repository;
use support::server::Server;
use toolhold_needs::{Need, leave_out};
use yaml_rust2::{Yaml, YamlLoader};

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
    (
        "llama-cpp",
        "servers/llama-cpp.compose.yaml",
        "servers/llama-cpp.kubernetes.yaml",
        "--jinja",
    ),
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

/// Toolhold as the template of llama.cpp starts it, with this machine's llama.cpp in the place of the container.
#[test]
fn statement_000_105_the_template_of_llama_cpp_starts() {
    let Ok(url) = std::env::var("TOOLHOLD_E2E_BASE_URL") else {
        leave_out(
            Need::Model,
            "no llama.cpp (TOOLHOLD_E2E_BASE_URL is not set; `cargo xtask test` starts one)",
        );
        return;
    };
    let compose = documents("servers/llama-cpp.compose.yaml");
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
