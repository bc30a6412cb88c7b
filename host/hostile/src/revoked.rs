//! Row 58: calls and streams of a key that is revoked, or expires.

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, ms};
use crate::serving::{Answering, MODELS, Served};
use std::future::ready;
use std::io::Read as _;
use std::net::TcpStream;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 58,
        name: "work_of_a_revoked_key",
        attack: "a key is revoked, with and without its runs, while a call, a stream and a WebSocket of it go on",
        must: "all end, and say why; another key's run goes on",
        company: Company::Others,
        tries: |lab| Box::pin(ready(work_of_a_revoked_key(lab))),
    },
    Attack {
        row: 58,
        name: "work_of_an_expired_key",
        attack: "a key expires while a call, a stream and a WebSocket of it go on",
        must: "all end, not before it, and say why; another key's run goes on",
        company: Company::Others,
        tries: |lab| Box::pin(ready(work_of_an_expired_key(lab))),
    },
];

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 2 << 30,
};
/// Maximum time from the end of a key's right to the end of its calls and streams. The document promises about a second.
pub const MOST: Duration = Duration::from_secs(5);
/// Times that a key is valid, in seconds: the next one where the machine was too slow for the one before.
pub const LIVES: [u64; 3] = [4, 10, 24];
const CONFIG: [&str; 2] = ["--config", "host.toml"];
/// Sleeps for longer than anybody waits here.
const SLEEP: &str = r#"{"arguments":{"count":1,"nanoseconds":60000000000}}"#;
/// Codes of a close frame (RFC 6455, 7.4.1): the right has ended, or the run was over before that was seen.
const RIGHT_ENDED: u16 = 1008;
const RUN_OVER: u16 = 1000;

/// The moments between which a key's right ends.
pub struct RightEnd {
    pub earliest: Instant,
    pub latest: Instant,
}

/// A key that expires.
pub struct ExpiringKey {
    pub header: String,
    pub end: RightEnd,
}

impl ExpiringKey {
    pub fn new(folder: &CommandFolder, name: &str, life: u64) -> Result<Self, AttackFailure> {
        let (text, life) = (format!("{life}s"), Duration::from_secs(life));
        let earliest = Instant::now() + life;
        let header = folder.key_with(&CONFIG, name, &["--expires", &text], BOUNDS)?;
        Ok(Self {
            header,
            end: RightEnd {
                earliest,
                latest: Instant::now() + life,
            },
        })
    }
}

/// Revokes a key.
pub fn revoke(
    folder: &CommandFolder,
    name: &str,
    flags: &[&str],
) -> Result<RightEnd, AttackFailure> {
    let earliest = Instant::now();
    let revoke = [&CONFIG[..], &["keys", "revoke", name], flags].concat();
    let revoked = folder.run(&revoke, BOUNDS)?;
    ensure(revoked.code == Some(0), || {
        format!("{name} cannot be revoked: {}", revoked.stderr)
    })?;
    Ok(RightEnd {
        earliest,
        latest: Instant::now(),
    })
}

/// A key whose work ends with its right.
struct EndingKey<'a> {
    name: &'a str,
    header: &'a str,
    /// Word that all of its clients must hear.
    word: &'static str,
    /// Deadline for the begin of its work.
    deadline: Instant,
}

/// A client's work and its end.
struct WorkEnd {
    when: Instant,
    said: String,
    close_code: Option<u16>,
}

