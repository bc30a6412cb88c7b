//! A document that the host itself fetches, under a grant: without secrets, redirects and cookies.

use super::Egress;
use super::resolve::is_reachable;
use super::send::code;
use http::{Method, StatusCode, header};
use std::error::Error as _;
use std::time::Duration;
use thiserror::Error as ThisError;
use tokio::time::timeout;
use toolhold_admission::{MemoryFull, MemoryReservation};
use toolhold_policy::egress::literal;
use url::Url;
use wasmtime_wasi_http::Error;

/// Why a document was not fetched.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum DocumentError {
    #[error("no grant lets it be fetched")]
    NotGranted,
    #[error("an address with a user name or a password is not fetched")]
    Credentials,
    #[error("its host has an address that the grant does not reach")]
    Address,
    #[error("it answered with status {status}")]
    Status { status: u16 },
    #[error("it redirects, and redirects are not followed: name the address that it redirects to")]
    Redirect,
    #[error("it has more than {max} bytes")]
    TooLarge { max: usize },
    #[error("it was not there after {} ms", patience.as_millis())]
    Timeout { patience: Duration },
    #[error("its server cannot be reached: {reason}")]
    Connection { reason: String },
    #[error("it cannot be fetched: {reason}")]
    Transport { reason: String },
    #[error("there is no memory left for it")]
    Memory(MemoryFull),
}

impl DocumentError {
    /// Whether the same request may succeed soon: its server could not be reached, or said that it is busy.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Connection { .. } => true,
            Self::Status { status } => [429, 503].contains(status),
            _ => false,
        }
    }
}

/// A document as its server gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedDocument {
    pub bytes: Vec<u8>,
    /// `Content-Type`; empty if there is none.
    pub media_type: String,
}

impl Egress {
    /// Fetches JSON of at most `max` bytes within `patience`.
    ///
    /// # Errors
    /// What is at the address is not there as a whole.
    pub async fn fetch(
        &self,
        url: &Url,
        max: usize,
        patience: Duration,
    ) -> Result<Vec<u8>, DocumentError> {
        let fetched = self
            .fetch_as(url, "application/json", max, patience, None)
            .await;
        fetched.map(|document| document.bytes)
    }

    /// Fetches a document of at most `max` bytes within `patience`. `accept` names the media types that are wanted. Its
    /// bytes are counted in `kept`, if that is there, before they are kept.
    ///
    /// # Errors
    /// As [`Self::fetch`].
    pub async fn fetch_as(
        &self,
        url: &Url,
        accept: &'static str,
        max: usize,
        patience: Duration,
        kept: Option<&mut MemoryReservation>,
    ) -> Result<FetchedDocument, DocumentError> {
        let fetched = timeout(patience, self.fetch_whole(url, accept, max, kept)).await;
        fetched.unwrap_or(Err(DocumentError::Timeout { patience }))
    }

    async fn fetch_whole(
        &self,
        url: &Url,
        accept: &'static str,
        max: usize,
        mut kept: Option<&mut MemoryReservation>,
    ) -> Result<FetchedDocument, DocumentError> {
        if !url.username().is_empty() || url.password().is_some() {
            return Err(DocumentError::Credentials);
        }
        let grant = self.grant(&Method::GET, url);
        let grant = grant.ok_or(DocumentError::NotGranted)?;
        // The client connects to an address in a URL without asking its resolver.
        if let Some(address) = url.host().as_ref().and_then(literal)
            && !is_reachable(address, grant.is_private())
        {
            return Err(DocumentError::Address);
        }
        let client = self.client(grant).ok_or(DocumentError::NotGranted)?;
        let request = client
            .get(url.clone())
            .header(header::ACCEPT, accept)
            .header(header::ACCEPT_ENCODING, "identity")
            // Fetches are rare: one that is kept would be closed by the server before the next.
            .header(header::CONNECTION, "close");
        let is_tls = url.scheme() == "https";
        let sent = request.send().await;
        let mut response = sent.map_err(|error| unsent(&error, is_tls))?;
        match response.status() {
            StatusCode::OK => {}
            status if status.is_redirection() => return Err(DocumentError::Redirect),
            status => {
                let status = status.as_u16();
                return Err(DocumentError::Status { status });
            }
        }
        let media_type = response.headers().get(header::CONTENT_TYPE);
        let media_type = media_type.and_then(|it| it.to_str().ok());
        let media_type = media_type.unwrap_or_default().to_owned();
        let mut whole = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| transport(&error))? {
            let needed = whole.len() + chunk.len();
            if needed > max {
                return Err(DocumentError::TooLarge { max });
            }
            // As a vector grows, but in steps that are counted.
            if needed > whole.capacity() {
                let room = (2 * whole.capacity()).min(max).max(needed);
                if let Some(kept) = &mut kept {
                    let grown = kept.grow((room - whole.capacity()) as u64);
                    grown.map_err(DocumentError::Memory)?;
                }
                whole.reserve_exact(room - whole.len());
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(FetchedDocument {
            bytes: whole,
            media_type,
        })
    }
}

/// Why there is no answer.
fn unsent(error: &reqwest::Error, is_tls: bool) -> DocumentError {
    match code(error, is_tls) {
        Error::DestinationIpProhibited => DocumentError::Address,
        Error::DnsTimeout
        | Error::DnsError { .. }
        | Error::ConnectionRefused
        | Error::ConnectionTerminated
        | Error::ConnectionTimeout
        | Error::DestinationUnavailable => DocumentError::Connection {
            reason: innermost(error),
        },
        _ => transport(error),
    }
}

fn transport(error: &reqwest::Error) -> DocumentError {
    DocumentError::Transport {
        reason: innermost(error),
    }
}

/// The innermost cause says what happened: the outer ones repeat the address.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause = error.source();
    let mut reason = error.to_string();
    while let Some(inner) = cause {
        reason = inner.to_string();
        cause = inner.source();
    }
    reason
}
