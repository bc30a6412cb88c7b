//! The HTTP client of the exporters.

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use std::pin::Pin;
use std::time::Duration;
use tokio::runtime::Handle;

/// Bound of one export. A collector that takes longer must not hold up the process.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The SDK exports from threads of its own, which have no reactor; this client sends on the runtime it was made on.
#[derive(Debug, Clone)]
pub struct ExportClient {
    runtime: Handle,
    client: reqwest::Client,
}

impl ExportClient {
    /// A client that sends on the current runtime.
    pub fn new() -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder()
            .timeout(EXPORT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        Ok(Self {
            runtime: Handle::current(),
            client: client.build()?,
        })
    }
}

type ResponseFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for ExportClient {
    fn send_bytes<'a, 'b>(&'a self, request: Request<Bytes>) -> ResponseFuture<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        let client = self.client.clone();
        let sent = self
            .runtime
            .spawn(async move { client.send_bytes(request).await });
        Box::pin(async move { sent.await? })
    }
}
