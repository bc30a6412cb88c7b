//! Errors of the API: their codes, the part of the request that is wrong, and the meaning of the endpoint's own errors.

use super::{answers, ask, calls, host, scripted, serve};
use reqwest::Method;
use serde_json::{Value, json};
use support::endpoint::Reply;
use toolhold_schema::Validator;

const CHAT: &str = "/v1/chat/completions";

#[test]
fn errors_name_their_cause_and_the_part_that_is_wrong() {
    let (host, endpoint) = (host(""), scripted([]));
    let server = serve(&host, &endpoint);
    let said = json!([{"role": "user", "content": "t"}]);
    for (path, body, status, code, param) in [
        (
            CHAT,
            json!({"model": "default", "messages": 7}),
            400,
            json!("invalid_value"),
            json!("messages"),
        ),
        (
            CHAT,
            json!({"model": "default", "messages": [{"role": "user", "content": "t"}, {"role": 7}]}),
            400,
            json!("invalid_value"),
            json!("messages[1].role"),
        ),
        (
            CHAT,
            json!({"model": "default", "messages": [{"role": "king"}]}),
            400,
            json!("invalid_value"),
            json!("messages[0].role"),
        ),
        (
            CHAT,
            json!({"model": "default", "messages": said, "n": 2}),
            400,
            json!("unsupported_parameter"),
            json!("n"),
        ),
        (
            CHAT,
            json!({"model": "default", "messages": said, "top_p": 2}),
            400,
            json!("invalid_value"),
            json!("top_p"),
        ),
        (
            CHAT,
            json!({"model": "gpt", "messages": said}),
            404,
            json!("model_not_found"),
            json!("model"),
        ),
        (
            "/v1/responses",
            json!({"model": "default", "input": "t", "top_logprobs": 2}),
            400,
            json!("unsupported_parameter"),
            json!("top_logprobs"),
        ),
        (
            "/v1/agent",
            json!({"messages": said, "sampling_params": {"min_p": "x"}}),
            400,
            json!("invalid_value"),
            json!("sampling_params.min_p"),
        ),
        (
            "/chat/completions",
            json!({"model": "default", "messages": said}),
            404,
            json!("unknown_url"),
            Value::Null,
        ),
        (
            "/v1/completions",
            json!({"model": "default", "prompt": "t"}),
            404,
            json!("unsupported_endpoint"),
            Value::Null,
        ),
    ] {
        let answered = server.post(path, &body);
        assert_eq!(answered.status, status, "{path} {body}: {answered:?}");
        let error = &answered.json()["error"];
        assert_eq!(error["code"], code, "{path} {body}: {error}");
        assert_eq!(error["param"], param, "{path} {body}: {error}");
    }
    let listed = server.send(CHAT, "application/json", br#"["default", []]"#, &[]);
    assert_eq!(listed.status, 400, "{listed:?}");
    assert_eq!(listed.json()["error"]["code"], "invalid_value");
    let broken = server.send(CHAT, "application/json", b"{", &[]);
    assert_eq!(broken.status, 400, "{broken:?}");
    assert_eq!(broken.json()["error"]["code"], "invalid_json");
    for path in ["/chat/completions", "/v1/completions"] {
        let told = server.post(path, &json!({})).json()["error"]["message"].clone();
        let told = told.as_str().unwrap().to_owned();
        assert!(told.contains(CHAT), "{path}: {told}");
    }
}

/// Values that a member cannot have, with the path of each.
#[test]
fn wrong_part_is_named_by_its_path() {
    let (host, endpoint) = (host(""), scripted([]));
    let server = serve(&host, &endpoint);
    let said = json!({"role": "user", "content": "t"});
    let function = |name: &str| json!({"type": "function", "function": {"name": name}});
    let of = |parameters: Value| json!([{"type": "function", "function": {"name": "t", "parameters": parameters}}]);
    let wrong = json!({"type": "objekt"});
    let flat = json!({"type": "function", "name": "a"});
    let called = json!({"type": "function_call", "call_id": "c", "name": "w", "arguments": "{}"});
    let images: Vec<Value> = (0..17)
        .map(|_| json!({"type": "image_url", "image_url": {"url": super::media::png()}}))
        .collect();
    let unreadable = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}});
    let chat = [
        (
            "tools[1].function.name",
            json!({"tools": [function("a"), function("b c")]}),
        ),
        (
            "tools[0].function.name",
            json!({"tools": [{"type": "function"}]}),
        ),
        (
            "tools[1].type",
            json!({"tools": [function("a"), {"type": "zz"}]}),
        ),
        (
            "tools[0].function.parameters",
            json!({"tools": of(json!({"type": "array"}))}),
        ),
        (
            "tools[0].function.parameters",
            json!({"tools": of(json!("x"))}),
        ),
        (
            "tools[0].function.parameters",
            json!({"tools": of(json!([]))}),
        ),
        ("functions[0].name", json!({"functions": [{"name": "b c"}]})),
        (
            "messages[1].content",
            json!({"messages": [said, {"role": "user", "content": 5}]}),
        ),
        (
            "messages[0].content[1]",
            json!({"messages": [{"role": "user", "content": [
            {"type": "text", "text": "q"}, {"type": "input_audio", "input_audio": {}}]}]}),
        ),
        (
            "messages[0].content[0]",
            json!({"messages": [{"role": "user", "content": [unreadable]}]}),
        ),
        (
            "messages[0]",
            json!({"messages": [{"role": "user", "content": images}]}),
        ),
        (
            "response_format",
            json!({"response_format": {"type": "xml"}}),
        ),
        (
            "response_format.json_schema.schema",
            json!({"response_format": {"type": "json_schema",
            "json_schema": {"name": "x", "schema": wrong}}}),
        ),
        ("temperature", json!({"temperature": -1})),
        ("max_tokens", json!({"max_tokens": 0})),
        ("max_completion_tokens", json!({"max_completion_tokens": 0})),
        ("model", json!({"model": ""})),
    ];
    let responses = [
        (
            "tools[1].name",
            json!({"tools": [flat, {"type": "function"}]}),
        ),
        (
            "input[0].content[0]",
            json!({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}),
        ),
        ("input", json!({"input": [said, called, said]})),
        (
            "input[1].output",
            json!({"input": [called, {"type": "function_call_output", "call_id": "c", "output": 7}]}),
        ),
        ("text.format", json!({"text": {"format": {"type": "xml"}}})),
        (
            "text.format.schema",
            json!({"text": {"format": {"type": "json_schema", "name": "x", "schema": wrong}}}),
        ),
        ("model", json!({"model": ""})),
    ];
    let agent = [
        ("output_schema", json!({"output_schema": wrong})),
        (
            "context[1]",
            json!({"context": [said, {"type": "nothing"}]}),
        ),
        ("tools[1].name", json!({"tools": ["text", {"name": "b c"}]})),
    ];
    let rows = [
        (
            CHAT,
            json!({"model": "default", "messages": [said]}),
            chat.to_vec(),
        ),
        (
            "/v1/responses",
            json!({"model": "default", "input": "t"}),
            responses.to_vec(),
        ),
        ("/v1/agent", json!({"messages": [said]}), agent.to_vec()),
    ];
    for (path, usual, rows) in rows {
        for (param, members) in rows {
            let mut body = usual.clone();
            for (name, member) in members.as_object().unwrap() {
                body[name] = member.clone();
            }
            let answered = server.post(path, &body);
            assert_eq!(answered.status, 400, "{path} {members}: {answered:?}");
            let error = &answered.json()["error"];
            assert_eq!(error["param"], param, "{path} {members}: {error}");
            assert_eq!(error["code"], "invalid_value", "{path} {members}: {error}");
        }
    }
    let asked = json!({"model": "default", "input": "t", "previous_response_id": "resp_nope"});
    let unknown = server.post("/v1/responses", &asked);
    assert_eq!(unknown.status, 404, "{unknown:?}");
    let error = &unknown.json()["error"];
    assert_eq!(error["param"], "previous_response_id");
    assert_eq!(error["code"], "previous_response_not_found");
    let unknown = server.get("/v1/models/nope");
    assert_eq!(unknown.json()["error"]["code"], "model_not_found");
    assert_eq!(endpoint.requests().len(), 0);
}

