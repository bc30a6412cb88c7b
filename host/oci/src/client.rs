//! A conversation with one registry: the pull side of the distribution specification.
//!
//! Written over the host's own HTTP client rather than taken from a crate, because every answer may
//! come from an enemy: each is read up to a bound, redirects are followed by hand, so that nothing
//! that proves who asks leaves the registry's own origin, and plain HTTP is not slipped into.

use super::answer;
use super::artifact::{Descriptor, IMAGE_INDEX, IMAGE_MANIFEST};
use super::auth::{self, Challenge, Credentials, url_authority};
use super::digest::{Digest, Running};
use super::error::FetchError;
use super::reference::{Reference, is_loopback};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use std::time::Duration;

/// What the specification asks registries to take at least, and clients rarely go above.
pub const MAX_MANIFEST: u64 = 4 << 20;
/// Tokens have some kilobytes.
const MAX_TOKEN: u64 = 1 << 20;
/// A registry sends to its storage, which may send to another region.
const MAX_REDIRECTS: usize = 5;
/// Requests for one thing, where the registry asks to come back later.
const MAX_TRIES: u32 = 3;
/// Longer than this nobody waits without being told.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Name look-up, TCP and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How registries are talked to.
#[derive(Debug, Clone)]
pub struct Network {
    /// `HOST` or `HOST:PORT` that are reached over plain HTTP although they are not this machine.
    pub insecure: Vec<String>,
    /// Silence that is not waited out.
    pub idle_timeout: Duration,
    pub credentials: Option<Credentials>,
}

impl Network {
    /// Whether `HOST[:PORT]` is asked over plain HTTP: this machine, or one that the operator named.
    fn is_insecure(&self, authority: &str) -> bool {
        let host = match authority.rfind(':') {
            Some(colon) if !authority[colon..].contains(']') => &authority[..colon],
            _ => authority,
        };
        let named =
            |entry: &String| [authority, host].contains(&entry.to_ascii_lowercase().as_str());
        is_loopback(host) || self.insecure.iter().any(named)
    }
}

/// Asks one registry about one repository.
#[derive(Debug)]
pub struct Session<'a> {
    client: Client,
    network: &'a Network,
    reference: &'a Reference,
    /// `https://HOST[:PORT]/v2/REPOSITORY/`
    base: Url,
    /// What the registry gave us or asked for, once it has.
    authorization: Option<HeaderValue>,
}

/// A manifest as it came.
#[derive(Debug)]
pub struct Received {
    pub bytes: Vec<u8>,
    pub digest: Digest,
    pub content_type: Option<String>,
}

impl<'a> Session<'a> {
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
            // What needs no encryption because it stays near must not go through somebody else.
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
    pub async fn manifest(&mut self, digest: Option<Digest>) -> Result<Received, FetchError> {
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
        let bytes = answer::body(self.network, response, MAX_MANIFEST, &what).await?;
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
        Ok(Received {
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
        let (mut bytes, mut digest) = (Vec::new(), Running::default());
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

    /// A successful answer; says who asks when the registry wants to know, comes back when it is busy.
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
                // Asked by anybody else, it would be a way to get what is the registry's alone.
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

    /// The first answer that is no redirect, and whether it is the registry's own.
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
                .map_err(|e| answer::broken(self.network, &url, e))?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok((response, is_home));
            }
            let next = answer::header(response.headers(), LOCATION.as_str())
                .and_then(|location| url.join(location).ok());
            let next = next.ok_or_else(|| self.astray("nowhere", "without a usable address"))?;
            self.check(&next)?;
            // Once away, always away: what another host sends back to the registry it has chosen.
            is_home = is_home && next.origin() == self.base.origin();
            url = next;
        }
        Err(self.astray(&url_authority(&url), "and on, more often than is followed"))
    }

    /// Refuses addresses that nobody should be led to: over plain HTTP that the registry itself is
    /// not asked over, where anybody on the way, or any service on this machine, would be asked.
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

    /// Answers a challenge: with the password, or with a token, for which a token service is asked
    /// with the password if there is one, else as nobody in particular.
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
        // A token service that redirects is not followed: it holds the password.
        let response = request
            .send()
            .await
            .map_err(|e| answer::broken(self.network, &url, e))?;
        match response.status() {
            StatusCode::OK => {
                let answer = answer::body(self.network, response, MAX_TOKEN, "the token").await?;
                auth::bearer(&answer).map_err(challenged)
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let said = answer::said(self.network, response).await;
                Err(self.unauthorized(said))
            }
            _ => Err(self.refusal(response, false, "a token").await),
        }
    }

    /// Waits as long as the registry asks for, if that is not too long and not too often.
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

    /// What an answer that is no success means.
    async fn refusal(&self, response: Response, is_home: bool, what: &str) -> FetchError {
        let (host, what) = (url_authority(response.url()), what.to_owned());
        let status = response.status();
        let said = answer::said(self.network, response).await;
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
            let session = Session::new(&network, &reference).unwrap();
            let expected = format!("{expected}://{authority}/v2/a/b/");
            assert_eq!(session.base.as_str(), expected);
        }
    }

    #[test]
    fn nobody_is_led_from_https_to_http_or_to_this_machine() {
        let network = network(&[]);
        let far = "oci://registry.example/a".parse().unwrap();
        let far = Session::new(&network, &far).unwrap();
        let near = "oci://localhost:5000/a".parse().unwrap();
        let near = Session::new(&network, &near).unwrap();
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
