//! Components that are brought to a running server.

use super::{host, scripted, serve};
use reqwest::Method;
use serde_json::{Value, json};
use support::host::Host;
use support::sandbox::component;
use support::server::{Answered, Server};

const WASM: &str = "application/wasm";

/// A component whose one tool returns `number`.
fn returns(number: u32) -> Vec<u8> {
    component(&format!(
        r#"(component
          (core module $m (func (export "f") (result i32) (i32.const {number})))
          (core instance $i (instantiate $m))
          (func (export "answer") (result u32) (canon lift (core func $i "f"))))"#
    ))
}

fn bring(server: &Server, name: &str, bytes: &[u8]) -> Answered {
    server.send(&format!("/v1/modules/{name}"), WASM, bytes, &[])
}

fn replace(server: &Server, name: &str, bytes: &[u8], digest: &str) -> Answered {
    let path = format!("/v1/modules/{name}");
    server.send(&path, WASM, bytes, &[("if-match", digest)])
}

fn answer(server: &Server, tool: &str) -> Value {
    server.post(&format!("/v1/tools/{tool}"), &json!({})).good()["result"].clone()
}

/// Whatever lies in the modules folder.
fn files(host: &Host) -> Vec<String> {
    let entries = std::fs::read_dir(host.path().join("modules")).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

const ON: &str = "[serve]\nmodule_upload = true\n";

#[test]
fn uploading_a_module_needs_permission() {
    let (host, endpoint) = (host(""), scripted([]));
    let server = serve(&host, &endpoint);
    let refused = bring(&server, "late", &returns(1));
    assert_eq!(refused.status, 403, "off by default: {refused:?}");
    assert!(refused.text.contains("serve.module_upload"), "{refused:?}");
    drop(server);

    host.write("toolhold.toml", ON);
    let keys = ["run", "approve", "admin"].map(|scope| {
        host.run(&["keys", "create", scope, "--scopes", scope])
            .stdout
    });
    let mut server = serve(&host, &endpoint);
    assert_eq!(bring(&server, "late", &returns(1)).status, 401);
    for (key, status) in keys.iter().zip([403, 403, 201]) {
        server.use_key(key);
        let answered = bring(&server, "late", &returns(1));
        assert_eq!(answered.status, status, "{answered:?}");
    }
}

#[test]
fn a_module_is_uploaded_and_replaced_only_at_the_known_digest() {
    let (host, endpoint) = (host(ON), scripted([]));
    let server = serve(&host, &endpoint);
    let brought = bring(&server, "late", &returns(1));
    assert_eq!(brought.status, 201, "{brought:?}");
    let first = brought.json();
    assert_eq!(
        (&first["name"], &first["standing"]["state"]),
        (&json!("late"), &json!("approved"))
    );
    assert_eq!(answer(&server, "late.answer"), json!(1));
    assert_eq!(
        server.get("/v1/modules/late").good()["digest"],
        first["digest"]
    );

    let digest = first["digest"].as_str().unwrap();
    let unseen = bring(&server, "late", &returns(2));
    assert_eq!(unseen.status, 428, "{unseen:?}");
    for wrong in [
        format!("sha256:{}", "0".repeat(64)),
        "*".into(),
        "\"x\"".into(),
    ] {
        let refused = replace(&server, "late", &returns(2), &wrong);
        assert!([400, 412].contains(&refused.status), "{wrong}: {refused:?}");
    }
    let nothing = replace(&server, "other", &returns(2), digest);
    assert_eq!(nothing.status, 412, "{nothing:?}");
    assert_eq!(
        answer(&server, "late.answer"),
        json!(1),
        "nothing was replaced"
    );

    let replaced = replace(&server, "late", &returns(2), &format!("\"{digest}\""));
    assert_eq!(replaced.status, 200, "{replaced:?}");
    let second = replaced.json();
    assert_ne!(second["digest"], first["digest"]);
    // What was approved is what runs: this is something else.
    assert_eq!(second["standing"]["state"], "pending");
    assert_eq!(server.post("/v1/tools/late.answer", &json!({})).status, 404);
    let shown = json!({"digest": second["digest"], "etag": second["etag"]});
    server.post("/v1/modules/late/approve", &shown).good();
    assert_eq!(answer(&server, "late.answer"), json!(2));

    let versions = ["dated@1.2", "dated@1.3"].map(|name| bring(&server, name, &returns(3)).status);
    assert_eq!(versions, [201, 201]);
    assert_eq!(
        bring(&server, "dated@1.2.0", &returns(4)).status,
        409,
        "the same version"
    );
    assert_eq!(
        files(&host),
        [
            "calculator",
            "dated@1.2.wasm",
            "dated@1.3.wasm",
            "late.wasm",
            "text"
        ]
    );

    let audited = server.get("/v1/audit?text=module_uploaded").good();
    let entries: Vec<_> = audited["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            (
                it["entry"]["module"].as_str().unwrap(),
                it["entry"]["replaced"].as_str(),
            )
        })
        .collect();
    let hex = digest.strip_prefix("sha256:").unwrap();
    assert_eq!(
        entries,
        [
            ("dated@1.3", None),
            ("dated@1.2", None),
            ("late", Some(hex)),
            ("late", None)
        ]
    );
    assert_eq!(host.run(&["audit", "verify"]).code, Some(0));
}

