//! One request over wasi:http, from its parts to the last byte of the answer.

use crate::bindings::wasi::http::outgoing_handler::handle;
use crate::bindings::wasi::http::types::{
    Fields, FutureIncomingResponse, IncomingBody, IncomingResponse, Method, OutgoingBody,
    OutgoingRequest, Scheme,
};
use crate::bindings::wasi::io::streams::StreamError;

pub struct Request {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<String>,
}

impl Request {
    pub fn get(url: &str) -> Self {
        Self {
            method: "GET".into(),
            url: url.into(),
            headers: Vec::new(),
            body: None,
        }
    }
}

/// Hands the request to the host. What is wrong with it is the error, in words.
pub fn start(request: &Request) -> Result<FutureIncomingResponse, String> {
    let outgoing = outgoing(request)?;
    let body = match &request.body {
        Some(text) => Some((outgoing.body().map_err(|()| "bad body")?, text)),
        None => None,
    };
    let pending = handle(outgoing, None).map_err(|error| format!("{error:?}"))?;
    if let Some((body, text)) = body {
        // What the host refuses of the body, it says in the response's place.
        let _ = write(body, text.as_bytes());
    }
    Ok(pending)
}

/// Hands the request to the host while its body is open. The text of the body is not looked at.
pub fn start_open(request: &Request) -> Result<(OutgoingBody, FutureIncomingResponse), String> {
    let outgoing = outgoing(request)?;
    let body = outgoing.body().map_err(|()| "bad body")?;
    let pending = handle(outgoing, None).map_err(|error| format!("{error:?}"))?;
    Ok((body, pending))
}

fn outgoing(request: &Request) -> Result<OutgoingRequest, String> {
    let headers: Vec<_> = request
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), value.clone().into_bytes()))
        .collect();
    let headers = Fields::from_list(&headers).map_err(|error| format!("headers: {error:?}"))?;
    let (scheme, rest) = request
        .url
        .split_once("://")
        .ok_or("the URL has no scheme")?;
    let split = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(split);
    let scheme = match scheme {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        other => Scheme::Other(other.into()),
    };
    let outgoing = OutgoingRequest::new(headers);
    let set = |result: Result<(), ()>, what: &str| result.map_err(|()| format!("bad {what}"));
    set(outgoing.set_method(&method(&request.method)), "method")?;
    set(outgoing.set_scheme(Some(&scheme)), "scheme")?;
    set(outgoing.set_authority(Some(authority)), "authority")?;
    set(outgoing.set_path_with_query(Some(path)), "path")?;
    Ok(outgoing)
}

fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        other => Method::Other(other.into()),
    }
}

fn write(body: OutgoingBody, bytes: &[u8]) -> Result<(), String> {
    let stream = body.write().map_err(|()| "no stream")?;
    for chunk in bytes.chunks(4096) {
        stream
            .blocking_write_and_flush(chunk)
            .map_err(|error| error.to_string())?;
    }
    drop(stream);
    OutgoingBody::finish(body, None).map_err(|error| format!("{error:?}"))
}

/// Waits for the response's head.
pub fn finish(pending: &FutureIncomingResponse) -> Result<IncomingResponse, String> {
    pending.subscribe().block();
    match pending.get() {
        Some(Ok(result)) => result.map_err(|error| format!("{error:?}")),
        _ => Err("the response was taken or never came".into()),
    }
}

/// Reads the body to its end; what follows it are the trailers.
pub fn read(
    response: &IncomingResponse,
    mut each: impl FnMut(&[u8]),
) -> Result<Vec<(String, String)>, String> {
    let body = response.consume().map_err(|()| "the body was taken")?;
    let stream = body.stream().map_err(|()| "the stream was taken")?;
    loop {
        match stream.blocking_read(64 << 10) {
            Ok(chunk) => each(&chunk),
            Err(StreamError::Closed) => break,
            Err(StreamError::LastOperationFailed(error)) => return Err(error.to_debug_string()),
        }
    }
    drop(stream);
    let trailers = IncomingBody::finish(body);
    trailers.subscribe().block();
    match trailers.get() {
        Some(Ok(Ok(Some(fields)))) => Ok(pairs(&fields)),
        Some(Ok(Ok(None))) => Ok(Vec::new()),
        other => Err(format!("trailers: {other:?}")),
    }
}

pub fn pairs(fields: &Fields) -> Vec<(String, String)> {
    let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
    let entries = fields.entries();
    entries
        .into_iter()
        .map(|(name, value)| (name, text(value)))
        .collect()
}
