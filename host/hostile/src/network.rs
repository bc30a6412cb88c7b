//! Rows 12 and 13: access to the host's environment and network without a grant.

use crate::attack::{Attack, Company};
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, kind};
use serde_json::json;
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};
use toolhold_policy::Grant;

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 12,
        name: "environment_and_files",
        attack: "environment, arguments, working directory, files",
        must: "empty / denied",
        company: Company::Others,
        tries: |lab| Box::pin(environment_and_files(lab)),
    },
    Attack {
        row: 13,
        name: "sockets",
        attack: "TCP and UDP out and in, without grant",
        must: "denied; nothing arrives",
        company: Company::Others,
        tries: |lab| Box::pin(sockets(lab)),
    },
    Attack {
        row: 13,
        name: "name_lookup",
        attack: "DNS lookup without grant",
        must: "denied",
        company: Company::Others,
        tries: |lab| Box::pin(name_lookup(lab)),
    },
];

async fn environment_and_files(lab: &Lab) -> Result<String, AttackFailure> {
    ensure(std::env::vars_os().next().is_some(), || {
        "this host has no environment that could leak".into()
    })?;
    let arena = lab.against_guest(Grant::default(), |_| ()).await?;
    for (tool, empty) in [
        ("bad.environment", json!([])),
        ("bad.arguments", json!([])),
        ("bad.working_directory", json!(null)),
        ("bad.preopens", json!([])),
    ] {
        let found = arena.value(tool, json!({})).await?;
        ensure(found == empty, || format!("{tool} found {found}"))?;
    }
    for dir in ["/", ".", "", "/data", "/proc"] {
        let arguments = json!({"dir": dir, "path": "etc/passwd"});
        let report = arena.call("bad.read", arguments).await;
        ensure(kind(&report) == "tool", || {
            format!("{dir} could be read: {:?}", report.result)
        })?;
    }
    arena.unharmed().await?;
    Ok("all empty; no directory to ask".into())
}

async fn sockets(lab: &Lab) -> Result<String, AttackFailure> {
    // Real ones that would answer.
    let tcp = TcpListener::bind("127.0.0.1:0").await?;
    let udp = UdpSocket::bind("127.0.0.1:0").await?;
    let arena = lab
        .against_guest(Grant::default(), |l| l.timeout_ms = 2_000)
        .await?;
    let (to_tcp, to_udp) = (tcp.local_addr()?.to_string(), udp.local_addr()?.to_string());
    let mapped = format!("[::ffff:127.0.0.1]:{}", tcp.local_addr()?.port());
    let mut tried = 0;
    for (tool, addresses) in [
        (
            "bad.connect",
            vec![&*to_tcp, &mapped, "[::1]:80", "169.254.169.254:80"],
        ),
        (
            "bad.send",
            vec![&*to_udp, "127.0.0.1:53", "255.255.255.255:9"],
        ),
        ("bad.listen", vec!["0.0.0.0:0", "127.0.0.1:0", "[::]:0"]),
    ] {
        for address in addresses {
            let report = arena.call(tool, json!({"address": address})).await;
            ensure(kind(&report) == "tool", || {
                format!("{tool} {address} was not denied: {:?}", report.result)
            })?;
            tried += 1;
        }
    }
    let moment = Duration::from_millis(100);
    let arrived = tokio::time::timeout(moment, tcp.accept()).await;
    ensure(arrived.is_err(), || "a connection arrived".into())?;
    let mut buffer = [0; 16];
    let arrived = tokio::time::timeout(moment, udp.recv(&mut buffer)).await;
    ensure(arrived.is_err(), || "a datagram arrived".into())?;
    arena.unharmed().await?;
    Ok(format!("{tried} attempts denied; nothing arrived"))
}

async fn name_lookup(lab: &Lab) -> Result<String, AttackFailure> {
    let arena = lab
        .against_guest(Grant::default(), |l| l.timeout_ms = 2_000)
        .await?;
    // The literal needs no server, so a denial is the only reason for an error.
    let names = ["localhost", "127.0.0.1", "::1", "secret.in-a-name.invalid"];
    for name in names {
        let report = arena.call("bad.lookup", json!({"name": name})).await;
        ensure(kind(&report) == "tool", || {
            format!("{name} was looked up: {:?}", report.result)
        })?;
    }
    arena.unharmed().await?;
    Ok(format!("denied, {} times", names.len()))
}
