//! A document that the host itself fetches, under a grant: without secrets, redirects and cookies.

use super::Egress;
use super::resolve::is_reachable;
use http::{Method, StatusCode, header};
use std::error::Error as _;
use std::time::Duration;
use thiserror::Error;
use tokio::time::timeout;
use toolhold_policy::egress::literal;
use url::Url;

/// Why a document was not fetched.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
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
    #[error("it cannot be fetched: {reason}")]
    Transport { reason: String },
}

impl Egress {
    /// Fetches at most `max` bytes within `patience`.
    ///
    /// # Errors
    /// What is at the address is not there as a whole.
    pub async fn fetch(
        &self,
        url: &Url,
        max: usize,
        patience: Duration,
    ) -> Result<Vec<u8>, DocumentError> {
        let fetched = timeout(patience, self.fetch_whole(url, max)).await;
        fetched.unwrap_or(Err(DocumentError::Timeout { patience }))
    }

    async fn fetch_whole(&self, url: &Url, max: usize) -> Result<Vec<u8>, DocumentError> {
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
            .header(header::ACCEPT, "application/json")
            .header(header::ACCEPT_ENCODING, "identity");
        let mut response = request.send().await.map_err(|error| transport(&error))?;
        match response.status() {
            StatusCode::OK => {}
            status if status.is_redirection() => return Err(DocumentError::Redirect),
            status => {
                let status = status.as_u16();
                return Err(DocumentError::Status { status });
            }
        }
        let mut whole = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| transport(&error))? {
            if whole.len() + chunk.len() > max {
                return Err(DocumentError::TooLarge { max });
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole)
    }
}

/// The innermost cause says what happened: the outer ones repeat the address.
fn transport(error: &reqwest::Error) -> DocumentError {
    let mut cause = error.source();
    let mut reason = error.to_string();
    while let Some(inner) = cause {
        reason = inner.to_string();
        cause = inner.source();
    }
    DocumentError::Transport { reason }
}
