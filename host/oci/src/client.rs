//! The pull side of the OCI distribution specification, for one registry.
//!
//! It is our own code because every answer may be hostile, and existing clients read answers without a
//! bound. Each answer is read up to a bound. Redirects are followed here, so that the credentials never
//! leave the registry's origin and no redirect leads from HTTPS to plain HTTP.

use crate::answer;
use crate::artifact::{Descriptor, IMAGE_INDEX, IMAGE_MANIFEST};
use crate::auth::{self, Challenge, Credentials, url_authority};
use crate::digest::{Digest, DigestHasher};
use crate::error::FetchError;
use crate::reference::Reference;
use crate::settings::Network;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use std::time::Duration;

/// Bytes of a manifest: the size that the specification asks registries to support, which clients
/// rarely exceed.
pub const MAX_MANIFEST_BYTES: u64 = 4 << 20;
/// Bytes of a token service's answer. Tokens have some kilobytes.
const MAX_TOKEN_BYTES: u64 = 1 << 20;
/// Redirects of one request. A registry redirects to its storage, which may redirect to another region.
const MAX_REDIRECTS: usize = 5;
/// Requests for one document while the registry answers 429 or 503.
const MAX_TRIES: u32 = 3;
/// Longest `Retry-After` that we wait out. A longer one is an error that tells the user.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Bound of name look-up, TCP and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Requests to one registry about one repository.
#[derive(Debug)]
pub struct RegistrySession<'a> {
    client: Client,
    network: &'a Network,
    reference: &'a Reference,
    /// `https://HOST[:PORT]/v2/REPOSITORY/`
    base: Url,
    /// The header that answered the registry's challenge; absent before a challenge.
    authorization: Option<HeaderValue>,
}

/// A manifest as received.
#[derive(Debug)]
pub struct ReceivedManifest {
    pub bytes: Vec<u8>,
    pub digest: Digest,
    pub content_type: Option<String>,
}

impl<'a> RegistrySession<'a> {
    /// Opens no connection yet.
    pub fn new(network: &'a Network, reference: &'a Reference) -> Result<Self, FetchError> {
        let host = reference.authority();
        let failed = |reason| FetchError::Connect {
            host: host.clone(),
            reason,
        };
        let is_plain = network.is_insecure(&host);
        let mut builder = Client::builder()
            .user_agent(concat!("toolhold/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(network.idle_timeout)
            .https_only(!is_plain)
            .redirect(redirect::Policy::none());
        if is_plain {
            // Plain HTTP must not pass through a proxy.
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| failed(error.to_string()))?;
        let scheme = if is_plain { "http" } else { "https" };
        let base = format!("{scheme}://{host}/v2/{}/", reference.repository());
        let base = Url::parse(&base).map_err(|error| failed(error.to_string()))?;
        Ok(Self {
            client,
            network,
            reference,
            base,
            authorization: None,
        })
    }

    /// The manifest that a tag means now, or the one of a digest; its content is checked against the
    /// digest, and what the registry says that it is.
    pub async fn manifest(
        &mut self,
        digest: Option<Digest>,
    ) -> Result<ReceivedManifest, FetchError> {
        let name = digest.map_or_else(|| self.reference.tag().to_owned(), |d| d.to_string());
        let what = format!("the manifest {name} of {}", self.reference.repository());
        let accept = format!("{IMAGE_MANIFEST}, {IMAGE_INDEX}");
        let response = self
            .get(&format!("manifests/{name}"), &accept, &what)
            .await?;
        let content_type = answer::header(response.headers(), CONTENT_TYPE.as_str()).map(|value| {
            value
                .split(';')
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned()
        });
        let said = answer::header(response.headers(), "docker-content-digest")
            .and_then(|value| value.parse::<Digest>().ok());
        let bytes = answer::body(self.network, response, MAX_MANIFEST_BYTES, &what).await?;
        let actual = Digest::of(&bytes);
        for expected in [digest, said].into_iter().flatten() {
            if expected != actual {
                return Err(FetchError::Digest {
                    what,
                    expected,
                    actual,
                });
            }
        }
        Ok(ReceivedManifest {
            bytes,
            digest: actual,
            content_type,
        })
    }

    /// A layer: exactly as many bytes as were promised, which hash to its digest. The caller has
    /// checked that so many are wanted.
    pub async fn blob(&mut self, blob: &Descriptor) -> Result<Vec<u8>, FetchError> {
        let what = format!(
            "the layer {} of {}",
            blob.digest,
            self.reference.repository()
        );
        let size = |size| FetchError::Size {
            what: what.clone(),
            size,
            promised: blob.size,
        };
        let path = format!("blobs/{}", blob.digest);
        let mut response = self
            .get(&path, "application/octet-stream, */*", &what)
            .await?;
        if let Some(length) = response.content_length().filter(|n| *n != blob.size) {
            return Err(size(length));
        }
        // Grows with what comes: a promise alone takes no memory.
        let (mut bytes, mut digest) = (Vec::new(), DigestHasher::default());
        while let Some(chunk) = answer::chunk(self.network, &mut response).await? {
            let length = (bytes.len() + chunk.len()) as u64;
            if length > blob.size {
                return Err(size(length));
            }
            digest.update(&chunk);
            bytes.extend_from_slice(&chunk);
        }
        if (bytes.len() as u64) < blob.size {
            return Err(size(bytes.len() as u64));
        }
        let actual = digest.finish();
        if actual != blob.digest {
            return Err(FetchError::Digest {
                what,
                expected: blob.digest,
                actual,
            });
        }
        Ok(bytes)
    }

    /// Requests `path` until it succeeds: answers one challenge, and waits when the registry is busy.
    async fn get(&mut self, path: &str, accept: &str, what: &str) -> Result<Response, FetchError> {
        let url = self.base.join(path).map_err(|error| FetchError::Connect {
            host: url_authority(&self.base),
            reason: error.to_string(),
        })?;
        let mut tries = 0;
        let mut has_authorized = false;
        loop {
            let (response, is_home) = self.follow(url.clone(), accept).await?;
            match response.status() {
                StatusCode::OK => return Ok(response),
                // A challenge from another host could steal the registry's credentials.
                StatusCode::UNAUTHORIZED if is_home && !has_authorized => {
                    has_authorized = true;
                    self.authorization = Some(self.authorize(&response).await?);
                }
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                    tries += 1;
                    self.wait(&response, tries).await?;
                }
                _ => return Err(self.refusal(response, is_home, what).await),
            }
        }
    }

    /// The first answer that is no redirect, and whether the registry itself sent it.
    async fn follow(&self, url: Url, accept: &str) -> Result<(Response, bool), FetchError> {
        let (mut url, mut is_home) = (url, true);
        for _ in 0..=MAX_REDIRECTS {
            let mut request = self.client.get(url.clone()).header(ACCEPT, accept);
            if let Some(authorization) = self.authorization.as_ref().filter(|_| is_home) {
                request = request.header(AUTHORIZATION, authorization);
            }
            let response = request
                .send()
                .await
                .map_err(|e| answer::transport_error(self.network, &url, e))?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok((response, is_home));
            }
            let next = answer::header(response.headers(), LOCATION.as_str())
                .and_then(|location| url.join(location).ok());
            let next = next.ok_or_else(|| self.astray("nowhere", "without a usable address"))?;
            self.check(&next)?;
            // Once a redirect has left the registry's origin, it stays foreign: the other host chose the
            // next address, even if that is the registry's.
            is_home = is_home && next.origin() == self.base.origin();
            url = next;
        }
        Err(self.astray(&url_authority(&url), "and on, more often than is followed"))
    }

