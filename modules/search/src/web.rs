use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_guest::{Annotations, Error, Tool, json};

use crate::engine::Engine;
use crate::results::Found;

/// Results of one call.
const MAX_COUNT: u32 = 20;

pub fn tool() -> Tool {
    Tool::new(
        "web",
        "Searches the web and returns titles, addresses and short texts of the pages that were found, best first. Use it \
         for what you do not know or what may have changed; then read a page before you rely on it.",
        |arguments: Web| web(&arguments, &Engine::configured()?),
    )
    .title("Search the web")
    .annotations(Annotations::READ_ONLY | Annotations::IDEMPOTENT | Annotations::OPEN_WORLD)
    .example(
        "Where is the manual of the Lumen 3 camera?",
        json!({ "query": "Lumen 3 camera manual", "count": 1 }),
        json!({ "results": [{
            "title": "Lumen 3: manual",
            "url": "https://lumen.example/manuals/3",
            "snippet": "All functions of the Lumen 3, with pictures.",
        }] }),
        "It is at https://lumen.example/manuals/3.",
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Web {
    /// What to look for, in a few words.
    query: String,
    /// How many results, up to 20.
    #[serde(default = "default_count")]
    #[schemars(range(min = 1, max = 20))]
    count: u32,
    /// The page of results, from 1.
    #[serde(default = "first_page")]
    #[schemars(range(min = 1, max = 50))]
    page: u32,
}

fn default_count() -> u32 {
    5
}

fn first_page() -> u32 {
    1
}

#[derive(Serialize, JsonSchema)]
struct Pages {
    /// Best first; empty if nothing was found.
    results: Vec<Found>,
}

fn web(arguments: &Web, engine: &Engine) -> Result<Pages, Error> {
    let query = arguments.query.trim();
    if query.is_empty() {
        return Err(Error::correctable("`query` is empty: say what to look for"));
    }
    let count = arguments.count.clamp(1, MAX_COUNT);
    let mut results = engine.search(query, count, arguments.page.max(1))?;
    // An engine whose template takes no count answers as many as it likes.
    results.truncate(count as usize);
    Ok(Pages { results })
}
