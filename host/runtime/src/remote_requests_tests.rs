//! Saved Requests at addresses: where they may be fetched from, and how much.

use super::*;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};

const REQUEST: &str =
    r#"{"description": "Refunds.", "context": [{"role": "user", "content": "Refund it."}]}"#;

/// A server that answers each connection with what belongs to the path, and counts.
fn server(body: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4_096];
            let read = stream.read(&mut head).unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..read]).into_owned();
            counted.fetch_add(1, Ordering::SeqCst);
            let path = head.split(' ').nth(1).unwrap_or_default();
            let answer = match path {
                "/team/elsewhere" => {
                    "HTTP/1.1 302 Found\r\nlocation: /team/refund\r\ncontent-length: 0\r\n\r\n"
                        .to_owned()
                }
                "/team/large" => {
                    let body = " ".repeat(MAX_BYTES + 1);
                    format!(
                        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    )
                }
                "/team/slow" => {
                    std::thread::sleep(Duration::from_secs(2));
                    String::new()
                }
                "/team/none" => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
                _ => format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                ),
            };
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (origin, count)
}

fn granted(origin: &str, more: &str) -> RemoteRequests {
    let grant =
        format!(r#"{{"origin": "{origin}", "path_prefix": "/team", "private": true{more}}}"#);
    RemoteRequests::granted(vec![serde_json::from_str(&grant).unwrap()])
}

async fn find(remote: &RemoteRequests, address: &str) -> Result<SavedRequest, String> {
    remote.find(address, &Mutex::default()).await.unwrap()
}

#[tokio::test]
async fn a_request_is_fetched_from_where_the_operator_granted_and_once_a_run() {
    let (origin, count) = server(REQUEST);
    let remote = granted(&origin, "");
    let fetched = Mutex::default();
    let address = format!("{origin}/team/refund");
    for _ in 0..2 {
        let found = remote.find(&address, &fetched).await.unwrap().unwrap();
        assert_eq!(found.description, "Refunds.");
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
    // What changed since it was read is not taken.
    let pinned = format!("{address}@sha256:{}", sha256(REQUEST));
    assert!(find(&remote, &pinned).await.is_ok());
    let other = format!("{address}@sha256:{}", sha256("another"));
    let reason = find(&remote, &other).await.unwrap_err();
    assert!(reason.contains("it was changed"), "{reason}");
    assert!(remote.find("idea://refund", &fetched).await.is_none());
}

#[tokio::test]
async fn nothing_is_fetched_without_a_grant() {
    let (origin, count) = server(REQUEST);
    let address = format!("{origin}/team/refund");
    for (remote, address) in [
        (RemoteRequests::default(), address.clone()),
        (granted(&origin, ""), format!("{origin}/other/refund")),
        (granted(&origin, ""), format!("{origin}/team/../other")),
        (granted("http://127.0.0.1:9", ""), address.clone()),
        (
            granted(&origin, r#", "methods": ["HEAD"]"#),
            address.clone(),
        ),
    ] {
        let reason = find(&remote, &address).await.unwrap_err();
        assert!(
            reason.contains("no grant lets it be fetched") && reason.contains("requests.http"),
            "{address}: {reason}"
        );
    }
    let with_key = address.replace("http://", "http://ada:key@");
    let reason = find(&granted(&origin, ""), &with_key).await.unwrap_err();
    assert!(reason.contains("user name"), "{reason}");
    assert_eq!(count.load(Ordering::SeqCst), 0);
    // This machine and its network are granted by `private` alone.
    let own = format!(r#"{{"origin": "{origin}"}}"#);
    assert!(serde_json::from_str::<HttpGrant>(&own).is_err());
}

#[tokio::test]
async fn what_is_fetched_is_bounded_and_nothing_is_followed() {
    let (origin, count) = server(REQUEST);
    let remote = granted(&origin, "");
    for (path, expect) in [
        ("large", "more than 1048576 bytes"),
        ("elsewhere", "redirects are not followed"),
        ("none", "status 404"),
    ] {
        let reason = find(&remote, &format!("{origin}/team/{path}"))
            .await
            .unwrap_err();
        assert!(reason.contains(expect), "{path}: {reason}");
    }
    let slow = format!("{origin}/team/slow");
    let slow = remote.fetch(&slow, Duration::from_millis(50)).await;
    let reason = slow.unwrap_err();
    assert!(reason.contains("after 50 ms"), "{reason}");
    let (before, fetched) = (count.load(Ordering::SeqCst), Mutex::default());
    for n in 0..MAX_ADDRESSES {
        let address = format!("{origin}/other/{n}");
        assert!(remote.find(&address, &fetched).await.unwrap().is_err());
    }
    let more = remote
        .find(&format!("{origin}/team/refund"), &fetched)
        .await;
    let reason = more.unwrap().unwrap_err();
    assert!(reason.contains("at most 16 addresses"), "{reason}");
    assert_eq!(count.load(Ordering::SeqCst), before);
}

#[tokio::test]
async fn what_is_no_request_is_an_error_with_its_place() {
    for (body, expect) in [
        ("<html>", "no JSON document"),
        (r#"{"context": "x"}"#, "no saved Request"),
    ] {
        let (origin, _) = server(body);
        let reason = find(&granted(&origin, ""), &format!("{origin}/team/refund")).await;
        let reason = reason.unwrap_err();
        assert!(reason.contains(expect), "{body}: {reason}");
    }
}
