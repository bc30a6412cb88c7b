//! Documents at addresses of the web: fetched as modules would fetch them, where a grant reaches and by the checks of
//! [`Egress`].
//!
//! A person who names an address at the terminal grants it by that. Of the addresses in tasks, the operator grants some
//! (`knowledge.http`).

use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use toolhold_admission::{MemoryReservation, WorkParty, own_work};
use toolhold_policy::HttpGrant;
use toolhold_sandbox::egress::{DocumentError, Egress, FetchedDocument, SystemResolver};
use url::Url;

/// The server may send another form of the same, if it has one that is text.
const ACCEPT: &str = "text/markdown, text/plain;q=0.9, text/*;q=0.8, */*;q=0.5";

/// Why an address was not read.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    #[error("it is no address: {0}")]
    Address(#[from] url::ParseError),
    #[error(
        "plain http:// is not fetched, because what comes could be changed on its way: write https://"
    )]
    Plain,
    /// Its host is this machine or its network, and the like.
    #[error("it is not fetched: {0}")]
    Grant(String),
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error("it cannot be fetched: {0}")]
    SetUp(String),
}

impl AddressError {
    /// Whether the address was not asked, because no grant reaches it.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Grant(_) | Self::Document(DocumentError::NotGranted | DocumentError::Address)
        )
    }
}

/// Addresses whose documents may be fetched. The default has none.
#[derive(Debug, Clone, Default)]
pub struct DocumentAddresses {
    grants: Vec<HttpGrant>,
    /// Set up when the first document is fetched: it reads the system's root certificates.
    egress: Arc<OnceCell<Result<Egress, String>>>,
}

impl DocumentAddresses {
    /// Documents may be fetched from where these grants reach.
    pub fn granted(grants: Vec<HttpGrant>) -> Self {
        Self {
            grants,
            egress: Arc::default(),
        }
    }

    /// Grants what a person named: this origin, on the public internet alone.
    ///
    /// # Errors
    /// The address cannot be granted.
    pub fn named(address: &str) -> Result<Self, AddressError> {
        let url: Url = address.parse()?;
        if url.scheme() != "https" {
            return Err(AddressError::Plain);
        }
        let grant = json!({"origin": url.origin().ascii_serialization(), "methods": ["GET"]});
        let grant: Result<HttpGrant, _> = serde_json::from_value(grant);
        let grant = grant.map_err(|error| AddressError::Grant(error.to_string()))?;
        Ok(Self::granted(vec![grant]))
    }

    /// Fetches a document of at most `max` bytes within `patience`. Redirects are not followed: what is at another
    /// address is named by that.
    ///
    /// # Errors
    /// No grant reaches it, or it is not there as a whole.
    pub async fn fetch(
        &self,
        address: &str,
        max: u64,
        patience: Duration,
    ) -> Result<FetchedDocument, AddressError> {
        self.fetch_into(address, max, patience, None).await
    }

    /// Fetches a document like [`Self::fetch`]. Its bytes are counted in `kept`, if that is there, before they are kept.
    ///
    /// # Errors
    /// Also [`DocumentError::Memory`].
    pub async fn fetch_into(
        &self,
        address: &str,
        max: u64,
        patience: Duration,
        kept: Option<&mut MemoryReservation>,
    ) -> Result<FetchedDocument, AddressError> {
        let mut url: Url = address.parse()?;
        url.set_fragment(None);
        if self.grants.is_empty() {
            return Err(DocumentError::NotGranted.into());
        }
        let egress = self.egress().await.map_err(AddressError::SetUp)?;
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        Ok(egress.fetch_as(&url, ACCEPT, max, patience, kept).await?)
    }

    async fn egress(&self) -> Result<&Egress, String> {
        let set_up = || async {
            let grants = self.grants.clone();
            let set_up = move || {
                let party = WorkParty::Kind("addresses of documents");
                Egress::new(&party, grants, Vec::new(), Arc::new(SystemResolver))
            };
            let egress = own_work(set_up).await.map_err(|error| error.to_string())?;
            egress.map_err(|error| error.to_string())
        };
        let egress = self.egress.get_or_init(set_up).await;
        egress.as_ref().map_err(Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    const PATIENCE: Duration = Duration::from_mins(1);

    /// A server on this machine that answers once, with a grant to reach it.
    fn server(answer: String) -> (DocumentAddresses, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(answer.as_bytes());
        });
        let grant = json!({"origin": origin, "methods": ["GET"], "private": true});
        let grant = serde_json::from_value(grant).unwrap();
        let address = format!("{origin}/a/notes#part");
        (DocumentAddresses::granted(vec![grant]), address)
    }

    fn answer(status: &str, more: &str, body: &str) -> String {
        format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{more}\r\n{body}",
            body.len()
        )
    }

    #[tokio::test]
    async fn a_document_comes_with_its_type_and_within_its_bounds() {
        let text = answer("200 OK", "Content-Type: text/markdown\r\n", "# One");
        let (addresses, url) = server(text.clone());
        let found = addresses.fetch(&url, 5, PATIENCE).await.unwrap();
        assert_eq!(
            (&*found.bytes, &*found.media_type),
            (&b"# One"[..], "text/markdown")
        );
        let (addresses, url) = server(text);
        let error = addresses.fetch(&url, 4, PATIENCE).await.unwrap_err();
        assert!(
            matches!(
                error,
                AddressError::Document(DocumentError::TooLarge { max: 4 })
            ),
            "{error}"
        );
        let elsewhere = answer("302 Found", "Location: http://169.254.169.254/\r\n", "");
        let (addresses, url) = server(elsewhere);
        let error = addresses.fetch(&url, 100, PATIENCE).await.unwrap_err();
        assert!(
            matches!(error, AddressError::Document(DocumentError::Redirect)),
            "{error}"
        );
    }

    #[tokio::test]
    async fn addresses_without_a_grant_are_refused() {
        let granted = json!({"origin": "https://a.example", "path_prefix": "/team"});
        let granted = DocumentAddresses::granted(vec![serde_json::from_value(granted).unwrap()]);
        for (addresses, address) in [
            (&DocumentAddresses::default(), "https://a.example/team/a.md"),
            (&granted, "https://a.example/a.md"),
            (&granted, "http://a.example/team/a.md"),
            (&granted, "ftp://a.example/team/a.md"),
            (&granted, "file:///etc/passwd"),
        ] {
            let error = addresses.fetch(address, 100, PATIENCE).await.unwrap_err();
            assert!(error.is_refusal(), "{address}: {error}");
        }
    }

    #[tokio::test]
    async fn this_machine_and_its_network_are_not_reached() {
        for address in [
            "http://example.com/a.md",
            "https://127.0.0.1/a.md",
            "https://localhost/a.md",
            "https://10.0.0.1/a.md",
            "https://169.254.169.254/latest",
            "https://[::1]/a.md",
            "https://user:secret@127.0.0.1.nip.invalid/",
            "https://",
        ] {
            let fetched = match DocumentAddresses::named(address) {
                Ok(addresses) => addresses.fetch(address, 100, PATIENCE).await,
                Err(error) => Err(error),
            };
            let error = fetched.unwrap_err();
            assert!(
                !matches!(error, AddressError::Document(DocumentError::Status { .. })),
                "{address}: {error}"
            );
        }
    }
}
