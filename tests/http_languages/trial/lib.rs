//! Requests as authors write them, with what they forget.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use toolhold_guest::http::Request;
use toolhold_guest::{Error, Tool};

toolhold_guest::export!(tools);

fn tools() -> Vec<Tool> {
    vec![Tool::new("run", "d", run)]
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    how: String,
    url: String,
}

const MOST: u64 = 1 << 20;

fn run(Arguments { how, url }: Arguments) -> Result<Vec<usize>, Error> {
    let get = |path: &str| Request::get(format!("{url}{path}"));
    let post = |path: &str| Request::new("POST", format!("{url}{path}"));
    let request = match how.as_str() {
        "unread" => {
            let lengths = (0..12).map(|_| Ok(get("/long").send(1)?.body.len()));
            return lengths.collect();
        }
        "failures" => {
            let large = vec![0; 2 << 20];
            let mut failures = 0;
            for _ in 0..9 {
                let elsewhere = Request::new("POST", "https://elsewhere.example/x");
                let requests = [
                    post("/cut").body("x"),
                    post("/sent").body(large.clone()),
                    elsewhere.body("x"),
                ];
                let failed = requests.iter().filter(|request| request.send(MOST).is_err());
                failures += failed.count();
            }
            return Ok(vec![failures, get("/text").send(MOST)?.status.into()]);
        }
        "timeout" => get("/slow"),
        "timeout of a post" => post("/slow"),
        "timeout of a large body" => post("/slow").body(vec![0; 12 << 20]),
        "timeout in the body" => get("/trickle"),
        "the host's time" => {
            let late = get("/slow").timeout(Duration::from_secs(30));
            let told = late.send(MOST).is_err_and(|error| {
                error.message().ends_with("/slow broke off: HTTP-response-timeout")
            });
            return Ok(vec![told.into()]);
        }
        _ => return Err(Error::correctable("no such way")),
    };
    let request = request.timeout(Duration::from_millis(300));
    Ok(vec![request.send(MOST)?.body.len()])
}
