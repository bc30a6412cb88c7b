//! Outbound HTTP of a guest: denied. A component may import `wasi:http` (some runtimes always do)
//! and still run; its requests end with `HTTP-request-denied` before any name is looked up.

use http::{Request, Response};
use std::future::Future;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

/// Refuses every request.
#[derive(Debug, Default)]
pub struct DenyAll;

type Io = Box<dyn Future<Output = Result<(), Error>> + Send>;
type Sent = Box<dyn Future<Output = Result<(Response<WasiBody>, Io), Error>> + Send>;

impl WasiHttpHooks for DenyAll {
    fn send_request(&mut self, _: Request<WasiBody>, _: Option<RequestOptions>, _: Io) -> Sent {
        Box::new(async { Err(Error::HttpRequestDenied) })
    }
}
