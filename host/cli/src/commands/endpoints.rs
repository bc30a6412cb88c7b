//! `toolhold endpoints`: which model servers a running server leaves alone, and having it ask one again.

use crate::exit::Exit;
use crate::terminal::columns::{Column, aligned};
use crate::terminal::output;
use crate::terminal::style::{duration, good, line, plural};
use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Args, Subcommand};
use futures_util::StreamExt as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use toolhold_model::{HttpRequest, HttpTransport, Transport as _};
use toolhold_policy::is_name;
use toolhold_server::settings::Settings;

#[derive(Debug, Args)]
pub struct EndpointsArgs {
    #[command(subcommand)]
    command: Option<EndpointsCommand>,
    #[command(flatten)]
    server: ServerArgs,
    /// Print the server's answer as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum EndpointsCommand {
    /// Have the server ask an endpoint again at once: its rest ends, and its circuit breaker closes.
    Clear {
        /// Name of the endpoint in the configuration.
        name: String,
    },
}

/// The running server that is asked.
#[derive(Debug, Args)]
struct ServerArgs {
    /// Address of the running server, such as http://10.0.0.5:8700 [default: serve.listen].
    #[arg(long, value_name = "URL", global = true)]
    server: Option<String>,
    /// Environment variable with a key of the scope admin, if the server needs keys.
    #[arg(long, value_name = "NAME", global = true)]
    key_env: Option<String>,
}

/// Time for the server's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a connection to the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes of an answer: some hundred thousand endpoints.
const MAX_ANSWER_BYTES: usize = 32 << 20;

/// Spaces between two columns of the list.
const GAP_CHARS: u16 = 2;

/// The answer of `GET /v1/endpoints`.
#[derive(Debug, Deserialize)]
struct Endpoints {
    data: Vec<ListedEndpoint>,
}

#[derive(Debug, Deserialize)]
struct ListedEndpoint {
    name: String,
    asked: bool,
    breaker: String,
    breaker_ms: Option<u64>,
    rest_ms: Option<u64>,
    asked_rest_ms: Option<u64>,
    waiting: u64,
}

#[derive(Debug, Deserialize)]
struct Cleared {
    cleared: bool,
}

#[derive(Debug, Deserialize)]
struct ServerRefusal {
    error: ServerRefusalText,
}

#[derive(Debug, Deserialize)]
struct ServerRefusalText {
    message: String,
}

pub async fn endpoints(serve: &Settings, args: EndpointsArgs) -> Result<Exit> {
    let server = args.server.open(serve)?;
    match args.command {
        None => {
            let answer = asked(&server, HttpRequest::get("endpoints")).await?;
            if args.json {
                output::json(&parsed::<serde_json::Value>(&answer)?)?;
                return Ok(Exit::Ok);
            }
            list(&parsed(&answer)?);
        }
        Some(EndpointsCommand::Clear { name }) => {
            if !is_name(&name) {
                bail!("{name:?} is no name of an endpoint; `toolhold endpoints` lists them");
            }
            let path = format!("endpoints/{name}/clear");
            let answer = asked(&server, HttpRequest::post(&path, serde_json::json!({}))).await?;
            if args.json {
                output::json(&parsed::<serde_json::Value>(&answer)?)?;
                return Ok(Exit::Ok);
            }
            let Cleared { cleared } = parsed(&answer)?;
            if cleared {
                println!("{} {name} is asked again", good("cleared:"));
            } else {
                println!("{name} was not left alone");
            }
        }
    }
    Ok(Exit::Ok)
}

impl ServerArgs {
    fn open(&self, serve: &Settings) -> Result<HttpTransport> {
        let url = match &self.server {
            Some(url) => format!("{}/v1", url.trim_end_matches('/').trim_end_matches("/v1")),
            None if serve.listen.port() == 0 => {
                bail!("serve.listen names no port; name the server with --server URL")
            }
            None => format!("http://{}/v1", reachable(serve.listen)),
        };
        let key = match &self.key_env {
            None => None,
            Some(name) => {
                let key = std::env::var(name);
                Some(key.with_context(|| format!("the environment variable {name} has no key"))?)
            }
        };
        Ok(HttpTransport::new(&url, key, CONNECT_TIMEOUT)?)
    }
}

