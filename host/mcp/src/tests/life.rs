//! When a server is started, started again and ended.

use super::*;

#[tokio::test]
async fn a_server_is_started_when_it_is_used_and_serves_many_calls() {
    let bench = McpFixture::new(&["--garbage"]);
    let server = bench.server(Pinning::FirstSight);
    assert_eq!(bench.starts(), 0);
    let (one, two) = tokio::join!(
        call(&server, "echo", json!({"text": "a\u{1f600}"})),
        call(&server, "add", json!({"a": 1, "b": 2})),
    );
    assert_eq!((one, two), (Ok(json!("a\u{1f600}")), Ok(json!({"sum": 3}))));
    assert_eq!(
        call(&server, "several", json!({})).await,
        Ok(json!(["a", "b"]))
    );
    assert_eq!(
        call(&server, "flood", json!({"lines": 500})).await,
        Ok(json!("done"))
    );
    assert_eq!(bench.starts(), 1);
}

#[tokio::test]
async fn a_server_that_dies_is_started_again_after_a_pause() {
    let bench = McpFixture::new(&[]);
    let server = bench.server(Pinning::FirstSight);
    let failure = call(&server, "die", json!({})).await.unwrap_err();
    assert_eq!(
        (failure.kind.as_str(), failure.class),
        ("server", ErrorClass::Retryable)
    );
    assert!(
        failure.message.contains("it ended (exit status: 3)"),
        "{}",
        failure.message
    );
    assert!(
        !failure.message.contains("fire"),
        "its stderr is for people: {}",
        failure.message
    );
    assert_eq!(
        call(&server, "echo", json!({"text": "b"})).await,
        Ok(json!("b"))
    );
    assert_eq!(bench.starts(), 2);
}

#[tokio::test]
async fn standard_error_of_a_server_is_shown() {
    let bench = McpFixture::new(&[]);
    let server = bench.server(Pinning::FirstSight);
    let _ = call_for(
        &server,
        "echo",
        json!({"text": ""}),
        Duration::from_secs(20),
    )
    .await;
    let _ = server
        .call("die", &json!({}), Duration::from_secs(20))
        .await;
    let mut lines = Vec::new();
    eventually(|| {
        lines.extend(server.printed());
        !lines.is_empty()
    })
    .await;
    assert_eq!(lines, ["stderr: fatal: the disk is on fire"]);
}

#[tokio::test]
async fn a_server_that_cannot_be_used_says_so() {
    for (flags, kind, part) in [
        (vec!["--stillborn"], "server", "exit status: 1"),
        (
            vec!["--version", "1999-01-01"],
            "protocol",
            "\"1999-01-01\"",
        ),
        (vec!["--circle"], "protocol", "circles"),
        (vec!["--silent"], "deadline", "1500 ms"),
    ] {
        // Only one of them is waited for: a busy machine takes its time to start the others.
        let most = if kind == "deadline" { 1_500 } else { 30_000 };
        let bench = McpFixture::new(&flags).with(|s| s.timeout = Duration::from_millis(most));
        let server = bench.server(Pinning::FirstSight);
        let failure = call(&server, "echo", json!({"text": ""}))
            .await
            .unwrap_err();
        assert_eq!(failure.kind, kind, "{failure:?}");
        assert!(failure.message.contains(part), "{}", failure.message);
    }
    let missing = McpFixture::new(&[]).with(|settings| {
        settings.launch = Launch::Command {
            command: vec!["toolhold-no-such-program".into()],
            env: BTreeMap::new(),
            secret_env: Vec::new(),
        };
    });
    let failure = call(&missing.server(Pinning::FirstSight), "echo", json!({}))
        .await
        .unwrap_err();
    assert_eq!(
        (failure.kind.as_str(), failure.class),
        ("host", ErrorClass::Fatal)
    );
}

