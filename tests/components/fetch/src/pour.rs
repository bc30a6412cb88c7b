//! Bodies that are written for as long as the host takes them.

use crate::bindings::Pouring;
use crate::bindings::wasi::http::types::{FutureIncomingResponse, OutgoingBody};
use crate::bindings::wasi::io::poll::poll;
use crate::bindings::wasi::io::streams::OutputStream;
use crate::request::{Request, finish, start_open};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Writes to one body before the others have their turn.
const WRITES_IN_A_ROW: u64 = 64;

struct Poured {
    /// Gone when the host takes no more.
    stream: Option<OutputStream>,
    body: OutgoingBody,
    response: FutureIncomingResponse,
    /// Writes that are still to come.
    left: u64,
}

pub fn pour(url: &str, how: &Pouring) -> (u64, Vec<String>) {
    let request = Request {
        method: "POST".into(),
        url: url.into(),
        headers: vec![("x-large".into(), "x".repeat(how.header as usize))],
        body: None,
    };
    let mut bodies: Vec<_> = (0..how.bodies).map(|_| open(&request, how)).collect();
    let piece = vec![b'x'; how.size as usize];
    let (since, time) = (Instant::now(), Duration::from_millis(how.milliseconds.into()));
    let mut writes = 0;
    while since.elapsed() < time {
        let open = bodies.iter_mut().flatten();
        let taken: u64 = open.map(|poured| write(poured, &piece, how.flush)).sum();
        writes += taken;
        if taken == 0 {
            wait(bodies.iter().flatten());
        }
    }
    let outcome = |poured| match poured {
        Err(error) => error,
        Ok(_) if !how.finish => "let go".into(),
        Ok(poured) => end(poured).unwrap_or_else(|error| error),
    };
    (writes, bodies.into_iter().map(outcome).collect())
}

fn open(request: &Request, how: &Pouring) -> Result<Poured, String> {
    let (body, response) = start_open(request)?;
    Ok(Poured {
        stream: Some(body.write().map_err(|()| "no stream")?),
        body,
        response,
        left: how.writes,
    })
}

/// Waits until one of these bodies can be written to; for a moment, if none has anything to be written.
fn wait<'a>(bodies: impl Iterator<Item = &'a Poured>) {
    let unfinished = bodies.filter(|poured| poured.left > 0);
    let streams = unfinished.filter_map(|poured| poured.stream.as_ref());
    let ready: Vec<_> = streams.map(OutputStream::subscribe).collect();
    if ready.is_empty() {
        sleep(Duration::from_millis(1));
    } else {
        poll(&ready.iter().collect::<Vec<_>>());
    }
}

/// Returns how many writes the host took.
fn write(poured: &mut Poured, piece: &[u8], flush: bool) -> u64 {
    let mut taken = 0;
    while let Some(stream) = &poured.stream {
        if taken == WRITES_IN_A_ROW.min(poured.left) {
            break;
        }
        match stream.check_write() {
            Ok(0) => break,
            Ok(_) => {
                let written = stream.write(piece);
                if written.is_err() || flush && stream.flush().is_err() {
                    poured.stream = None;
                    break;
                }
                taken += 1;
            }
            Err(_) => poured.stream = None,
        }
    }
    poured.left -= taken;
    taken
}

/// Ends the body and waits for the response: its status.
fn end(poured: Poured) -> Result<String, String> {
    drop(poured.stream);
    OutgoingBody::finish(poured.body, None).map_err(|error| format!("{error:?}"))?;
    Ok(finish(&poured.response)?.status().to_string())
}
