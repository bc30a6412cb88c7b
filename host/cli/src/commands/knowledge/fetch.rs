//! Documents that are named by their addresses: fetched as modules would fetch them, with the public internet alone in
//! reach.

use super::walk::{UnreadFile, WalkedFile};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use toolhold_admission::{WorkParty, own_work};
use toolhold_policy::HttpGrant;
use toolhold_sandbox::egress::{DocumentError, Egress, SystemResolver};
use url::Url;

/// How long one address may take.
const PATIENCE: Duration = Duration::from_mins(1);
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

/// Whether a person named an address, and no file.
pub fn is_address(path: &Path) -> bool {
    let text = path.to_string_lossy();
    ["https://", "http://"]
        .iter()
        .any(|scheme| text.starts_with(scheme))
}

/// What is at an address, as a file that was named.
pub async fn fetch(address: &str, max: u64) -> WalkedFile {
    let fetched = fetch_at(address, max).await;
    let (content, media_type) = match fetched {
        Ok((bytes, media_type)) => (Ok(bytes), media_type),
        Err(error) => (Err(UnreadFile::Fetch(error)), String::new()),
    };
    WalkedFile {
        path: address.into(),
        is_named: true,
        content,
        media_type,
    }
}

async fn fetch_at(address: &str, max: u64) -> Result<(Vec<u8>, String), AddressError> {
    let url: Url = address.parse()?;
    if url.scheme() != "https" {
        return Err(AddressError::Plain);
    }
    let grant = json!({"origin": url.origin().ascii_serialization(), "methods": ["GET"]});
    let grant: Result<HttpGrant, _> = serde_json::from_value(grant);
    let grant = grant.map_err(|error| AddressError::Grant(error.to_string()))?;
    fetch_under(grant, url, max).await
}

/// Redirects are not followed: what is at another address is named by that.
async fn fetch_under(
    grant: HttpGrant,
    mut url: Url,
    max: u64,
) -> Result<(Vec<u8>, String), AddressError> {
    url.set_fragment(None);
    // It reads the system's root certificates.
    let set_up = move || {
        let party = WorkParty::Kind("addresses of documents");
        Egress::new(&party, vec![grant], Vec::new(), Arc::new(SystemResolver))
    };
    let egress = own_work(set_up).await;
    let egress = egress.map_err(|error| AddressError::SetUp(error.to_string()))?;
    let egress = egress.map_err(|error| AddressError::SetUp(error.to_string()))?;
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let document = egress.fetch_as(&url, ACCEPT, max, PATIENCE).await?;
    Ok((document.bytes, document.media_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    /// A server on this machine that answers once, and the grant to reach it.
    fn server(answer: String) -> (HttpGrant, Url) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(answer.as_bytes());
        });
        let grant = json!({"origin": origin, "methods": ["GET"], "private": true});
        let url = format!("{origin}/a/notes#part");
        (serde_json::from_value(grant).unwrap(), url.parse().unwrap())
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
        let (grant, url) = server(text.clone());
        let (bytes, media_type) = fetch_under(grant, url, 5).await.unwrap();
        assert_eq!((&*bytes, &*media_type), (&b"# One"[..], "text/markdown"));
        let (grant, url) = server(text);
        let error = fetch_under(grant, url, 4).await.unwrap_err();
        assert!(
            matches!(
                error,
                AddressError::Document(DocumentError::TooLarge { max: 4 })
            ),
            "{error}"
        );
        let elsewhere = answer("302 Found", "Location: http://169.254.169.254/\r\n", "");
        let (grant, url) = server(elsewhere);
        let error = fetch_under(grant, url, 100).await.unwrap_err();
        assert!(
            matches!(error, AddressError::Document(DocumentError::Redirect)),
            "{error}"
        );
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
            let error = fetch_at(address, 100).await.unwrap_err();
            assert!(
                !matches!(error, AddressError::Document(DocumentError::Status { .. })),
                "{address}: {error}"
            );
        }
    }
}
