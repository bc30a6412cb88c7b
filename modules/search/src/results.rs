//! Results in an engine's JSON: where the configuration says that they are, else where well-known engines have them.

use schemars::JsonSchema;
use serde::Serialize;
use toolhold_guest::{Error, Value};

/// Characters of a title, and of a text.
const MAX_TITLE: usize = 500;
const MAX_TEXT: usize = 1_000;
/// A page whose address is longer is left out: a part of an address leads elsewhere.
const MAX_URL: usize = 2_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Found {
    pub title: String,
    pub url: String,
    /// What the page says of it, shortened by the engine.
    pub snippet: String,
}

impl Found {
    /// Absent without an address that can be followed.
    pub fn new(title: &str, url: &str, snippet: &str) -> Option<Self> {
        let url = url.trim();
        let has_address = !url.is_empty() && url.len() <= MAX_URL;
        has_address.then(|| Self {
            title: shortened(&plain(title), MAX_TITLE),
            url: url.to_owned(),
            snippet: shortened(&plain(snippet), MAX_TEXT),
        })
    }
}

/// Where title, address and text are in a result: JSON Pointers, of which the first that is there counts.
pub struct Fields {
    title: Vec<String>,
    url: Vec<String>,
    snippet: Vec<String>,
}

/// Where engines have their results: Brave, SearXNG and Tavily, Serper, Google and Kagi, Bing, DuckDuckGo.
const RESULTS: [&str; 7] = [
    "/web/results",
    "/results",
    "/organic",
    "/items",
    "/data",
    "/webPages/value",
    "/RelatedTopics",
];

impl Fields {
    /// Three pointers with spaces between them, or what is usual.
    ///
    /// # Errors
    /// There are not three.
    pub fn of(configured: Option<&str>) -> Result<Self, Error> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let Some(configured) = configured else {
            return Ok(Self {
                title: owned(&["/title", "/name", "/heading"]),
                url: owned(&["/url", "/link", "/href", "/FirstURL"]),
                snippet: owned(&["/description", "/snippet", "/content", "/body", "/Text"]),
            });
        };
        let pointers: Vec<&str> = configured.split_whitespace().collect();
        let [title, url, snippet] = pointers[..] else {
            return Err(Error::fatal(format!(
                "SEARCH_FIELDS is {configured:?}, and must be three JSON Pointers: /title /url /text"
            )));
        };
        Ok(Self {
            title: owned(&[title]),
            url: owned(&[url]),
            snippet: owned(&[snippet]),
        })
    }
}

/// The results in an engine's answer.
///
/// # Errors
/// There is no list where it was looked for.
pub fn in_json(answer: &Value, at: Option<&str>, fields: &Fields) -> Result<Vec<Found>, Error> {
    let list = match at {
        Some(pointer) => answer.pointer(pointer),
        None if answer.is_array() => Some(answer),
        None => RESULTS
            .iter()
            .find_map(|pointer| answer.pointer(pointer).filter(|it| it.is_array())),
    };
    let Some(list) = list.and_then(Value::as_array) else {
        let members: Vec<&str> = answer
            .as_object()
            .map(|members| members.keys().take(20).map(String::as_str).collect())
            .unwrap_or_default();
        return Err(Error::fatal(format!(
            "there is no list of results at {} in the search engine's answer, which has the members {}; an operator says \
             where it is with SEARCH_RESULTS",
            at.unwrap_or("any of the usual places"),
            members.join(", ")
        )));
    };
    let field = |result: &Value, pointers: &[String]| {
        let mut pointers = pointers.iter();
        let found =
            pointers.find_map(|pointer| result.pointer(pointer)?.as_str().map(str::to_owned));
        found.unwrap_or_default()
    };
    let results = list.iter().filter_map(|result| {
        Found::new(
            &field(result, &fields.title),
            &field(result, &fields.url),
            &field(result, &fields.snippet),
        )
    });
    Ok(results.collect())
}

/// A text without the tags that engines mark hits with.
fn plain(text: &str) -> String {
    let mut plain = text.to_owned();
    for tag in ["strong", "b", "em"] {
        plain = plain
            .replace(&format!("<{tag}>"), "")
            .replace(&format!("</{tag}>"), "");
    }
    plain
}

fn shortened(text: &str, most: usize) -> String {
    let text = text.trim();
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_guest::json;

    fn found(answer: &Value, at: Option<&str>, fields: Option<&str>) -> Result<Vec<Found>, String> {
        let fields = Fields::of(fields).map_err(|error| error.message().to_owned())?;
        in_json(answer, at, &fields).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn results_are_where_engines_have_them() {
        let one = || Ok(Vec::from_iter(Found::new("T", "https://a.example", "S")));
        for answer in [
            json!({"web": {"results": [{"title": "T", "url": "https://a.example", "description": "<strong>S</strong>"}]}}),
            json!({"query": "q", "results": [{"title": "T", "url": "https://a.example", "content": "S"}]}),
            json!({"organic": [{"title": "T", "link": "https://a.example", "snippet": "S"}]}),
            json!({"items": [{"title": "T", "link": "https://a.example", "snippet": " S "}]}),
            json!({"webPages": {"value": [{"name": "T", "url": "https://a.example", "snippet": "S"}]}}),
            json!([{"title": "T", "url": "https://a.example", "body": "S"}, {"title": "no address"}]),
        ] {
            assert_eq!(found(&answer, None, None), one(), "{answer}");
        }
        let own =
            json!({"hits": {"list": [{"doc": {"t": "T", "u": "https://a.example"}, "s": "S"}]}});
        assert_eq!(
            found(&own, Some("/hits/list"), Some("/doc/t /doc/u /s")),
            one()
        );
        assert_eq!(found(&json!({"results": []}), None, None), Ok(Vec::new()));
    }

    #[test]
    fn a_configuration_that_does_not_fit_is_told() {
        let error = found(&json!({"hits": [], "took": 1}), None, None).unwrap_err();
        assert!(
            error.contains("members hits, took") && error.contains("SEARCH_RESULTS"),
            "{error}"
        );
        assert!(
            found(&json!([]), None, Some("/a /b"))
                .unwrap_err()
                .contains("three JSON Pointers")
        );
    }

    #[test]
    fn texts_are_bounded() {
        let long = "x".repeat(5_000);
        let found = Found::new(&long, "https://a.example", &long).unwrap();
        assert_eq!(found.title.chars().count(), MAX_TITLE + 1);
        assert_eq!(found.snippet.chars().count(), MAX_TEXT + 1);
        assert_eq!(
            Found::new("T", &format!("https://a.example/{long}"), "S"),
            None
        );
    }
}