/// Begins a call that sleeps, and returns when it has ended. A server that is not ready is asked again.
fn sleeps(served: &Served, key: &str) -> Result<WorkEnd, AttackFailure> {
    loop {
        let headers = [("authorization", key)];
        let answered = served.ask("POST", "/v1/tools/bad.wait", &headers, SLEEP)?;
        if answered.status != 503 {
            return Ok(WorkEnd {
                when: Instant::now(),
                said: format!("{} {}", answered.status, answered.body),
                close_code: None,
            });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The id of the key's newest run, once there is one. `None`: there was none in time.
fn run_of(served: &Served, key: &str, deadline: Instant) -> Result<Option<String>, AttackFailure> {
    let is_id =
        |text: &&str| text.len() == 36 && text.bytes().filter(|it| *it == b'-').count() == 4;
    loop {
        let listed = served.ask("GET", "/v1/runs", &[("authorization", key)], "")?;
        if let Some(id) = listed.body.split('"').find(is_id) {
            return Ok(Some(id.to_owned()));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Follows a run by a stream of events, or by a WebSocket, to its end. `open` hears when something of it has come.
fn follows(
    served: &Served,
    key: &str,
    path: &str,
    is_socket: bool,
    open: &Sender<()>,
) -> Result<WorkEnd, AttackFailure> {
    let upgrade = if is_socket {
        "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    } else {
        "connection: close\r\n"
    };
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {key}\r\naccept: text/event-stream\r\n{upgrade}\r\n"
    );
    let mut stream = served.open(request.as_bytes())?;
    let mut heard = Vec::new();
    let mut body = None;
    let mut close_code = None;
    while close_code.is_none() && hears(&mut stream, &mut heard)? {
        if body.is_none()
            && let Some(at) = heard.windows(4).position(|four| four == b"\r\n\r\n")
        {
            body = Some(at + 4);
        }
        let is_good = [b"HTTP/1.1 200", b"HTTP/1.1 101"].map(|good| heard.starts_with(good));
        if body.is_some() && is_good == [false, false] {
            break;
        }
        if let Some(body) = body
            && heard.len() > body
        {
            // The attack does not wait for who is open already.
            let _ = open.send(());
            if is_socket {
                close_code = close_code_in(&heard[body..]);
            }
        }
    }
    Ok(WorkEnd {
        when: Instant::now(),
        said: String::from_utf8_lossy(&heard).into_owned(),
        close_code,
    })
}

/// False at the end of the connection.
fn hears(stream: &mut TcpStream, heard: &mut Vec<u8>) -> Result<bool, AttackFailure> {
    let mut piece = [0; 16 << 10];
    let read = stream.read(&mut piece)?;
    heard.extend(&piece[..read]);
    Ok(read > 0)
}

/// The code of the close frame, once it is there (RFC 6455, 5.2). A server's frames are not masked.
fn close_code_in(mut frames: &[u8]) -> Option<u16> {
    loop {
        let (opcode, length) = (frames.first()? & 0x0f, frames.get(1)? & 0x7f);
        let (head, length) = match length {
            126 => (
                4,
                u64::from(u16::from_be_bytes([*frames.get(2)?, *frames.get(3)?])),
            ),
            127 => (10, u64::from_be_bytes(frames.get(2..10)?.try_into().ok()?)),
            short => (2, u64::from(short)),
        };
        let end = head + usize::try_from(length).ok()?;
        let payload = frames.get(head..end)?;
        if opcode == 8 {
            return Some(u16::from_be_bytes([*payload.first()?, *payload.get(1)?]));
        }
        frames = &frames[end..];
    }
}

/// A folder whose server has long calls, and the endpoint that it needs.
fn folder_of_long_calls(lab: &Lab) -> Result<(CommandFolder, Answering), AttackFailure> {
    let endpoint = Answering::start(200, MODELS)?;
    let folder = CommandFolder::new(lab)?;
    folder.write("modules/bad.wasm", components::ATTACKER)?;
    folder.write(
        "host.toml",
        format!(
            "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\n\
             [modules]\npinning = \"never\"\n[serve]\nkeys = \"always\"\n[decisions]\ndefault = \"never\"\n\
             [run]\ncall_timeout_ms = 120000\n[module.bad.limits]\ntimeout_ms = 120000\n",
            endpoint.port
        ),
    )?;
    Ok((folder, endpoint))
}

fn serve(folder: &CommandFolder) -> Result<Served, AttackFailure> {
    let serve = [&CONFIG[..], &["serve", "--listen", "127.0.0.1:0"]].concat();
    Served::start(folder, &serve)
}

fn work_of_a_revoked_key(lab: &Lab) -> Result<String, AttackFailure> {
    let (folder, _endpoint) = folder_of_long_calls(lab)?;
    let keys: [(&str, &[&str]); 2] = [("ada", &[]), ("bob", &["--cancel-runs"])];
    let own = [
        folder.key(&CONFIG, keys[0].0, BOUNDS)?,
        folder.key(&CONFIG, keys[1].0, BOUNDS)?,
    ];
    let other = folder.key(&CONFIG, "carol", BOUNDS)?;
    let served = serve(&folder)?;
    let slowest = beside_another_key(&served, &other, || {
        let mut slowest = Duration::ZERO;
        for ((name, flags), header) in keys.iter().zip(&own) {
            let key = EndingKey {
                name,
                header,
                word: "revoked",
                deadline: Instant::now() + BOUNDS.time,
            };
            let ended = ends_with_key(&served, &key, || revoke(&folder, name, flags))?;
            let ended = ended.ok_or_else(|| {
                AttackFailure::Broke(format!(
                    "{name}: nothing of the run was heard: nothing is proved"
                ))
            })?;
            slowest = slowest.max(ended);
        }
        Ok(slowest)
    })?;
    Ok(format!("all ended {} after it at most", ms(slowest)))
}

fn work_of_an_expired_key(lab: &Lab) -> Result<String, AttackFailure> {
    let (folder, _endpoint) = folder_of_long_calls(lab)?;
    let other = folder.key(&CONFIG, "carol", BOUNDS)?;
    let served = serve(&folder)?;
    let slowest = beside_another_key(&served, &other, || {
        for life in LIVES {
            let name = format!("dora{life}");
            let ExpiringKey { header, end } = ExpiringKey::new(&folder, &name, life)?;
            let key = EndingKey {
                name: &name,
                header: &header,
                word: "has expired",
                deadline: end.earliest,
            };
            if let Some(slowest) = ends_with_key(&served, &key, || Ok(end))? {
                return Ok(slowest);
            }
        }
        Err(AttackFailure::Broke(
            "no work of a key began before it expired: nothing is proved".into(),
        ))
    })?;
    Ok(format!("all ended {} after it at most", ms(slowest)))
}

/// Tries something beside a call of another key, which must outlive it.
fn beside_another_key<T>(
    served: &Served,
    other: &str,
    tries: impl FnOnce() -> Result<T, AttackFailure>,
) -> Result<T, AttackFailure> {
    std::thread::scope(|scope| {
        let others = scope.spawn(move || sleeps(served, other));
        let tried = tries();
        let goes_on = run_of(served, other, Instant::now() + BOUNDS.time)
            .map(|run| run.is_some() && !others.is_finished());
        // The call of the other key ends with the server.
        served.kill_now();
        let _ = others.join();
        ensure(goes_on?, || {
            "another key's call ended with the others".into()
        })?;
        tried
    })
}

/// Has a call, a stream and a WebSocket of the key go on until its right ends. How long the slowest went on after it;
/// `None`: they did not begin in time.
fn ends_with_key(
    served: &Served,
    key: &EndingKey<'_>,
    end: impl FnOnce() -> Result<RightEnd, AttackFailure>,
) -> Result<Option<Duration>, AttackFailure> {
    let panicked = || AttackFailure::Broke("a client panicked".into());
    let (name, header) = (key.name, key.header);
    std::thread::scope(|scope| {
        let call = scope.spawn(move || sleeps(served, header));
        let Some(run) = run_of(served, header, key.deadline)? else {
            return Ok(None);
        };
        let followers = [("events", false), ("socket", true)].map(|(path, is_socket)| {
            let (sender, is_open) = mpsc::channel();
            let path = format!("/v1/runs/{run}/{path}");
            let ended = scope.spawn(move || follows(served, header, &path, is_socket, &sender));
            (ended, is_open)
        });
        for (_, is_open) in &followers {
            let left = key.deadline.saturating_duration_since(Instant::now());
            if is_open.recv_timeout(left).is_err() {
                return Ok(None);
            }
        }
        let RightEnd { earliest, latest } = end()?;
        let call = call.join().map_err(|_| panicked())??;
        ensure(
            !call.said.starts_with("200 ") || call.said.contains("cancel"),
            || format!("{name}: the call came to its end: {:.300}", call.said),
        )?;
        let mut moments = vec![call.when];
        for (ended, _) in followers {
            let ended = ended.join().map_err(|_| panicked())??;
            moments.push(ended.when);
            let is_told = ended.said.contains(key.word)
                && matches!(ended.close_code, None | Some(RIGHT_ENDED | RUN_OVER));
            ensure(is_told, || {
                format!(
                    "{name}: a client was not told why: {:?} {:.600}",
                    ended.close_code, ended.said
                )
            })?;
        }
        ensure(moments.iter().all(|when| *when >= earliest), || {
            format!("{name}: something ended before the right of its key")
        })?;
        let late = moments
            .iter()
            .map(|when| when.saturating_duration_since(latest));
        let slowest = late.max().unwrap_or_default();
        ensure(slowest < MOST, || {
            format!("{name}: it went on for {}", ms(slowest))
        })?;
        let answered = served.ask("GET", "/v1/runs", &[("authorization", header)], "")?;
        ensure(answered.status == 401, || {
            format!("{name}: its key is answered {answered:?}")
        })?;
        Ok(Some(slowest))
    })
}
