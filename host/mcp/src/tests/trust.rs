//! What was approved or first seen is what runs.

use super::*;

#[tokio::test]
async fn a_rug_pull_disables_the_tools_until_somebody_looked() {
    let bench = McpFixture::new(&["--rug-pull"]);
    let first = bench.server(Pinning::FirstSight);
    assert_eq!(
        call(&first, "echo", json!({"text": "a"})).await,
        Ok(json!("a"))
    );
    drop(first);

    let second = bench.server(Pinning::FirstSight);
    let offered = second.tools().await.unwrap();
    let echo = offered.iter().find(|tool| tool.name == "echo").unwrap();
    assert_eq!(
        echo.description, "Returns the text.",
        "models are told what was pinned"
    );
    assert_eq!(bench.starts(), 1, "and nothing is started for that");

    let failure = call(&second, "echo", json!({"text": "a"}))
        .await
        .unwrap_err();
    assert_eq!(
        (failure.kind.as_str(), failure.class),
        ("not_approved", ErrorClass::Fatal)
    );
    for part in ["tool echo: description", "toolhold mcp approve s"] {
        assert!(failure.message.contains(part), "{}", failure.message);
    }
    assert!(!failure.message.contains("evil"), "{}", failure.message);
    assert_eq!(
        bench.log().matches("call echo").count(),
        1,
        "it was not called"
    );

    // A person agrees, and it takes effect without a restart.
    let ready = second.look().await.unwrap();
    let changes = second
        .pins()
        .compare(&second.settings, &ready.offer)
        .await
        .unwrap();
    assert_eq!(changes.len(), 1);
    assert!(
        changes[0]
            .after
            .as_ref()
            .unwrap()
            .raw()
            .contains("evil.example")
    );
    let record = second.pins().record(&second.settings).await;
    second
        .pins()
        .approve(&second.settings, &ready.offer, record)
        .await
        .unwrap();
    assert_eq!(
        call(&second, "echo", json!({"text": "b"})).await,
        Ok(json!("b"))
    );
    assert_eq!(bench.starts(), 2);
}

#[tokio::test]
async fn the_first_decision_about_a_server_holds() {
    let bench = McpFixture::new(&[]);
    let server = bench.server(Pinning::Always);
    let ready = server.look().await.unwrap();
    let record = server.pins().record(&server.settings).await;
    assert!(record.is_none());
    server.pins().revoke(&server.settings.name).await.unwrap();
    let late = server
        .pins()
        .approve(&server.settings, &ready.offer, record)
        .await
        .unwrap_err();
    assert_eq!(
        late.to_string(),
        "its pin was revoked meanwhile; look at it again"
    );
    assert!(!server.pins().launch(&server.settings).await.may_run());
}

#[tokio::test]
async fn tools_that_change_while_a_server_runs_are_judged_again() {
    let bench = McpFixture::new(&["--rug-pull"]);
    let server = bench.server(Pinning::FirstSight);
    assert_eq!(
        call(&server, "change", json!({})).await,
        Ok(json!("changed"))
    );
    // The server counts this as another start of its own.
    let log = bench.folder.path().join("log");
    let mut text = std::fs::read_to_string(&log).unwrap();
    text.push_str("start somewhere else\n");
    std::fs::write(&log, text).unwrap();
    let failure = call(&server, "echo", json!({"text": "a"}))
        .await
        .unwrap_err();
    assert_eq!(failure.kind, "not_approved", "{failure:?}");
}

#[tokio::test]
async fn another_command_needs_another_pin_and_is_not_started() {
    let bench = McpFixture::new(&[]);
    call(
        &bench.server(Pinning::FirstSight),
        "echo",
        json!({"text": "a"}),
    )
    .await
    .unwrap();
    let changed = bench.with(|settings| {
        if let Launch::Command { env, .. } = &mut settings.launch {
            env.insert("LD_PRELOAD".into(), "evil.so".into());
        }
    });
    let server = changed.server(Pinning::FirstSight);
    let failure = call(&server, "echo", json!({"text": "a"}))
        .await
        .unwrap_err();
    assert!(
        failure.message.contains("grant: env"),
        "{}",
        failure.message
    );
    assert!(server.tools().await.is_err());
    assert_eq!(changed.starts(), 1);
}

#[tokio::test]
async fn a_server_from_a_found_file_is_not_started() {
    for trust in [Pinning::FirstSight, Pinning::Always, Pinning::Never] {
        let bench = McpFixture::new(&[]).with(|settings| settings.found = true);
        let server = bench.server(trust);
        let failure = call(&server, "echo", json!({"text": "a"}))
            .await
            .unwrap_err();
        assert_eq!(failure.kind, "not_approved", "{failure:?}");
        assert!(server.tools().await.is_err());
        assert_eq!(bench.starts(), 0);

        let ready = server.look().await.unwrap();
        server
            .pins()
            .approve(&server.settings, &ready.offer, None)
            .await
            .unwrap();
        assert_eq!(
            call(&server, "echo", json!({"text": "a"})).await,
            Ok(json!("a"))
        );
    }
}

#[tokio::test]
async fn a_pin_that_cannot_be_read_is_not_replaced() {
    let bench = McpFixture::new(&[]);
    call(
        &bench.server(Pinning::FirstSight),
        "echo",
        json!({"text": "a"}),
    )
    .await
    .unwrap();
    let damaged = bench.pins.0.lock().unwrap().insert("s".into(), None);
    assert!(damaged.flatten().is_some(), "it was pinned");
    let failure = call(
        &bench.server(Pinning::FirstSight),
        "echo",
        json!({"text": "a"}),
    )
    .await;
    assert_eq!(failure.unwrap_err().kind, "not_approved");
    assert!(bench.pins.get("s").is_none(), "it is still damaged");
}

#[tokio::test]
async fn always_means_that_a_person_decides_first() {
    let bench = McpFixture::new(&[]);
    let server = bench.server(Pinning::Always);
    assert_eq!(
        call(&server, "echo", json!({"text": ""}))
            .await
            .unwrap_err()
            .kind,
        "not_approved"
    );
    assert_eq!(bench.starts(), 0);
    let ready = server.look().await.unwrap();
    assert_eq!(
        ready.pin_state,
        PinState::Pending {
            changes: Vec::new()
        }
    );
}

#[tokio::test]
async fn a_revoked_pin_ends_running_calls_and_begins_none_in_an_open_session() {
    let bench = McpFixture::new(&[]);
    let server = bench.server(Pinning::FirstSight);
    let revoked = async {
        bench.logged("call hang").await;
        server.pins().revoke("s").await.unwrap();
    };
    let (stopped, ()) = tokio::join!(call(&server, "hang", json!({})), revoked);
    let stopped = stopped.unwrap_err();
    assert_eq!(
        (stopped.kind.as_str(), stopped.class),
        ("revoked", ErrorClass::Fatal)
    );
    bench.logged("cancelled").await;
    let refused = call(&server, "echo", json!({"text": "a"}))
        .await
        .unwrap_err();
    assert_eq!(refused.kind, "not_approved", "{refused:?}");
    assert!(!bench.log().contains("call echo"), "it was not called");
}