#[tokio::test]
async fn starts_that_lead_to_nothing_come_less_and_less_often() {
    // Ends in milliseconds on a busy machine, too: what is compared is the waiting.
    let bench = McpFixture::new(&[]).with(|settings| {
        settings.launch = Launch::Command {
            command: vec!["false".into()],
            env: BTreeMap::new(),
            secret_env: Vec::new(),
        };
    });
    let server = bench.server(Pinning::FirstSight);
    let began = Instant::now();
    let mut waits = Vec::new();
    // Each call is one start. The next ones may happen 250 ms, 500 ms, 1 s and 2 s after the one before.
    for at_least in [0, 250, 750, 1_750, 3_750] {
        let asked = Instant::now();
        let failure = call(&server, "echo", json!({"text": ""})).await;
        assert_eq!(failure.unwrap_err().kind, "server");
        let since = began.elapsed();
        assert!(since >= Duration::from_millis(at_least), "{since:?}");
        waits.push(asked.elapsed());
    }
    // 250 ms and 2 s; a pause that does not grow makes them equal.
    assert!(waits[4] > waits[1] * 2, "{waits:?}");
}

/// The pauses of a server that works begin anew.
#[tokio::test]
async fn a_start_that_led_to_a_result_is_not_held_against_the_server() {
    let bench = McpFixture::new(&[]);
    let server = bench.server(Pinning::FirstSight);
    for _ in 0..5 {
        call(&server, "echo", json!({"text": "a"})).await.unwrap();
        call(&server, "die", json!({})).await.unwrap_err();
    }
    // After five futile starts the sixth would come 4 s after the fifth.
    let asked = Instant::now();
    call(&server, "echo", json!({"text": "a"})).await.unwrap();
    assert_eq!(bench.starts(), 6, "{}", bench.log());
    let waited = asked.elapsed();
    assert!(waited < Duration::from_secs(3), "{waited:?}");
}

#[tokio::test]
async fn everything_that_a_server_started_dies_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let child = folder.path().join("child");
    let script = format!(
        "sleep 1000 & echo $! > {0}.part; mv {0}.part {0}; exec python3 {SCRIPT}",
        child.display()
    );
    let bench = McpFixture::new(&[]).with(|settings| {
        settings.launch = Launch::Command {
            command: vec!["sh".into(), "-c".into(), script],
            env: BTreeMap::new(),
            secret_env: Vec::new(),
        };
    });
    let server = bench.server(Pinning::FirstSight);
    call(&server, "echo", json!({"text": "a"})).await.unwrap();
    let pid = std::fs::read_to_string(&child).unwrap().trim().to_owned();
    assert!(lives(&pid));
    drop(server);
    eventually(|| !lives(&pid)).await;
}

/// True while the process runs. A zombie counts as dead, although its parent has not waited for it.
fn lives(pid: &str) -> bool {
    if PathBuf::from("/proc/self/stat").exists() {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        return stat.is_ok_and(|stat| !stat.contains(") Z "));
    }
    // Systems without `/proc` have `ps`, which slim ones with it lack.
    let listed = std::process::Command::new("ps")
        .args(["-o", "stat=", "-p", pid])
        .output()
        .unwrap();
    let state = String::from_utf8_lossy(&listed.stdout);
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}

#[tokio::test]
async fn a_server_that_is_in_order_may_end_by_itself() {
    let bench = McpFixture::new(&[]);
    let server = bench.server(Pinning::FirstSight);
    call(&server, "echo", json!({"text": "a"})).await.unwrap();
    server.close().await;
    assert!(
        bench.log().lines().any(|line| line == "end"),
        "{}",
        bench.log()
    );
}

/// Results of a session are told from those of another, and are known only while it is open.
#[tokio::test]
async fn each_session_has_a_number_while_it_is_open() {
    let bench = McpFixture::new(&[]);
    let server = bench.server(Pinning::FirstSight);
    assert_eq!(server.working_session(), None);
    server.reach().await.unwrap();
    let first = server.working_session();
    assert!(first.is_some());
    server.close().await;
    assert_eq!(server.working_session(), None);
    server.reach().await.unwrap();
    assert!(server.working_session().is_some() && server.working_session() != first);
}
