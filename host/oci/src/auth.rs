//! Credentials, and the challenges of registries.
//!
//! A password is for one host. A registry may name any other as the one that issues its tokens, and a
//! hostile one would name its own; so the password goes to the host that it was given for, and to a
//! token host only if the operator named that too.

use crate::error::FetchError;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use serde::Deserialize;
use std::fmt;

const HOST: &str = "TOOLHOLD_OCI_HOST";
const USERNAME: &str = "TOOLHOLD_OCI_USERNAME";
const PASSWORD: &str = "TOOLHOLD_OCI_PASSWORD";
const TOKEN_HOST: &str = "TOOLHOLD_OCI_TOKEN_HOST";

/// A user name and password, and where they may be sent. `Debug` shows neither.
#[derive(Clone)]
pub struct Credentials {
    /// `HOST[:PORT]` of the registry.
    host: String,
    /// Another host that issues its tokens.
    token_host: Option<String>,
    basic: HeaderValue,
}

/// What a registry asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Challenge {
    Basic,
    Bearer {
        /// Where tokens are issued.
        realm: Url,
        service: Option<String>,
    },
}

/// The answer of a token service; the two names are used alike.
#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("host", &self.host)
            .field("token_host", &self.token_host)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads the four variables through `variable`; none set is no credentials.
    ///
    /// # Errors
    /// A password without the host that it is for, or half of a pair.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, FetchError> {
        let set = |name| variable(name).filter(|value| !value.trim().is_empty());
        let (username, password) = match (set(USERNAME), set(PASSWORD)) {
            (None, None) => return Ok(None),
            (Some(username), Some(password)) => (username, password),
            (username, _) => {
                let missing = if username.is_none() {
                    USERNAME
                } else {
                    PASSWORD
                };
                return Err(wrong(format!(
                    "{USERNAME} and {PASSWORD} belong together; set {missing}"
                )));
            }
        };
        let host = set(HOST).ok_or_else(|| {
            wrong(format!(
                "{PASSWORD} is set, but not for which registry; name its host in {HOST}, so that the password goes nowhere else"
            ))
        })?;
        let text = format!("{}:{}", username.trim(), password.trim());
        let mut basic = HeaderValue::from_str(&format!("Basic {}", BASE64_STANDARD.encode(text)))
            .map_err(|_| wrong(format!("{USERNAME} and {PASSWORD} cannot be sent")))?;
        basic.set_sensitive(true);
        Ok(Some(Self {
            host: authority(HOST, &host)?,
            token_host: set(TOKEN_HOST)
                .map(|host| authority(TOKEN_HOST, &host))
                .transpose()?,
            basic,
        }))
    }

    /// The header, if the password was given for the registry `host` (`HOST[:PORT]`).
    pub fn basic_for(&self, host: &str) -> Option<&HeaderValue> {
        (canonical(host) == self.host).then_some(&self.basic)
    }

    /// The header for the token service of `host`.
    ///
    /// # Errors
    /// [`FetchError::TokenHost`] if the password is for `host`, but not for where it wants it sent.
    pub fn basic_for_token(
        &self,
        host: &str,
        realm: &Url,
    ) -> Result<Option<&HeaderValue>, FetchError> {
        if canonical(host) != self.host {
            return Ok(None);
        }
        let token_host = canonical(&url_authority(realm));
        if token_host == self.host || Some(&token_host) == self.token_host.as_ref() {
            return Ok(Some(&self.basic));
        }
        Err(FetchError::TokenHost {
            host: host.to_owned(),
            token_host,
        })
    }
}

fn wrong(reason: String) -> FetchError {
    FetchError::Credentials { reason }
}

/// A variable's `HOST[:PORT]`, and nothing more than that.
fn authority(variable: &str, text: &str) -> Result<String, FetchError> {
    let text = text.trim();
    if text.contains(['/', '@', '?', '#', ' ']) {
        return Err(wrong(format!(
            "{variable} must be a host, such as registry.example or registry.example:5000, without a scheme or path"
        )));
    }
    Ok(canonical(text))
}

/// Lower case, and without the port that https has anyway.
fn canonical(authority: &str) -> String {
    let lower = authority.to_ascii_lowercase();
    lower
        .strip_suffix(":443")
        .map(str::to_owned)
        .unwrap_or(lower)
}

/// `HOST[:PORT]` of a URL; default ports are left out.
pub fn url_authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

impl Challenge {
    /// What a 401 asks for; a token before a password, where there is a choice.
    ///
    /// # Errors
    /// The reason why its challenge cannot be answered.
    pub fn read(headers: &HeaderMap) -> Result<Self, String> {
        let mut basic = None;
        let values = headers.get_all(WWW_AUTHENTICATE).iter();
        for value in values.filter_map(|value| value.to_str().ok()) {
            let Ok(challenges) = http_auth::parse_challenges(value) else {
                continue;
            };
            for challenge in challenges {
                let parameter = |name: &str| {
                    let found = challenge.params.iter();
                    let mut found = found.filter(|(key, _)| key.eq_ignore_ascii_case(name));
                    found.next().map(|(_, value)| value.to_unescaped())
                };
                if challenge.scheme.eq_ignore_ascii_case("bearer") {
                    let realm = parameter("realm").ok_or("it names no realm")?;
                    let realm = Url::parse(&realm)
                        .map_err(|error| format!("its realm is not a URL: {error}"))?;
                    return Ok(Self::Bearer {
                        realm,
                        service: parameter("service"),
                    });
                }
                if challenge.scheme.eq_ignore_ascii_case("basic") {
                    basic = Some(Self::Basic);
                }
            }
        }
        basic.ok_or_else(|| "it asks for neither a bearer token nor a password".into())
    }
}

/// Where to ask for a token that lets its holder pull `repository` and nothing else, whatever scope
/// the challenge would like.
pub fn token_url(realm: &Url, service: Option<&str>, repository: &str) -> Url {
    let mut url = realm.clone();
    {
        let mut query = url.query_pairs_mut();
        if let Some(service) = service {
            query.append_pair("service", service);
        }
        query.append_pair("scope", &format!("repository:{repository}:pull"));
    }
    url
}

/// The token service's answer as the header to send.
///
/// # Errors
/// The reason why there is no token in it.
pub fn bearer(answer: &[u8]) -> Result<HeaderValue, String> {
    let answer: TokenAnswer = serde_json::from_slice(answer)
        // Its message would cite the answer, and with it the token.
        .map_err(|_| "the token service's answer is not JSON".to_owned())?;
    let token = answer
        .token
        .or(answer.access_token)
        .filter(|token| !token.is_empty())
        .ok_or("the token service's answer holds no token")?;
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| "the token holds characters that no header may carry")?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
#[path = "auth_tests.rs"]
mod tests;
