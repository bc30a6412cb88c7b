//! Row 76: clients of the HTTP API that ask for long answers and read none of them (docs/security.md, promise 2).

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, ms};
use crate::runs::RunClient;
use crate::serving::{Answering, MODELS, Served};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use serde_json::json;
use std::future::ready;
use std::io::Write as _;
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const ATTACKS: &[Attack] = &[Attack {
    row: 76,
    name: "answers_that_nobody_reads",
    attack: "one key asks 64 times for a run of 4 MB, as pages, streams, WebSockets and in a row on one connection, and reads nothing",
    must: "memory bounded; another key is answered meanwhile; the key reads its run whole when the others are gone",
    company: Company::Others,
    tries: |lab| Box::pin(ready(answers_that_nobody_reads(lab))),
}];

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 2 << 30,
};
const CONFIG: [&str; 2] = ["--config", "host.toml"];
/// Unsent bytes of all keys: the fewest that a server may be given.
const UNSENT_BYTES: u64 = 16 << 20;
/// Maximum growth of the server: the unsent bytes, one answer beside them, what it is made of, and what the allocator
/// keeps of all that. Without a bound 64 answers take 250 MB.
const MOST_MEMORY: u64 = 112 << 20;
/// Maximum time of another key's request.
const ANSWERED: Duration = Duration::from_secs(2);
/// Time in which nothing is read.
const SILENCE: Duration = Duration::from_millis(400);
/// Answers that are asked for in each way.
const ANSWERS: usize = 64;
/// Bytes of the text that the run returned.
const BYTES: usize = 3_900_000;
/// Bytes that the system keeps of an answer for a client that does not read.
const UNREAD_BYTES: usize = 4 << 10;
const UPGRADE: &str = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// How answers are asked for.
#[derive(Debug, Clone, Copy)]
enum UnreadWay {
    Pages,
    /// Half of them WebSockets.
    Streams,
    /// One request behind the other, without waiting for an answer.
    InARow,
}

/// A server, and the key that reads nothing.
struct UnreadBench<'a> {
    served: &'a Served,
    silent: &'a str,
    other: RunClient<'a>,
    /// Path of the long run.
    run: String,
}

impl UnreadBench<'_> {
    /// Sends a request for each end of a path, with headers, and reads no answer.
    fn asked(&self, ends: &[(&str, &str)]) -> Result<Vec<TcpStream>, AttackFailure> {
        let silent = |(end, more): &(&str, &str)| {
            let stream = self.served.open(&self.request(end, more))?;
            set_socket_recv_buffer_size(&stream, UNREAD_BYTES).map_err(std::io::Error::from)?;
            Ok::<_, AttackFailure>(stream)
        };
        ends.iter().map(silent).collect()
    }

    fn request(&self, end: &str, more: &str) -> Vec<u8> {
        let (run, silent) = (&self.run, self.silent);
        format!(
            "GET {run}{end} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {silent}\r\n{more}\r\n"
        )
        .into_bytes()
    }

    fn begin(&self, way: UnreadWay) -> Result<Vec<TcpStream>, AttackFailure> {
        match way {
            UnreadWay::Pages => self.asked(&[("", ""); ANSWERS]),
            UnreadWay::Streams => {
                let both = [("/events", ""), ("/socket", UPGRADE)];
                let all: Vec<_> = both.into_iter().cycle().take(ANSWERS).collect();
                self.asked(&all)
            }
            UnreadWay::InARow => {
                let mut one = self.asked(&[("", "")])?;
                let rest = self.request("", "").repeat(ANSWERS - 1);
                if let Some(stream) = one.first_mut() {
                    stream.write_all(&rest)?;
                }
                Ok(one)
            }
        }
    }

    /// Growth of the server in bytes, and the slowest request of the other key.
    fn attacked(&self, way: UnreadWay) -> Result<(u64, Duration), AttackFailure> {
        let resident = || {
            self.served.resident().ok_or_else(|| {
                AttackFailure::Unable("this system does not tell what is resident".into())
            })
        };
        let before = resident()?;
        let unread = self.begin(way)?;
        let (began, mut most, mut slowest) = (Instant::now(), before, Duration::ZERO);
        while began.elapsed() < SILENCE {
            let asked = Instant::now();
            self.other.runs()?;
            slowest = slowest.max(asked.elapsed());
            most = most.max(resident()?);
            sleep(Duration::from_millis(10));
        }
        ensure(slowest < ANSWERED, || {
            format!("{way:?}: another key was answered after {}", ms(slowest))
        })?;
        let more = most - before;
        ensure(more < MOST_MEMORY, || {
            format!(
                "{way:?}: {} MiB more were resident, bound {} MiB",
                more >> 20,
                MOST_MEMORY >> 20
            )
        })?;
        drop(unread);
        self.ensure_readable(way)?;
        Ok((more, slowest))
    }

    /// The key gets its run, once it reads.
    fn ensure_readable(&self, way: UnreadWay) -> Result<(), AttackFailure> {
        let (run, silent) = (&self.run, self.silent);
        let answered = self.served.say(
            format!("GET {run} HTTP/1.0\r\nHost: localhost\r\nAuthorization: {silent}\r\n\r\n")
                .as_bytes(),
        )?;
        let length = answered.as_ref().map_or(0, |answered| answered.body.len());
        // A client here keeps no more of an answer than that.
        ensure(length > 900_000, || {
            format!("{way:?}: of the run {length} bytes came after it")
        })
    }
}

fn answers_that_nobody_reads(lab: &Lab) -> Result<String, AttackFailure> {
    let endpoint = Answering::start(200, MODELS)?;
    let folder = CommandFolder::new(lab)?;
    folder.write("modules/bad.wasm", components::ATTACKER)?;
    folder.write(
        "host.toml",
        format!(
            "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\n\
             [modules]\npinning = \"never\"\n[decisions]\ndefault = \"never\"\n\
             [serve]\nkeys = \"always\"\nkey_requests_per_minute = 0\nunsent_bytes = {UNSENT_BYTES}\n",
            endpoint.port
        ),
    )?;
    let ada = folder.key(&CONFIG, "ada", BOUNDS)?;
    let bob = folder.key(&CONFIG, "bob", BOUNDS)?;
    let served = Served::start(
        &folder,
        &[&CONFIG[..], &["serve", "--listen", "127.0.0.1:0"]].concat(),
    )?;
    let own = RunClient {
        served: &served,
        key: Some(&ada),
    };
    own.until_ready("bad.say", &json!({"arguments": {"bytes": 1}}))?;
    let said = json!({"arguments": {"bytes": BYTES}});
    let said = own.ask("POST", "/v1/tools/bad.say", &said)?;
    ensure(said.status == 200, || {
        format!("a call that must work was answered {:.300}", said.body)
    })?;
    // The answer is longer than a client here reads: the run's id is at its beginning.
    let id = said.body.split('"').nth(3).unwrap_or_default();
    let bench = UnreadBench {
        served: &served,
        silent: &ada,
        other: RunClient {
            served: &served,
            key: Some(&bob),
        },
        run: format!("/v1/runs/{id}"),
    };
    bench.ensure_readable(UnreadWay::Pages)?;
    let (mut most, mut slowest) = (0, Duration::ZERO);
    for way in [UnreadWay::Pages, UnreadWay::Streams, UnreadWay::InARow] {
        let (more, slow) = bench.attacked(way)?;
        most = most.max(more);
        slowest = slowest.max(slow);
    }
    Ok(format!(
        "{} MiB more at most for {ANSWERS} answers of {} MB; another key waited {}",
        most >> 20,
        BYTES / 1_000_000,
        ms(slowest)
    ))
}