/// The address by which a server on this machine is reached that listens at `listen`.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// The body of the server's answer.
async fn asked(server: &HttpTransport, request: HttpRequest) -> Result<Vec<u8>> {
    let target = server.target().to_owned();
    let answered = async {
        let response = server.send(request).await?;
        let (status, mut body, mut bytes) = (response.status, response.body, Vec::new());
        while let Some(piece) = body.next().await {
            bytes.extend_from_slice(&piece?);
            if bytes.len() > MAX_ANSWER_BYTES {
                bail!("the server at {target} answers with more than {MAX_ANSWER_BYTES} bytes");
            }
        }
        Ok((status, bytes))
    };
    let answered = tokio::time::timeout(ANSWER_TIMEOUT, answered).await;
    let (status, bytes) = answered
        .unwrap_or_else(|_| Err(anyhow!("no answer within {ANSWER_TIMEOUT:?}")))
        .with_context(|| {
            let target = server.target();
            format!("no server answers at {target}; --server URL names another one")
        })?;
    if (200..=299).contains(&status) {
        return Ok(bytes);
    }
    let said = serde_json::from_slice::<ServerRefusal>(&bytes);
    let said = said.map_or_else(|_| "it gives no reason".to_owned(), |it| it.error.message);
    let hint = match status {
        401 | 403 => "; --key-env NAME names the variable with a key of the scope admin",
        _ => "",
    };
    bail!("the server answers {status}: {}{hint}", line(&said))
}

fn parsed<T: DeserializeOwned>(answer: &[u8]) -> Result<T> {
    serde_json::from_slice(answer).context("the answer is not that of a Toolhold server")
}

fn list(endpoints: &Endpoints) {
    if endpoints.data.is_empty() {
        output::remark("no agent of the server has an endpoint yet");
    }
    let rows = endpoints.data.iter().map(|endpoint| {
        let state = if endpoint.asked {
            "asked"
        } else {
            "left alone"
        };
        [
            line(&endpoint.name),
            state.to_owned(),
            line(&endpoint.why()),
        ]
    });
    for row in aligned(&[Column::Left(0); 3], GAP_CHARS, rows) {
        output::tell(row.trim_end());
    }
}

impl ListedEndpoint {
    /// Why it is left alone, and what waits for it.
    fn why(&self) -> String {
        let time = |ms: u64| duration(ms.saturating_mul(1_000));
        let mut why = Vec::new();
        if let (Some(left), Some(asked)) = (self.rest_ms, self.asked_rest_ms) {
            why.push(if left == 0 {
                "it asked for a rest, and the next request tries it".to_owned()
            } else if left < asked {
                format!(
                    "it asked for a rest of another {}; one request tries it in {}",
                    time(asked),
                    time(left)
                )
            } else {
                format!("it asked for a rest, which ends in {}", time(left))
            });
        }
        match (self.breaker.as_str(), self.breaker_ms) {
            ("open", Some(left @ 1..)) => {
                why.push(format!(
                    "it failed too often; one request tries it in {}",
                    time(left)
                ));
            }
            ("open", _) => {
                why.push("it failed too often, and the next request tries it".to_owned());
            }
            ("tried", _) => why.push("one request tries whether it works again".to_owned()),
            _ => {}
        }
        if self.waiting > 0 {
            why.push(format!("{} waiting", plural(self.waiting, "request")));
        }
        why.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_stands_for_all_is_reached_at_this_machine() {
        for (listen, reached) in [
            ("0.0.0.0:8700", "127.0.0.1:8700"),
            ("[::]:8700", "[::1]:8700"),
            ("10.0.0.5:1", "10.0.0.5:1"),
        ] {
            let reached: SocketAddr = reached.parse().unwrap();
            assert_eq!(reachable(listen.parse().unwrap()), reached);
        }
    }

    #[test]
    fn it_is_said_why_an_endpoint_is_left_alone() {
        let endpoint = |rest: Option<(u64, u64)>, breaker: (&str, Option<u64>)| ListedEndpoint {
            name: "e".into(),
            asked: false,
            breaker: breaker.0.into(),
            breaker_ms: breaker.1,
            rest_ms: rest.map(|it| it.0),
            asked_rest_ms: rest.map(|it| it.1),
            waiting: 2,
        };
        let closed = ("closed", None);
        for (endpoint, words) in [
            (
                endpoint(Some((42_000, 282_000)), closed),
                "tries it in 42.0 s",
            ),
            (
                endpoint(Some((0, 282_000)), closed),
                "the next request tries it",
            ),
            (endpoint(Some((900, 900)), closed), "which ends in 900.0 ms"),
            (endpoint(None, ("open", Some(7_000))), "tries it in 7.0 s"),
            (
                endpoint(None, ("tried", None)),
                "works again; 2 requests waiting",
            ),
        ] {
            assert!(endpoint.why().contains(words), "{}", endpoint.why());
        }
    }
}
