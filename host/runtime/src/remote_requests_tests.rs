//! Saved Requests at addresses: where they may be fetched from, how much, and how often.

use super::*;
use futures_util::future::BoxFuture;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};

const REQUEST: &str =
    r#"{"description": "Refunds.", "context": [{"role": "user", "content": "Refund it."}]}"#;

const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";

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
            let before = counted.fetch_add(1, Ordering::SeqCst);
            let path = head.split([' ', '?']).nth(1).unwrap_or_default();
            let whole = |body: &str| {
                let length = body.len();
                format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}")
            };
            let answer = match path {
                "/team/elsewhere" => {
                    "HTTP/1.1 302 Found\r\nlocation: /team/refund\r\ncontent-length: 0\r\n\r\n"
                        .to_owned()
                }
                "/team/large" => whole(&" ".repeat(MAX_BYTES + 1)),
                "/team/largest" => whole(&format!("{body}{}", " ".repeat(MAX_BYTES - body.len()))),
                "/team/slow" => {
                    std::thread::sleep(Duration::from_secs(2));
                    String::new()
                }
                // One byte at a time, for longer than anybody waits.
                "/team/drip" => {
                    std::thread::spawn(move || {
                        let _ =
                            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n");
                        for _ in 0..1_000 {
                            if stream.write_all(b" ").is_err() {
                                return;
                            }
                            std::thread::sleep(Duration::from_millis(5));
                        }
                    });
                    continue;
                }
                "/team/none" => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
                "/team/broken" => {
                    "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n".to_owned()
                }
                "/team/busy" => BUSY.to_owned(),
                "/team/busy_once" if before == 0 => BUSY.replace("503", "429"),
                "/team/half" => "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_owned(),
                _ => whole(body),
            };
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (origin, count)
}

fn rules() -> FetchRules {
    FetchRules {
        plain_loopback: true,
        ..FetchRules::default()
    }
}

