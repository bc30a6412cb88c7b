//! The configured engine: what is asked, and how the answer is read.

use std::env;

use toolhold_guest::http::{Request, Response};
use toolhold_guest::{Error, Value};

use crate::feed;
use crate::results::{Fields, Found, in_json};
use crate::template::{Parameters, Place};

/// Bytes of an answer that are read.
const MAX_BYTES: u64 = 4 << 20;
/// Characters of an engine's answer that an error shows.
const SHOWN: usize = 200;

pub struct Engine {
    url: String,
    /// With a body it is asked by POST.
    body: Option<String>,
    /// Where the results are.
    results: Option<String>,
    fields: Fields,
}

impl Engine {
    /// The engine of the module's environment.
    ///
    /// # Errors
    /// There is none.
    pub fn configured() -> Result<Self, Error> {
        Self::of(|name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let url = variable("SEARCH_URL").ok_or_else(|| {
            Error::fatal(
                "no search engine is configured; an operator writes, under [module.search], environment = { SEARCH_URL = \
                 \"https://…?q={searchTerms}\" } and the engine's origin under http",
            )
        })?;
        Ok(Self {
            url,
            body: variable("SEARCH_BODY"),
            results: variable("SEARCH_RESULTS"),
            fields: Fields::of(variable("SEARCH_FIELDS").as_deref())?,
        })
    }

    pub fn search(&self, terms: &str, count: u32, page: u32) -> Result<Vec<Found>, Error> {
        let request = self.request(&Parameters { terms, count, page })?;
        self.read(&request.send(MAX_BYTES)?)
    }

    fn request(&self, parameters: &Parameters) -> Result<Request, Error> {
        let url = parameters.fill(&self.url, Place::Url)?;
        let accept = "application/json, application/rss+xml, application/atom+xml";
        match &self.body {
            None => Ok(Request::get(url).header("accept", accept)),
            Some(body) => Ok(Request::new("POST", url)
                .header("accept", accept)
                .header("content-type", "application/json")
                .body(parameters.fill(body, Place::Json)?)),
        }
    }

    fn read(&self, response: &Response) -> Result<Vec<Found>, Error> {
        let text = String::from_utf8_lossy(&response.body);
        let start: String = text.chars().take(SHOWN).collect();
        if !response.is_success() {
            let message = format!("the search engine answered {}: {start}", response.status);
            return Err(match response.status {
                408 | 429 | 500.. => Error::retryable(message),
                _ => Error::fatal(message),
            });
        }
        if response.is_cut {
            return Err(Error::fatal(format!(
                "the search engine answered with more than {MAX_BYTES} bytes"
            )));
        }
        if text.trim_start().starts_with('<') {
            return feed::results(&text);
        }
        let answer: Value = text.parse::<Value>().map_err(|error| {
            Error::fatal(format!(
                "the search engine's answer is neither JSON, RSS nor Atom ({error}): {start}"
            ))
        })?;
        in_json(&answer, self.results.as_deref(), &self.fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(variables: &[(&str, &str)]) -> Result<Engine, String> {
        let engine = Engine::of(|name| {
            let mut variables = variables.iter();
            let found = variables.find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        engine.map_err(|error| error.message().to_owned())
    }

    fn answered(status: u16, body: &str) -> Response {
        Response {
            status,
            headers: Vec::new(),
            body: body.as_bytes().to_vec(),
            is_cut: false,
        }
    }

    const PARAMETERS: Parameters = Parameters {
        terms: "rust wasm",
        count: 5,
        page: 1,
    };

    #[test]
    fn the_engine_is_asked_as_configured() {
        let asked = engine(&[("SEARCH_URL", "https://e.x/s?q={searchTerms}")]).unwrap();
        let request = asked.request(&PARAMETERS).unwrap();
        assert_eq!(
            (request.method.as_str(), request.url.as_str()),
            ("GET", "https://e.x/s?q=rust%20wasm")
        );
        let asked = engine(&[
            ("SEARCH_URL", "https://e.x/s"),
            ("SEARCH_BODY", r#"{"q":"{searchTerms}"}"#),
        ])
        .unwrap();
        let request = asked.request(&PARAMETERS).unwrap();
        assert_eq!(request.method, "POST");
        assert_eq!(
            request.body.as_deref(),
            Some(br#"{"q":"rust wasm"}"#.as_slice())
        );
        assert!(
            engine(&[])
                .err()
                .unwrap()
                .contains("no search engine is configured")
        );
    }

    #[test]
    fn what_an_engine_says_instead_of_results_is_told() {
        let asked = engine(&[("SEARCH_URL", "https://e.x")]).unwrap();
        for (status, body, part) in [
            (401, "no key", "answered 401: no key"),
            (429, "slow down", "answered 429: slow down"),
            (200, "hello", "neither JSON, RSS nor Atom"),
            (200, r#"{"a": 1}"#, "SEARCH_RESULTS"),
        ] {
            let error = asked.read(&answered(status, body)).err().unwrap();
            assert!(error.message().contains(part), "{}", error.message());
        }
    }
}
