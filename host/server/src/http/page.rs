//! The page at `/`, a console for people that uses only the public API, and the page at `/docs`, which shows
//! the API's description.
//!
//! The binary holds all files of both pages, and they refer to nothing outside. Their content security policy
//! allows no inline script and, in browsers with trusted types, no conversion of text to markup, so texts of
//! guests and models stay text.

use crate::http::App;
use crate::http::auth::digest;
use crate::http::error::ApiError;
use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::LazyLock;

pub fn routes() -> Router<App> {
    Router::new()
        .route(
            "/",
            get(async |headers: HeaderMap| answer(&headers, "index.html")),
        )
        .route(
            "/docs",
            get(async |headers: HeaderMap| answer(&headers, "docs.html")),
        )
        .route(
            "/page/{file}",
            get(async |headers: HeaderMap, Path(file): Path<String>| answer(&headers, &file)),
        )
}

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

struct File {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($name:literal: $kind:ident,)+) => {
        &[$(File { name: $name, kind: $kind, bytes: include_bytes!(concat!("../page/", $name)) },)+]
    };
}

const FILES: &[File] = files! {
    "index.html": HTML,
    "docs.html": HTML,
    "style.css": CSS,
    "icon.svg": SVG,
    "api.js": SCRIPT,
    "call.js": SCRIPT,
    "characters.js": SCRIPT,
    "chat.js": SCRIPT,
    "decision.js": SCRIPT,
    "diff.js": SCRIPT,
    "docs.js": SCRIPT,
    "dom.js": SCRIPT,
    "exact.js": SCRIPT,
    "form.js": SCRIPT,
    "format.js": SCRIPT,
    "graph.js": SCRIPT,
    "json.js": SCRIPT,
    "knowledge.js": SCRIPT,
    "main.js": SCRIPT,
    "modules.js": SCRIPT,
    "openapi.js": SCRIPT,
    "requests.js": SCRIPT,
    "run.js": SCRIPT,
    "runs.js": SCRIPT,
    "spoken.js": SCRIPT,
    "step.js": SCRIPT,
    "timeline.js": SCRIPT,
    "trace.js": SCRIPT,
};

/// Digest of all files together: files of different versions do not fit each other.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let all: Vec<u8> = FILES.iter().flat_map(|file| file.bytes).copied().collect();
    format!("\"{}\"", digest(&all))
});

fn answer(headers: &HeaderMap, name: &str) -> Response {
    let Some(file) = FILES.iter().find(|file| file.name == name) else {
        return ApiError::not_found("such file of the page").into_response();
    };
    let known = headers.get(header::IF_NONE_MATCH);
    let mut response = if known.is_some_and(|known| known.as_bytes() == VERSION.as_bytes()) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        file.bytes.into_response()
    };
    let own = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, file.kind),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        own.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(version) = HeaderValue::from_str(&VERSION) {
        own.insert(header::ETAG, version);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/page");

    fn text(file: &File) -> &'static str {
        std::str::from_utf8(file.bytes).unwrap()
    }

    #[test]
    fn every_file_of_the_folder_is_embedded() {
        let there: BTreeSet<String> = std::fs::read_dir(FOLDER)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let embedded = FILES.iter().map(|file| file.name.to_owned()).collect();
        assert_eq!(there, embedded);
    }

    /// Every reference in a file is to another file of the page, or is a name that browsers do not fetch.
    #[test]
    fn nothing_refers_to_anything_outside() {
        // A namespace is a name, and a fragment is a place in the same document.
        const WITHIN: [&str; 2] = ["http://www.w3.org/2000/svg", "url(#arrow)"];
        for file in FILES {
            let mut text = text(file).to_owned();
            for within in WITHIN {
                text = text.replace(within, "");
            }
            for outside in [
                "http:", "https:", "\"//", "'//", "url(", "@import", "\"data:",
            ] {
                assert!(!text.contains(outside), "{}: {outside}", file.name);
            }
            for quoted in text.split(['"', '\'', '`']) {
                let named = quoted
                    .strip_prefix("/page/")
                    .or_else(|| quoted.strip_prefix("./"))
                    .filter(|name| !name.is_empty() && !name.contains(char::is_whitespace));
                if let Some(name) = named {
                    let is_there = FILES.iter().any(|file| file.name == name);
                    assert!(is_there, "{}: {name}", file.name);
                }
            }
        }
    }

    /// A text of a guest or a model must have no way to become markup or script.
    #[test]
    fn no_text_becomes_markup() {
        for file in FILES {
            let text = text(file);
            for sink in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "createContextualFragment",
                "srcdoc",
                "javascript:",
                " style=",
                " onclick=",
                "<script>",
                "<style",
            ] {
                assert!(!text.contains(sink), "{}: {sink}", file.name);
            }
        }
    }
}
