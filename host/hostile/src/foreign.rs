//! Row 54: requests of foreign pages, which name this machine only in part.

use crate::attack::{Attack, Company};
use crate::command::CommandFolder;
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use crate::serving::{Answered, Served};
use serde_json::json;
use std::fmt::Write as _;
use std::future::ready;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 54,
    name: "names_of_this_machine_in_foreign_ones",
    attack: "Host, Origin and targets with users, dots, zones, ports, escapes, other alphabets, twice, to both servers without keys",
    must: "refused; this machine's own names are served",
    company: Company::Others,
    tries: |lab| Box::pin(ready(names_of_this_machine_in_foreign_ones(lab))),
}];

/// Values of `Host` that name another host, or none.
const FOREIGN_HOSTS: &[&str] = &[
    "",
    "evil.example",
    "localhost:80@evil.example",
    "user@localhost",
    "user:word@127.0.0.1",
    "@localhost",
    "localhost.",
    "localhost..",
    ".localhost",
    "127.0.0.1.",
    "localhost.evil.example",
    "LOCALHOST.EVIL.EXAMPLE",
    "localhost.localdomain",
    "evil.localhost",
    "127.1",
    "2130706433",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "127.0.0.1.nip.io",
    "0.0.0.0",
    "[::]",
    "[fe80::1%25lo]",
    "[::1%25lo]",
    "[::1%lo]",
    "[::1].evil.example",
    "[::1]evil.example",
    "[::1]:80@evil.example",
    "[::1",
    "::1",
    "[]",
    "[",
    "[localhost]",
    "[127.0.0.1]",
    "localhost:",
    "localhost:65536",
    "localhost:4294967376",
    "localhost:-1",
    "localhost:+80",
    "localhost:0x50",
    "localhost:80:80",
    "localhost:80.evil.example",
    "%6cocalhost",
    "localhost%2eevil.example",
    "localhost%00.evil.example",
    "localhost/",
    "localhost\\.evil.example",
    "localhost?.evil.example",
    "localhost#.evil.example",
    "localhost,evil.example",
    "localhost;evil.example",
    "localhost evil.example",
    "localhost\u{a0}",
    "localhost\u{200b}",
    "localhost\u{3002}evil.example",
    "ⓛocalhost",
    "ｌｏｃａｌｈｏｓｔ",
    "http://localhost",
];

/// Values of `Origin` that are no page of this machine, beside a good `Host`.
const FOREIGN_ORIGINS: &[&str] = &[
    "",
    "null",
    "localhost",
    "//localhost",
    "https://evil.example",
    "http://localhost.evil.example",
    "http://localhost.",
    "http://evil.example#http://localhost",
    "https://evil.example?http://localhost",
    "http://localhost:80@evil.example",
    "http://user@localhost",
    "http://[::1].evil.example",
    "http://[::1%25lo]",
    "http://localhost/",
    "http://localhost#",
    "http://localhost:65536",
    "http://localhost:",
    "http://127.1",
    "http://%6cocalhost",
    "http:/localhost",
    "http:localhost",
    "http://http://localhost",
    "file://localhost",
    "chrome-extension://localhost",
    "http://localhost http://evil.example",
    "http://localhost, http://evil.example",
    "http://ⓛocalhost",
];

/// Further requests: what stands before the path in the target, and headers.
const FOREIGN_REQUESTS: &[(&str, &[(&str, &str)])] = &[
    ("", &[]),
    ("", &[("host", "localhost"), ("host", "localhost")]),
    ("", &[("host", "localhost"), ("host", "evil.example")]),
    ("", &[("host", "evil.example"), ("HOST", "localhost")]),
    ("http://localhost", &[]),
    ("http://localhost", &[("host", "evil.example")]),
    ("http://evil.example", &[("host", "localhost")]),
    ("http://user@localhost", &[("host", "localhost")]),
    ("http://localhost:81", &[("host", "localhost:80")]),
    (
        "http://localhost:80@evil.example",
        &[("host", "localhost:80")],
    ),
    ("http://[::1]", &[("host", "localhost")]),
    (
        "",
        &[
            ("host", "localhost"),
            ("origin", "http://localhost"),
            ("origin", "http://evil.example"),
        ],
    ),
    (
        "",
        &[
            ("host", "localhost"),
            ("origin", "http://evil.example"),
            ("Origin", "http://localhost"),
        ],
    ),
];