/// JSON of each depth, in each member: it is refused with its place, or recorded and read again.
#[test]
fn json_nested_deep_is_refused_or_can_be_read_again() {
    let value = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({"a": inner}));
    let schema = |levels: usize| {
        let text = json!({"type": "string"});
        (0..levels / 2).fold(
            text,
            |inner, _| json!({"type": "object", "properties": {"x": inner}}),
        )
    };
    let host = host("");
    let endpoint = scripted((0..200).map(|_| answers("It is 4.")));
    let server = serve(&host, &endpoint);
    let said = json!({"role": "user", "content": "t"});
    for levels in [60, 90, 96, 100, 104, 120, 126] {
        let (value, schema) = (value(levels), schema(levels));
        let function = json!({"name": "weather", "parameters": schema});
        let call = json!({"id": "c", "type": "function", "extra_content": value,
            "function": {"name": "weather", "arguments": value.to_string()}});
        let called = json!([said, {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "sun"}]);
        for (path, member, body) in [
            (
                CHAT,
                "tools",
                json!({"messages": [said], "tools": [{"type": "function", "function": function}]}),
            ),
            (
                CHAT,
                "functions",
                json!({"messages": [said], "functions": [function]}),
            ),
            (
                CHAT,
                "response_format",
                json!({"messages": [said], "response_format": {"type": "json_schema",
                "json_schema": {"name": "x", "schema": schema}}}),
            ),
            (CHAT, "messages", json!({"messages": called})),
            (
                "/v1/responses",
                "text",
                json!({"input": "t", "text": {"format": {"type": "json_schema", "schema": schema}}}),
            ),
            (
                "/v1/responses",
                "input",
                json!({"input": [{"type": "message", "role": "user", "content": "t", "of": value}]}),
            ),
            (
                "/v1/agent",
                "context",
                json!({"messages": [said], "context": [{"type": "data", "kind": "user", "data": value}]}),
            ),
            (
                "/v1/agent",
                "output_schema",
                json!({"messages": [said], "output_schema": schema}),
            ),
        ] {
            let mut body = body;
            if path != "/v1/agent" {
                body["model"] = "default".into();
            }
            let answered = server.post(path, &body);
            // 502: the scripted model writes no JSON.
            assert!(
                [200, 400, 502].contains(&answered.status),
                "{member} {levels}: {answered:?}"
            );
            if levels >= 104 {
                assert_eq!(answered.status, 400, "{member} {levels}: {answered:?}");
                let param = answered.json()["error"]["param"].clone();
                assert!(
                    param.as_str().unwrap().starts_with(member),
                    "{member} {levels}: {param}"
                );
            }
        }
    }
    let runs = server.get("/v1/runs?limit=1000").good();
    let runs = runs["runs"].as_array().unwrap();
    assert!(runs.len() > 12, "{runs:?}");
    for run in runs {
        server
            .get(&format!("/v1/runs/{}", run["id"].as_str().unwrap()))
            .good();
    }
}

