//! The HTTP client of the exporters.

use crate::settings::Settings;
use http::HeaderName;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Bound of one export. A collector that takes longer must not hold up the process.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The SDK exports from threads of its own, which have no reactor; this client sends on the runtime it was made on.
#[derive(Debug, Clone)]
pub struct ExportClient {
    runtime: Handle,
    client: reqwest::Client,
    /// Names of the headers that are sent; `None`: all that the SDK gives.
    names: Option<Arc<[HeaderName]>>,
}

/// Headers that say what is sent.
const OF_CONTENT: [HeaderName; 3] = [CONTENT_TYPE, CONTENT_ENCODING, USER_AGENT];

impl ExportClient {
    /// A client that sends on the current runtime. The SDK reads the standard variables with headers in any case: what
    /// the settings do not want of them is left out here.
    pub fn new(settings: &Settings) -> Result<Self, reqwest::Error> {
        let own = settings.headers.keys();
        let own = own.filter_map(|name| HeaderName::try_from(name).ok());
        let names = own.chain(OF_CONTENT);
        let client = reqwest::Client::builder()
            .timeout(EXPORT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        Ok(Self {
            runtime: Handle::current(),
            client: client.build()?,
            names: (!settings.has_standard_headers).then(|| names.collect()),
        })
    }
}

type ResponseFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for ExportClient {
    fn send_bytes<'a, 'b>(&'a self, mut request: Request<Bytes>) -> ResponseFuture<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        if let Some(names) = &self.names {
            let headers = request.headers_mut();
            let others: Vec<HeaderName> = headers
                .keys()
                .filter(|name| !names.contains(name))
                .cloned()
                .collect();
            for name in others {
                headers.remove(name);
            }
        }
        let client = self.client.clone();
        let sent = self
            .runtime
            .spawn(async move { client.send_bytes(request).await });
        Box::pin(async move { sent.await? })
    }
}
