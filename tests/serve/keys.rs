//! Keys: another secret for the same owner.

use super::unread::asked;
use super::{answers, ask, host, scripted, serve, streamed};
use std::io::Read as _;
use std::net::TcpStream;
use support::endpoint::Reply;
use support::host::Host;
use support::server::Server;

fn keys(host: &Host, arguments: &[&str]) -> String {
    let made = host.run(&[&["keys"], arguments].concat());
    assert_eq!(made.code, Some(0), "{arguments:?}: {made:?}");
    made.stdout.trim().to_owned()
}

/// A stream of a run's events, whose first bytes have come.
fn followed(server: &Server, key: &str, run: &str) -> TcpStream {
    let path = format!("/v1/runs/{run}/events");
    let mut stream = asked(server, key, &path, "Connection: close\r\n");
    let mut began = [0; 512];
    let read = stream.read(&mut began).unwrap();
    let began = String::from_utf8_lossy(&began[..read]);
    assert!(began.starts_with("HTTP/1.1 200"), "{began}");
    stream
}

#[test]
fn a_secret_is_replaced_and_the_owner_stays() {
    let (host, endpoint) = (host(""), scripted([answers("kept"), Reply::never()]));
    let first = keys(&host, &["create", "ann"]);
    let mut server = serve(&host, &endpoint);
    server.use_key(&first);
    let kept = server.post("/v1/agent", &ask("t")).good();
    let kept = format!("/v1/runs/{}", kept["id"].as_str().unwrap());

    let second = keys(&host, &["rotate", "ann", "--overlap", "1h"]);
    for key in [&first, &second] {
        server.use_key(key);
        assert_eq!(server.get(&kept).status, 200);
    }
    // A third secret would end the first before its time.
    let refused = host.run(&["keys", "rotate", "ann"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("--now"), "{refused:?}");
    let listed = host.run(&["keys", "list"]).stdout;
    assert!(listed.contains("the secret before until"), "{listed}");

    let run = streamed(&server, "waits for ever", 1);
    let mut stream = followed(&server, &second, &run);
    let third = keys(&host, &["rotate", "ann", "--now"]);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("was replaced"), "{rest}");
    for (key, status) in [(&first, 401), (&second, 401), (&third, 200)] {
        server.use_key(key);
        assert_eq!(server.get(&kept).status, status);
    }
    // The run is the owner's.
    assert_eq!(
        server.get(&format!("/v1/runs/{run}")).good()["state"],
        "running"
    );
}

#[test]
fn an_expired_key_is_renewed() {
    let (host, endpoint) = (host(""), scripted([]));
    let old = keys(&host, &["create", "ann", "--expires", "1s"]);
    let mut server = serve(&host, &endpoint);
    server.use_key(&old);
    support::until("its end", || {
        (server.get("/v1/runs").status == 401).then_some(())
    });
    let renewed = keys(&host, &["rotate", "ann", "--expires", "1h"]);
    assert_eq!(server.get("/v1/runs").status, 401);
    server.use_key(&renewed);
    assert_eq!(server.get("/v1/runs").status, 200);
}