    /// Refuses unsafe redirect targets: a user name in the address, a scheme other than HTTP(S), or plain
    /// HTTP for a registry that we reach over HTTPS (it could reach services of this machine, and could
    /// be read on the way).
    fn check(&self, url: &Url) -> Result<(), FetchError> {
        let target = url_authority(url);
        let is_plain = self.base.scheme() == "http" && self.network.is_insecure(&target);
        let reason = match url.scheme() {
            _ if !url.username().is_empty() || url.password().is_some() => {
                "with a user name in the address"
            }
            "https" => return Ok(()),
            "http" if is_plain => return Ok(()),
            "http" => {
                "over plain HTTP, which is only for registries on this machine or in oci.insecure"
            }
            _ => "with a scheme that is not HTTP",
        };
        Err(self.astray(&target, reason))
    }

    /// Answers a challenge with the password, or with a token from the token service. The token service
    /// gets the password if there is one for it, else an anonymous request.
    async fn authorize(&self, response: &Response) -> Result<HeaderValue, FetchError> {
        let host = self.reference.authority();
        let challenged = |reason| FetchError::Challenge {
            host: host.clone(),
            reason,
        };
        let credentials = self.network.credentials.as_ref();
        let (realm, service) = match Challenge::read(response.headers()).map_err(challenged)? {
            Challenge::Bearer { realm, service } => (realm, service),
            Challenge::Basic => {
                let basic = credentials.and_then(|own| own.basic_for(&host));
                return basic
                    .cloned()
                    .ok_or_else(|| self.unauthorized(String::new()));
            }
        };
        self.check(&realm)?;
        let basic = match credentials {
            Some(own) => own.basic_for_token(&host, &realm)?,
            None => None,
        };
        let url = auth::token_url(&realm, service.as_deref(), self.reference.repository());
        let mut request = self.client.get(url.clone());
        if let Some(basic) = basic {
            request = request.header(AUTHORIZATION, basic);
        }
        // A redirect of the token service is not followed: the request holds the password.
        let response = request
            .send()
            .await
            .map_err(|e| answer::transport_error(self.network, &url, e))?;
        match response.status() {
            StatusCode::OK => {
                let answer =
                    answer::body(self.network, response, MAX_TOKEN_BYTES, "the token").await?;
                auth::bearer(&answer).map_err(challenged)
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let said = answer::error_text(self.network, response).await;
                Err(self.unauthorized(said))
            }
            _ => Err(self.refusal(response, false, "a token").await),
        }
    }