/// Requests of this machine.
const OWN_REQUESTS: &[(&str, &[(&str, &str)])] = &[
    ("", &[("host", "localhost")]),
    ("", &[("HOST", "LocalHost:65535")]),
    ("", &[("host", "127.255.255.254")]),
    ("", &[("host", "[0:0:0:0:0:0:0:1]:80")]),
    ("http://localhost:7", &[("host", "LOCALHOST:7")]),
    (
        "",
        &[("host", "localhost"), ("origin", "http://[::1]:3000")],
    ),
    (
        "",
        &[("host", "localhost"), ("origin", "https://127.0.0.1")],
    ),
];

/// A server, and a request that it answers when it comes from this machine.
struct GuardedServer {
    served: Served,
    method: &'static str,
    path: &'static str,
    body: String,
}

impl GuardedServer {
    /// `before_path`: what stands in the target before the path.
    fn ask(
        &self,
        before_path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Option<Answered>, AttackFailure> {
        let Self {
            method, path, body, ..
        } = self;
        let mut request = format!(
            "{method} {before_path}{path} HTTP/1.1\r\nconnection: close\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            // Writing to a text does not fail.
            let _ = write!(request, "{name}: {value}\r\n");
        }
        request += "\r\n";
        request += body;
        self.served.say(request.as_bytes())
    }
}

fn names_of_this_machine_in_foreign_ones(lab: &Lab) -> Result<String, AttackFailure> {
    let folder = CommandFolder::new(lab)?;
    folder.write("host.toml", "[serve]\nkeys = \"never\"\n")?;
    let start = |arguments: &[&str]| {
        let arguments = [&["--config", "host.toml"], arguments].concat();
        Served::start(&folder, &arguments)
    };
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "hostile", "version": "1"},
    }});
    let servers = [
        GuardedServer {
            served: start(&["serve", "--listen", "127.0.0.1:0"])?,
            method: "GET",
            path: "/v1/models",
            body: String::new(),
        },
        GuardedServer {
            served: start(&["mcp", "--http", "127.0.0.1:0"])?,
            method: "POST",
            path: "/mcp",
            body: hello.to_string(),
        },
    ];
    let (mut refused, mut wrong) = (0, Vec::new());
    for server in &servers {
        let mut tries = |before_path: &str, headers: &[(&str, &str)], is_own: bool| {
            let answered = server.ask(before_path, headers)?;
            let status = answered.map(|it| it.status);
            // Closed without an answer is refused, too.
            let is_right = match status {
                Some(200) => is_own,
                Some(400 | 403 | 421) | None => !is_own,
                Some(_) => false,
            };
            if !is_right {
                let path = server.path;
                wrong.push(format!("{before_path}{path} {headers:?}: {status:?}"));
            }
            refused += usize::from(!is_own);
            Ok::<_, AttackFailure>(())
        };
        for &host in FOREIGN_HOSTS {
            tries("", &[("host", host)], false)?;
        }
        for &origin in FOREIGN_ORIGINS {
            tries("", &[("host", "localhost"), ("origin", origin)], false)?;
        }
        for &(before_path, headers) in FOREIGN_REQUESTS {
            tries(before_path, headers, false)?;
        }
        for &(before_path, headers) in OWN_REQUESTS {
            tries(before_path, headers, true)?;
        }
    }
    ensure(wrong.is_empty(), || {
        format!("{} answered wrongly: {}", wrong.len(), wrong.join("; "))
    })?;
    Ok(format!("{refused} requests refused by two servers"))
}