/// Arguments that could not be recorded go back to the model, with the reason.
#[test]
fn a_model_that_nests_too_deep_is_told() {
    let deep = (0..110).fold(json!(1), |inner, _| json!({"a": inner}));
    let (host, endpoint) = (
        host(""),
        scripted([calls([("calculator.evaluate", deep)]), answers("It is 4.")]),
    );
    let server = serve(&host, &endpoint);
    let answer = server.post("/v1/agent", &ask("2+2")).good();
    assert_eq!(answer["output"], "It is 4.");
    let run = answer["id"].as_str().unwrap();
    server.get(&format!("/v1/runs/{run}")).good();
}

#[test]
fn an_endpoints_error_keeps_its_meaning_for_clients() {
    for (reply, status, code) in [
        (400, 400, json!("endpoint_refused_request")),
        (401, 401, json!("endpoint_credentials")),
        (403, 403, json!("endpoint_credentials")),
        (402, 429, json!("insufficient_quota")),
        (404, 502, json!("endpoint_not_found")),
    ] {
        let refusal = || Reply::error(reply, json!({"error": {"message": "out of order"}}));
        let (host, endpoint) = (host(""), scripted([refusal(), refusal()]));
        let server = serve(&host, &endpoint);
        let chat = json!({"model": "default", "messages": ask("t")["messages"]});
        for (path, body) in [("/v1/agent", ask("t")), (CHAT, chat)] {
            let answered = server.post(path, &body);
            assert_eq!(answered.status, status, "{path} {reply}: {answered:?}");
            let error = &answered.json()["error"];
            assert_eq!(error["code"], code, "{path} {reply}: {error}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("out of order"), "{path}: {message}");
            assert_eq!(answered.headers["x-should-retry"], "false");
            // The client's own key is fine.
            assert!(!answered.headers.contains_key("www-authenticate"));
        }
    }
}

/// Clients read what is wrong with a parameter that is passed on, and whether waiting helps.
#[test]
fn an_endpoints_code_and_parameter_reach_clients() {
    let responses = "/v1/responses";
    for (reply, error, status, code, param) in [
        (
            400,
            json!({"message": "too hot", "code": "invalid_value", "param": "temperature"}),
            400,
            "invalid_value",
            json!("temperature"),
        ),
        (
            429,
            json!({"message": "pay first", "code": "insufficient_quota", "type": "insufficient_quota"}),
            429,
            "insufficient_quota",
            Value::Null,
        ),
        (
            404,
            json!({"message": "no such model", "code": "model_not_found", "param": "model"}),
            502,
            "endpoint_not_found",
            Value::Null,
        ),
    ] {
        let refusal = || Reply::error(reply, json!({"error": error}));
        let (host, endpoint) = (host(""), scripted([refusal(), refusal()]));
        let server = serve(&host, &endpoint);
        for (path, body) in [
            (
                CHAT,
                json!({"model": "default", "messages": ask("t")["messages"]}),
            ),
            (responses, json!({"model": "default", "input": "t"})),
        ] {
            let answered = server.post(path, &body);
            assert_eq!(answered.status, status, "{path} {reply}: {answered:?}");
            let told = &answered.json()["error"];
            assert_eq!(told["code"], code, "{path} {reply}: {told}");
            assert_eq!(told["param"], param, "{path} {reply}: {told}");
            assert!(
                !answered.headers.contains_key("retry-after"),
                "{answered:?}"
            );
        }
    }
}

#[test]
fn every_answer_names_its_request() {
    let (host, endpoint) = (host(""), scripted([answers("It is 4.")]));
    let server = serve(&host, &endpoint);
    let answered = server.post("/v1/agent", &ask("2+2"));
    let run = answered.good()["id"].clone();
    assert_eq!(answered.headers["x-request-id"], run.as_str().unwrap());
    let mut ids = Vec::new();
    for path in ["/v1/models", "/v1/models/nope", "/nowhere", "/healthz"] {
        let answered = server.get(path);
        ids.push(
            answered.headers["x-request-id"]
                .to_str()
                .unwrap()
                .to_owned(),
        );
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4, "{ids:?}");
}

#[test]
fn pages_may_send_the_headers_of_sdks() {
    let (host, endpoint) = (
        host("[serve]\norigins = [\"https://app.example\"]\n"),
        scripted([]),
    );
    let server = serve(&host, &endpoint);
    let preflight = |origin: &str| {
        let headers = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            (
                "access-control-request-headers",
                "authorization,x-stainless-lang,x-stainless-retry-count",
            ),
        ];
        server.ask(Method::OPTIONS, CHAT, None, &headers)
    };
    let own = preflight("https://app.example");
    assert_eq!(
        own.headers["access-control-allow-origin"],
        "https://app.example"
    );
    let allowed = own.headers["access-control-allow-headers"]
        .to_str()
        .unwrap();
    for name in [
        "authorization",
        "x-stainless-lang",
        "x-stainless-retry-count",
    ] {
        assert!(allowed.contains(name), "{allowed}");
    }
    let other = preflight("https://other.example");
    assert!(
        !other.headers.contains_key("access-control-allow-origin"),
        "{other:?}"
    );
}