fn grant(origin: &str, more: &str) -> Vec<HttpGrant> {
    let grant =
        format!(r#"{{"origin": "{origin}", "path_prefix": "/team", "private": true{more}}}"#);
    vec![serde_json::from_str(&grant).unwrap()]
}

fn granted(origin: &str, more: &str) -> RemoteRequests {
    RemoteRequests::granted(grant(origin, more), rules())
}

fn within(origin: &str, budget: Duration) -> RemoteRequests {
    let rules = FetchRules { budget, ..rules() };
    RemoteRequests::granted(grant(origin, ""), rules)
}

async fn found(remote: &RemoteRequests, address: &str) -> FoundRequest {
    remote.find(address, &Mutex::default()).await.unwrap()
}

async fn find(remote: &RemoteRequests, address: &str) -> Result<SavedRequest, String> {
    found(remote, address).await.request
}

#[tokio::test]
async fn a_request_is_fetched_from_where_the_operator_granted_and_once_a_run() {
    let (origin, count) = server(REQUEST);
    let remote = granted(&origin, "");
    let fetched = Mutex::default();
    let address = format!("{origin}/team/refund");
    for is_first in [true, false] {
        let found = remote.find(&address, &fetched).await.unwrap();
        assert_eq!(found.request.unwrap().description, "Refunds.");
        assert_eq!(found.fetch.is_some(), is_first);
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert!(remote.find("idea://refund", &fetched).await.is_none());
}

#[tokio::test]
async fn a_digest_pins_the_document_and_another_is_never_asked_for_again() {
    let (origin, count) = server(REQUEST);
    // Plain http with a digest needs no setting.
    let strict = FetchRules::default();
    let remote = RemoteRequests::granted(grant(&origin, ""), strict);
    let address = format!("{origin}/team/refund");
    let pinned = format!("{address}@sha256:{}", sha256(REQUEST));
    assert!(find(&remote, &pinned).await.is_ok());
    assert_eq!(count.load(Ordering::SeqCst), 1);
    let other = format!("{address}@sha256:{}", sha256("another"));
    let other = found(&remote, &other).await;
    let reason = other.request.unwrap_err();
    assert!(reason.contains("it was changed"), "{reason}");
    assert_eq!(count.load(Ordering::SeqCst), 2, "asked for once");
    let fetch = other.fetch.unwrap();
    assert_eq!(fetch.digest.as_deref(), Some(sha256(REQUEST).as_str()));
    assert_eq!((fetch.attempts, fetch.error), (1, Some(reason)));
    for wrong in ["", "abc", &sha256(REQUEST).to_uppercase()] {
        let reason = find(&remote, &format!("{address}@sha256:{wrong}")).await;
        let reason = reason.unwrap_err();
        assert!(reason.contains("64 hex digits"), "{wrong}: {reason}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn plain_http_without_a_digest_is_refused() {
    let (origin, count) = server(REQUEST);
    let strict = RemoteRequests::granted(grant(&origin, ""), FetchRules::default());
    let here = found(&strict, &format!("{origin}/team/refund")).await;
    let reason = here.request.unwrap_err();
    assert!(
        reason.contains("https://") && reason.contains("requests.plain_loopback"),
        "{reason}"
    );
    assert_eq!(here.fetch.unwrap().attempts, 0);
    // The setting is for this machine, and not for its network or what a name server calls this machine.
    for far in [
        "http://10.0.0.1",
        "http://agents.example.com",
        "http://localhost.example.com",
    ] {
        let reason = find(&granted(far, ""), &format!("{far}/team/refund")).await;
        assert!(reason.unwrap_err().contains("plain http://"), "{far}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
    assert!(
        find(&granted(&origin, ""), &format!("{origin}/team/refund"))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn nothing_is_fetched_without_a_grant() {
    let (origin, count) = server(REQUEST);
    let address = format!("{origin}/team/refund");
    for (remote, address) in [
        (
            RemoteRequests::granted(Vec::new(), rules()),
            address.clone(),
        ),
        (granted(&origin, ""), format!("{origin}/other/refund")),
        (granted(&origin, ""), format!("{origin}/team/../other")),
        (granted("http://127.0.0.1:9", ""), address.clone()),
        (
            granted(&origin, r#", "methods": ["HEAD"]"#),
            address.clone(),
        ),
    ] {
        let refused = found(&remote, &address).await;
        let reason = refused.request.unwrap_err();
        assert!(
            reason.contains("no grant lets it be fetched") && reason.contains("requests.http"),
            "{address}: {reason}"
        );
        assert_eq!(refused.fetch.unwrap().attempts, 0, "{address}");
    }
    let with_key = address.replace("http://", "http://ada:key@");
    let reason = find(&granted(&origin, ""), &with_key).await.unwrap_err();
    assert!(reason.contains("user name"), "{reason}");
    assert_eq!(count.load(Ordering::SeqCst), 0);
    // This machine and its network are granted by `private` alone.
    let own = format!(r#"{{"origin": "{origin}"}}"#);
    assert!(serde_json::from_str::<HttpGrant>(&own).is_err());
}

/// A name server that says what it likes.
#[derive(Debug)]
struct Says {
    answers: &'static [&'static str],
    asked: AtomicUsize,
}

impl Resolve for Says {
    fn resolve<'a>(
        &'a self,
        _: &'a WorkParty,
        _: &'a str,
    ) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let at = self
            .asked
            .fetch_add(1, Ordering::SeqCst)
            .min(self.answers.len() - 1);
        Box::pin(async move { Ok(vec![self.answers[at].parse().unwrap()]) })
    }
}

/// As modules: whatever a name resolves to is judged when the connection is made (DNS rebinding).
#[tokio::test]
async fn a_name_that_leads_into_the_network_is_refused_and_not_asked_again() {
    let (local, count) = server(REQUEST);
    let port = local.rsplit_once(':').unwrap().1;
    let origin = format!("http://agents.example.com:{port}");
    let address = format!("{origin}/team/refund@sha256:{}", sha256(REQUEST));
    for (private, answers) in [
        (false, &["127.0.0.1"] as &[_]),
        (false, &["10.0.0.1"]),
        (false, &["::1"]),
        // What no grant reaches.
        (true, &["169.254.169.254"]),
    ] {
        let resolver = Arc::new(Says {
            answers,
            asked: AtomicUsize::new(0),
        });
        let grant = format!(r#"{{"origin": "{origin}", "private": {private}}}"#);
        let grants = vec![serde_json::from_str(&grant).unwrap()];
        let remote = RemoteRequests {
            resolver: resolver.clone(),
            ..RemoteRequests::granted(grants, rules())
        };
        let refused = found(&remote, &address).await;
        let reason = refused.request.unwrap_err();
        assert!(
            reason.contains("an address that the grant does not reach"),
            "{answers:?}: {reason}"
        );
        assert_eq!(resolver.asked.load(Ordering::SeqCst), 1, "{answers:?}");
        assert_eq!(refused.fetch.unwrap().attempts, 0);
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
    // By a private grant the same name is reached, and its first answer is the one that is judged and connected to.
    let remote = RemoteRequests {
        resolver: Arc::new(Says {
            answers: &["127.0.0.1", "169.254.169.254"],
            asked: AtomicUsize::new(0),
        }),
        ..granted(&origin, "")
    };
    let saved = find(&remote, &address).await;
    assert!(saved.is_ok(), "{saved:?}");
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_is_fetched_is_bounded_and_nothing_is_followed() {
    let (origin, count) = server(REQUEST);
    let remote = granted(&origin, "");
    for (path, expect) in [
        ("large", "more than 1048576 bytes"),
        ("elsewhere", "redirects are not followed"),
        ("none", "status 404"),
        ("broken", "status 500"),
        ("half", "cannot be fetched"),
    ] {
        let before = count.load(Ordering::SeqCst);
        let failed = found(&remote, &format!("{origin}/team/{path}")).await;
        let reason = failed.request.unwrap_err();
        assert!(reason.contains(expect), "{path}: {reason}");
        let sent = count.load(Ordering::SeqCst) - before;
        assert_eq!((sent, failed.fetch.unwrap().attempts), (1, 1), "{path}");
    }
    let largest = found(&remote, &format!("{origin}/team/largest")).await;
    assert!(largest.request.is_ok());
    assert_eq!(largest.fetch.unwrap().bytes, 1 << 20);
    let (before, fetched) = (count.load(Ordering::SeqCst), Mutex::default());
    for n in 0..MAX_ADDRESSES {
        let address = format!("{origin}/other/{n}");
        let found = remote.find(&address, &fetched).await.unwrap();
        assert!(found.request.is_err());
    }
    let more = format!("{origin}/team/refund");
    for _ in 0..2 {
        let more = remote.find(&more, &fetched).await.unwrap();
        let reason = more.request.unwrap_err();
        assert!(reason.contains("at most 16 addresses"), "{reason}");
    }
    assert_eq!(count.load(Ordering::SeqCst), before);
}

/// Only what may pass: a server that cannot be reached, or says that it is busy.
#[tokio::test]
async fn a_busy_server_is_asked_again_and_a_broken_one_is_not() {
    let (origin, count) = server(REQUEST);
    let again = found(&granted(&origin, ""), &format!("{origin}/team/busy_once")).await;
    assert!(again.request.is_ok(), "{again:?}");
    assert_eq!(again.fetch.unwrap().attempts, 2);
    assert_eq!(count.load(Ordering::SeqCst), 2);
    let (origin, count) = server(REQUEST);
    let busy = found(&granted(&origin, ""), &format!("{origin}/team/busy")).await;
    assert!(busy.request.unwrap_err().contains("status 503"));
    assert_eq!(busy.fetch.unwrap().attempts, MAX_ATTEMPTS);
    assert_eq!(count.load(Ordering::SeqCst), 3);
    // There is no time for the wait before the second attempt.
    let soon = within(&origin, Duration::from_millis(150));
    let busy = found(&soon, &format!("{origin}/team/busy")).await;
    assert_eq!(busy.fetch.unwrap().attempts, 1);
    // Nobody listens.
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let closed = format!("http://{closed}");
    let silent = found(&granted(&closed, ""), &format!("{closed}/team/refund")).await;
    assert!(silent.request.unwrap_err().contains("cannot be reached"));
    assert_eq!(silent.fetch.unwrap().attempts, MAX_ATTEMPTS);
}

#[tokio::test]
async fn all_fetches_of_a_run_share_one_budget_of_time() {
    let (origin, count) = server(REQUEST);
    let remote = within(&origin, Duration::from_millis(300));
    let fetched = Mutex::default();
    let drip = format!("{origin}/team/drip");
    let began = Instant::now();
    let late = remote.find(&drip, &fetched).await.unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    let reason = late.request.unwrap_err();
    assert!(
        reason.contains("was not there in time; 300 ms were left of the 300 ms")
            && reason.contains("raises requests.timeout_ms"),
        "{reason}"
    );
    assert_eq!(
        late.fetch.unwrap().attempts,
        1,
        "what is slow is not asked again"
    );
    // Nothing is left for another, which says what took the time.
    let before = count.load(Ordering::SeqCst);
    let next = remote
        .find(&format!("{origin}/team/refund"), &fetched)
        .await;
    let next = next.unwrap();
    let reason = next.request.unwrap_err();
    assert!(
        reason.contains("was not asked for; 0 ms were left of the 300 ms")
            && reason.contains(&format!("{drip} took "))
            && reason.contains("raises requests.timeout_ms"),
        "{reason}"
    );
    assert_eq!(count.load(Ordering::SeqCst), before);
    // Another run has its own time.
    assert!(
        find(
            &within(&origin, Duration::from_secs(5)),
            &format!("{origin}/team/refund")
        )
        .await
        .is_ok()
    );
    assert_eq!(FetchRules::default().budget, Duration::from_secs(15));
}

/// A call that is cancelled in the middle of a fetch does not give its time back.
#[tokio::test]
async fn a_fetch_that_is_given_up_counts() {
    let (origin, _) = server(REQUEST);
    let remote = granted(&origin, "");
    let fetched = Mutex::default();
    let slow = format!("{origin}/team/drip");
    let patience = Duration::from_millis(100);
    assert!(
        tokio::time::timeout(patience, remote.find(&slow, &fetched))
            .await
            .is_err()
    );
    let fetched = fetched.into_inner();
    assert!(fetched.spent() >= Duration::from_millis(90), "{fetched:?}");
    assert!(fetched.by_address.is_empty());
    // It is in the record and the log all the same.
    let given_up = fetched.given_up.lock().unwrap();
    let [(address, fetch)] = given_up.as_slice() else {
        panic!("{given_up:?}");
    };
    assert_eq!((address, &fetch.address), (&slow, &slow));
    assert_eq!((fetch.attempts, &fetch.digest), (1, &None));
    assert!(fetch.duration_ms >= 90, "{fetch:?}");
    let error = fetch.error.as_deref().unwrap_or_default();
    assert!(
        error.contains(&slow) && error.contains("given up after "),
        "{error}"
    );
}

/// Addresses stand in logs, in the audit log and in errors that others read.
#[tokio::test]
async fn keys_in_an_address_are_not_told() {
    let digest = sha256(REQUEST);
    for (address, expect) in [
        (
            "https://ada:key@host/a?b=key".to_owned(),
            "https://host/a?…".to_owned(),
        ),
        ("http://ada@host".to_owned(), "http://host".to_owned()),
        (
            "https://a@b:key@host\\a#key".to_owned(),
            "https://host\\a?…".to_owned(),
        ),
        (
            format!("https://host:1/a@b?key=1@sha256:{digest}"),
            format!("https://host:1/a@b?…@sha256:{digest}"),
        ),
        (
            format!("https://host/a@sha256:{digest}"),
            format!("https://host/a@sha256:{digest}"),
        ),
        (
            "https://host?key=1@sha256:key".to_owned(),
            "https://host?…".to_owned(),
        ),
    ] {
        assert_eq!(shown(&address), expect);
    }
    let (origin, count) = server(REQUEST);
    let remote = within(&origin, Duration::from_millis(300));
    let fetched = Mutex::default();
    let signed = format!("{origin}/team/refund?signature=s3cret");
    let with_key = signed.replace("http://", "http://ada:s3cret@");
    let drip = format!("{origin}/team/drip?s3cret");
    let late = format!("{origin}/team/refund");
    for address in [&signed, &with_key, &drip, &late] {
        let found = remote.find(address, &fetched).await.unwrap();
        let told = format!("{:?} {:?}", found.fetch, found.request.err());
        assert!(!told.contains("s3cret"), "{told}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 2, "the query is sent");
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

#[tokio::test]
async fn a_fetch_is_told_with_its_digest_its_size_and_its_time() {
    let (origin, _) = server(REQUEST);
    let address = format!("{origin}/team/refund");
    let told = found(&granted(&origin, ""), &address).await.fetch.unwrap();
    assert_eq!(told.address, address);
    assert_eq!(told.digest, Some(sha256(REQUEST)));
    assert_eq!(told.bytes, REQUEST.len() as u64);
    assert_eq!((told.attempts, &told.error), (1, &None));
    let said = told.to_string();
    assert!(
        said.starts_with(&format!("fetched {address} (")) && said.contains(&sha256(REQUEST)),
        "{said}"
    );
}