    /// Waits for the registry's `Retry-After` (one second without one).
    ///
    /// # Errors
    /// The wait is longer than [`MAX_WAIT`], or `tries` reached [`MAX_TRIES`].
    async fn wait(&self, response: &Response, tries: u32) -> Result<(), FetchError> {
        let asked =
            answer::header(response.headers(), RETRY_AFTER.as_str()).and_then(answer::retry_after);
        let wait = asked.unwrap_or(Duration::from_secs(1));
        if wait > MAX_WAIT || tries >= MAX_TRIES {
            return Err(FetchError::Busy {
                host: self.reference.authority(),
                wait: asked.map_or_else(String::new, |wait| format!(" for {} s", wait.as_secs())),
            });
        }
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// The error for an answer that is no success.
    async fn refusal(&self, response: Response, is_home: bool, what: &str) -> FetchError {
        let (host, what) = (url_authority(response.url()), what.to_owned());
        let status = response.status();
        let said = answer::error_text(self.network, response).await;
        match status {
            StatusCode::NOT_FOUND if is_home => FetchError::NotFound { host, what, said },
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if is_home => self.unauthorized(said),
            _ => FetchError::Status {
                host,
                what,
                status: status.as_u16(),
                said,
            },
        }
    }

    fn unauthorized(&self, said: String) -> FetchError {
        let host = self.reference.authority();
        let has_own = |own: &Credentials| own.basic_for(&host).is_some();
        let advice = if self.network.credentials.as_ref().is_some_and(has_own) {
            "TOOLHOLD_OCI_USERNAME and TOOLHOLD_OCI_PASSWORD were not enough; check them, and that they may pull".into()
        } else {
            format!("set TOOLHOLD_OCI_HOST={host}, TOOLHOLD_OCI_USERNAME and TOOLHOLD_OCI_PASSWORD")
        };
        FetchError::Unauthorized { host, said, advice }
    }

    fn astray(&self, target: &str, reason: &str) -> FetchError {
        FetchError::Redirect {
            host: self.reference.authority(),
            target: target.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(insecure: &[&str]) -> Network {
        Network {
            insecure: insecure.iter().map(|s| (*s).to_owned()).collect(),
            idle_timeout: Duration::from_secs(1),
            credentials: None,
        }
    }

    #[test]
    fn plain_http_is_for_this_machine_and_for_what_was_named() {
        let network = network(&["near.example", "Other.example:5000"]);
        for (authority, expected) in [
            ("localhost:5000", "http"),
            ("127.0.0.1:5000", "http"),
            ("[::1]:5000", "http"),
            ("[::1]", "http"),
            ("near.example", "http"),
            ("near.example:1234", "http"),
            ("other.example:5000", "http"),
            ("other.example", "https"),
            ("registry.example", "https"),
            ("localhost.example", "https"),
            ("10.0.0.1:5000", "https"),
        ] {
            let reference = format!("oci://{authority}/a/b").parse().unwrap();
            let session = RegistrySession::new(&network, &reference).unwrap();
            let expected = format!("{expected}://{authority}/v2/a/b/");
            assert_eq!(session.base.as_str(), expected);
        }
    }

    #[tokio::test]
    async fn a_registry_that_sends_nothing_is_left_in_time() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let network = Network {
            idle_timeout: Duration::from_millis(50),
            ..network(&[])
        };
        let reference = format!("oci://127.0.0.1:{port}/a/b:1").parse().unwrap();
        let mut session = RegistrySession::new(&network, &reference).unwrap();
        // The connection is made by the system; nothing accepts it.
        let error = session.manifest(None).await.unwrap_err();
        assert!(matches!(error, FetchError::Idle { .. }), "{error:?}");
        assert!(error.to_string().contains("nothing for 50 ms"), "{error}");
    }

    #[test]
    fn redirects_lead_neither_from_https_to_http_nor_to_loopback() {
        let network = network(&[]);
        let far = "oci://registry.example/a".parse().unwrap();
        let far = RegistrySession::new(&network, &far).unwrap();
        let near = "oci://localhost:5000/a".parse().unwrap();
        let near = RegistrySession::new(&network, &near).unwrap();
        for (session, target, allowed) in [
            (&far, "https://storage.example/x?signature=s", true),
            (&far, "http://storage.example/x", false),
            (&far, "http://127.0.0.1:8000/x", false),
            (&far, "https://me:secret@storage.example/x", false),
            (&far, "file:///etc/passwd", false),
            (&near, "http://127.0.0.1:6000/x", true),
            (&near, "http://storage.example/x", false),
            (&near, "https://storage.example/x", true),
        ] {
            let checked = session.check(&Url::parse(target).unwrap());
            assert_eq!(checked.is_ok(), allowed, "{target}");
            if let Err(error) = checked {
                assert!(!error.to_string().contains("secret"), "{error}");
            }
        }
    }
}