/// What an operator granted to a name is not what somebody brings under it gets.
#[test]
fn grant_to_a_reused_name_waits_for_a_person() {
    let config = format!(
        "{ON}[module.spare]\ndirectories = [{{ host = \"modules\", guest = \"/d\", access = \"read\" }}]\n"
    );
    let (host, endpoint) = (host(&config), scripted([]));
    let server = serve(&host, &endpoint);
    let brought = bring(&server, "spare", &returns(1)).good();
    assert_eq!(brought["standing"]["state"], "pending", "{brought}");
    assert_eq!(
        server.post("/v1/tools/spare.answer", &json!({})).status,
        404
    );
}

#[test]
fn an_upload_that_is_no_module_changes_nothing() {
    let (host, endpoint) = (
        host(&format!(
            "{ON}[module.late.limits]\ncomponent_bytes = 2000\n"
        )),
        scripted([]),
    );
    let server = serve(&host, &endpoint);
    let before = files(&host);
    for name in [
        "Late",
        "..%2Flate",
        "%2e%2e",
        "a%2Fb",
        ".late",
        "late.wasm",
        "la-te",
        "late%00",
        "1late",
        "late@",
        "late@soon",
        "late@..%2F1",
        "%C3%A4",
        &"a".repeat(49),
        &format!("late@1.2.3-{}", "x".repeat(100)),
    ] {
        let refused = bring(&server, name, &returns(1));
        assert!(
            [400, 404, 405].contains(&refused.status),
            "{name}: {refused:?}"
        );
    }
    for (what, bytes, status, reason) in [
        ("nothing", Vec::new(), 422, "not a WebAssembly component"),
        (
            "garbage",
            b"hello".to_vec(),
            422,
            "not a WebAssembly component",
        ),
        ("a core module", component("(module)"), 422, "a core module"),
        (
            "no tools",
            component("(component)"),
            422,
            "exports no function",
        ),
        ("half of one", returns(1)[..40].to_vec(), 422, "component"),
        ("too large", vec![0; 2_001], 413, "2000 bytes"),
        (
            "a name that is taken",
            returns(1),
            409,
            "calculator is a folder",
        ),
    ] {
        let name = if status == 409 { "calculator" } else { "late" };
        let refused = bring(&server, name, &bytes);
        assert_eq!(refused.status, status, "{what}: {refused:?}");
        let message = refused.json()["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(message.contains(reason), "{what}: {message}");
    }
    for kind in ["application/json", "text/plain"] {
        let refused = server.send("/v1/modules/late", kind, &returns(1), &[]);
        assert_eq!(refused.status, 415, "{kind}: {refused:?}");
    }
    assert_eq!(files(&host), before);
    assert_eq!(server.get("/v1/modules/late").status, 404);
    let audited = server.get("/v1/audit?text=module_uploaded").good();
    assert_eq!(audited["entries"], json!([]));
    // A folder in the place of the file, and a link out of the folder.
    std::fs::create_dir(host.path().join("modules/held.wasm")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", host.path().join("modules/linked.wasm")).unwrap();
    for name in ["held", "linked"] {
        let refused = replace(&server, name, &returns(1), &"0".repeat(64));
        assert_eq!(refused.status, 409, "{name}: {refused:?}");
    }
    assert_eq!(
        server.ask(Method::GET, "/v1/modules", None, &[]).status,
        200
    );
}

/// An upload counts with what requests and calls keep, while it arrives.
#[test]
fn an_upload_without_memory_for_it_is_refused_before_it_is_kept() {
    let (host, endpoint) = (
        host(&format!("{ON}[modules]\nkept_bytes = 2_000_000\n")),
        scripted([]),
    );
    let server = serve(&host, &endpoint);
    let refused = bring(&server, "late", &vec![0; 5_000_000]);
    // It would never go through: one key may have seven eighths.
    assert_eq!(refused.status, 413, "{refused:?}");
    let message = refused.json()["error"]["message"].to_string();
    assert!(message.contains("it needs 5000000 bytes"), "{message}");
    assert!(message.contains("modules.kept_bytes"), "{message}");
    // What it took is free again.
    assert_eq!(bring(&server, "late", &returns(1)).status, 201);
}