/// Requests that the description does not allow are refused, and others are not.
#[test]
fn the_description_has_the_bounds_that_hold() {
    const SCHEMAS: [&str; 7] = [
        "ChatRequest",
        "ChatMessage",
        "MessageThoughts",
        "ClientTool",
        "FunctionDefinition",
        "StreamOptions",
        "ResponseRequest",
    ];
    let host = host("");
    let endpoint = scripted((0..4).map(|_| answers("It is 4.")));
    let server = serve(&host, &endpoint);
    let described = server.get("/openapi.json").good();
    let mut schemas = json!({});
    for name in SCHEMAS {
        schemas[name] = described["components"]["schemas"][name].clone();
    }
    schemas["Truncation"] = described["components"]["schemas"]["Truncation"].clone();
    let said = json!({"role": "user", "content": "t"});
    let named = |name: &str| json!([{"type": "function", "function": {"name": name}}]);
    let pairs: serde_json::Map<String, Value> =
        (0..17).map(|n| (n.to_string(), json!("v"))).collect();
    let chat = vec![
        (
            json!({"stop": ["END"], "metadata": {"a": "b"}, "tools": named("a")}),
            true,
        ),
        (
            json!({"stop": "END", "tool_choice": "auto", "temperature": 2, "top_p": 0, "seed": -1}),
            true,
        ),
        (json!({"stop": 3}), false),
        (json!({"stop": vec!["x"; 17]}), false),
        (json!({"messages": []}), false),
        (
            json!({"messages": [{"role": "bot", "content": "x"}]}),
            false,
        ),
        (json!({"model": null}), false),
        (json!({"tools": named("a b")}), false),
        (json!({"temperature": 3}), false),
    ];
    let responses = vec![
        (
            json!({"input": [said], "metadata": {"a": "b"}, "tool_choice": "none"}),
            true,
        ),
        (json!({"input": 3}), false),
        (json!({"input": []}), false),
        (json!({"metadata": pairs}), false),
        (json!({"tool_choice": "bogus"}), false),
    ];
    for (path, schema, usual, rows) in [
        (
            CHAT,
            "ChatRequest",
            json!({"model": "default", "messages": [said]}),
            chat,
        ),
        (
            "/v1/responses",
            "ResponseRequest",
            json!({"model": "default", "input": "t"}),
            responses,
        ),
    ] {
        let schema = json!({"$ref": format!("#/components/schemas/{schema}"), "components": {"schemas": schemas}});
        let validator = Validator::new(&schema).unwrap();
        for (members, is_good) in rows {
            let mut body = usual.clone();
            for (name, member) in members.as_object().unwrap() {
                body[name] = member.clone();
            }
            let checked = validator.check(&body);
            assert_eq!(checked.is_ok(), is_good, "{path} {members}: {checked:?}");
            let answered = server.post(path, &body);
            assert_eq!(
                answered.status == 200,
                is_good,
                "{path} {members}: {answered:?}"
            );
        }
    }
}

#[test]
fn the_description_has_streams_and_bounds() {
    let (host, endpoint) = (host(""), scripted([]));
    let server = serve(&host, &endpoint);
    let described = server.get("/openapi.json").good();
    for path in [
        "/v1/agent",
        CHAT,
        "/v1/responses",
        "/v1/sessions/{session}/turns",
        "/v1/requests/{request}",
    ] {
        let content = &described["paths"][path]["post"]["responses"]["200"]["content"];
        for kind in ["application/json", "text/event-stream"] {
            assert!(content[kind]["schema"].is_object(), "{path}: {content}");
        }
    }
    let schemas = &described["components"]["schemas"];
    assert_eq!(schemas["ChatRequest"]["properties"]["n"]["maximum"], 1);
    assert_eq!(schemas["ChatRequest"]["properties"]["top_p"]["maximum"], 1);
    assert_eq!(
        schemas["ResponseEvent"]["properties"]["type"]["type"],
        "string"
    );
}
