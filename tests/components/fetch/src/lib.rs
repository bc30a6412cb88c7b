//! A guest that fetches: what a tool written for any host of wasi:http looks like.

#[expect(
    clippy::all,
    clippy::pedantic,
    reason = "generated from the interface definitions"
)]
mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "fetcher", generate_all });
}

mod pour;
mod request;

use bindings::{Guest, Pouring, Response};
use request::{Request, finish, pairs, read, start};
use std::thread::sleep;
use std::time::Duration;

struct Component;

bindings::export!(Component with_types_in bindings);

impl Guest for Component {
    fn fetch(
        method: String,
        url: String,
        headers: Vec<(String, String)>,
        body: Option<String>,
    ) -> Result<Response, String> {
        let request = Request {
            method,
            url,
            headers,
            body,
        };
        let response = finish(&start(&request)?)?;
        let (status, headers) = (response.status(), pairs(&response.headers()));
        let mut bytes = Vec::new();
        let trailers = read(&response, |chunk| bytes.extend_from_slice(chunk))?;
        Ok(Response {
            status,
            headers,
            text: String::from_utf8_lossy(&bytes).into_owned(),
            size: bytes.len() as u64,
            head: bytes.iter().copied().take(16).collect(),
            trailers,
        })
    }

    fn fetch_and_panic(url: String) {
        let response = Self::fetch("GET".into(), url, Vec::new(), None).expect("a response");
        let seen = format!("{:?} {:?}", response.headers, response.text);
        println!("{seen}");
        eprintln!("{seen}");
        panic!("{seen}");
    }

    fn fetch_many(url: String, count: u32) -> Vec<String> {
        let started: Vec<_> = (0..count).map(|_| start(&Request::get(&url))).collect();
        started
            .into_iter()
            .map(|pending| {
                pending
                    .and_then(|pending| finish(&pending))
                    .map_or_else(|error| error, |response| response.status().to_string())
            })
            .collect()
    }

    fn drain(url: String) -> Result<u64, String> {
        let response = finish(&start(&Request::get(&url))?)?;
        let mut size = 0;
        read(&response, |chunk| size += chunk.len() as u64)?;
        Ok(size)
    }

    fn pour(url: String, how: Pouring) -> (u64, Vec<String>) {
        pour::pour(&url, &how)
    }

    fn hold(url: String, count: u32, milliseconds: u32) -> Vec<String> {
        let started: Vec<_> = (0..count).map(|_| start(&Request::get(&url))).collect();
        let held: Vec<_> = started
            .into_iter()
            .map(|pending| pending.and_then(|pending| finish(&pending)))
            .collect();
        sleep(Duration::from_millis(milliseconds.into()));
        held.into_iter()
            .map(|one| one.map_or_else(|error| error, |response| response.status().to_string()))
            .collect()
    }
}
