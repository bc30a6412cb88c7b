//! What follows from a redirect, as browsers do it (Fetch, section 4.4), with two rules more:
//! a credential stays with its origin, and a secret never travels in a `Location`.

use super::send::{OutboundHop, Payload};
use http::{Method, header};
use toolhold_policy::redact::Redactor;
use url::Url;
use wasmtime_wasi_http::Error;

/// What to do with a redirect.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RedirectAction {
    /// Nothing: the guest is handed it.
    Stay,
    /// The hop was changed; check and send it again.
    Go,
}

/// Turns `hop` into the one that `response` asks for.
pub(super) fn next(
    hop: &mut OutboundHop,
    response: &reqwest::Response,
    redactor: &Redactor,
) -> Result<RedirectAction, Error> {
    let location = response
        .headers()
        .get(header::LOCATION)
        .and_then(|value| value.to_str().ok());
    let Some(location) = location.filter(|text| !redactor.finds(text.as_bytes())) else {
        return Ok(RedirectAction::Stay);
    };
    let mut url = hop
        .url
        .join(location)
        .map_err(|_| Error::HttpRequestUriInvalid)?;
    url.set_fragment(None);
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::HttpRequestUriInvalid);
    }
    // A secret may stand there in pieces of our own making, such as in a relative path.
    if redactor.finds(url.as_str().as_bytes()) {
        return Ok(RedirectAction::Stay);
    }
    turn(hop, response.status().as_u16(), url);
    Ok(RedirectAction::Go)
}

fn turn(hop: &mut OutboundHop, status: u16, url: Url) {
    let becomes_get = match status {
        301 | 302 => hop.method == Method::POST,
        303 => hop.method != Method::GET && hop.method != Method::HEAD,
        _ => false,
    };
    if becomes_get {
        hop.method = Method::GET;
        hop.body = Payload::Empty;
        for name in [
            header::CONTENT_ENCODING,
            header::CONTENT_LANGUAGE,
            header::CONTENT_LENGTH,
            header::CONTENT_LOCATION,
            header::CONTENT_TYPE,
        ] {
            hop.headers.remove(name);
        }
    }
    if url.origin() != hop.url.origin() {
        for name in [header::AUTHORIZATION, header::COOKIE] {
            hop.headers.remove(name);
        }
    }
    hop.url = url;
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;

    fn turned(method: Method, status: u16, to: &str) -> OutboundHop {
        let mut headers = HeaderMap::new();
        for name in ["authorization", "cookie", "content-type", "accept"] {
            headers.insert(name, "x".parse().unwrap());
        }
        let mut hop = OutboundHop {
            method,
            url: Url::parse("https://a.example/x").unwrap(),
            headers,
            body: Payload::Whole("body".into()),
        };
        turn(&mut hop, status, Url::parse(to).unwrap());
        hop
    }

    #[test]
    fn methods_and_bodies_change_as_in_browsers() {
        for (method, status, becomes, keeps_body) in [
            (Method::POST, 301, Method::GET, false),
            (Method::POST, 302, Method::GET, false),
            (Method::PUT, 302, Method::PUT, true),
            (Method::PUT, 303, Method::GET, false),
            (Method::HEAD, 303, Method::HEAD, true),
            (Method::POST, 307, Method::POST, true),
            (Method::DELETE, 308, Method::DELETE, true),
        ] {
            let hop = turned(method.clone(), status, "https://a.example/y");
            assert_eq!(hop.method, becomes, "{method} {status}");
            assert_eq!(
                matches!(hop.body, Payload::Whole(_)),
                keeps_body,
                "{method} {status}"
            );
            assert_eq!(hop.headers.contains_key("content-type"), keeps_body);
            assert!(hop.headers.contains_key("authorization"));
        }
    }

    #[test]
    fn credentials_stay_with_their_origin() {
        for to in [
            "https://b.example/",
            "http://a.example/",
            "https://a.example:8443/",
        ] {
            let hop = turned(Method::GET, 302, to);
            assert!(!hop.headers.contains_key("authorization"), "{to}");
            assert!(!hop.headers.contains_key("cookie"), "{to}");
            assert!(hop.headers.contains_key("accept"), "{to}");
        }
    }
}
