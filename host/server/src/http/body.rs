//! Extractors for bodies, paths and queries whose errors have the API's error shape.

use crate::http::App;
use crate::http::error::ApiError;
use crate::http::party::party;
use crate::http::request_memory::RequestMemory;
use crate::rights::Right;
use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::Extensions;
use axum::http::request::Parts;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _};
use serde_json::Value;
use std::collections::HashSet;
use std::str::ParseBoolError;
use toolhold_admission::{MemoryReservation, MemoryShare};
use toolhold_connections::{KeptBody, KeptBodyError, no_memory};
use toolhold_json::depth::{self, TooDeep};
use toolhold_json::{bounded, numbers};
use toolhold_text::cut;

/// A JSON body.
#[derive(Debug)]
pub struct Body<T> {
    pub said: T,
    /// The received bytes; their digest identifies a repeated request.
    pub raw: Value,
    /// The memory of both, while the request is handled. It is in that of the request, where that has one.
    _kept: Option<MemoryReservation>,
}

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &App) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let share = share(&parts.extensions, state);
        let KeptBody { bytes, mut kept } = KeptBody::read(body, state.body_bytes, &share).await?;
        if let Some(right) = parts.extensions.get::<Right>() {
            right.look().await?;
        }
        // Before it is read: the value of a small text may need a lot of memory.
        let weight = bounded::weigh(&bytes);
        let weight = weight.map_err(|error| ApiError::payload_too_large(error.to_string()))?;
        kept.grow(weight).map_err(KeptBodyError::Full)?;
        depth::check(&bytes).map_err(too_deep)?;
        numbers::check(&bytes).map_err(|error| ApiError::invalid(error.to_string()))?;
        let memory = parts.extensions.get::<RequestMemory>().cloned();
        let request = Request::from_parts(parts, bytes.into());
        let Json(raw) = Json::<Value>::from_request(request, state).await?;
        // A list would be read as the members in their order.
        if !raw.is_object() {
            let message = "the body must be a JSON object";
            return Err(ApiError::invalid(message).coded("invalid_value"));
        }
        let said = serde_path_to_error::deserialize(&raw)?;
        let kept = match memory {
            Some(memory) => {
                memory.take_over(kept);
                None
            }
            None => Some(kept),
        };
        Ok(Self {
            said,
            raw,
            _kept: kept,
        })
    }
}

fn too_deep(error: TooDeep) -> ApiError {
    let fault = match error.place.as_str() {
        "" => ApiError::invalid(error.to_string()),
        place => ApiError::member(place, &error),
    };
    fault.coded("invalid_value")
}

/// The memory that the process may keep for who sent a request: the share of its key, or of its address where there is
/// no key.
pub fn share(extensions: &Extensions, app: &App) -> MemoryShare {
    let kept = app.dispatcher.agents().registry().kept();
    kept.of(party(extensions))
}

impl From<KeptBodyError> for ApiError {
    fn from(error: KeptBodyError) -> Self {
        match error {
            KeptBodyError::TooLong { most } => {
                Self::payload_too_large(format!("the body has more than {most} bytes"))
            }
            KeptBodyError::TooSlow => Self::too_slow(),
            KeptBodyError::Full(full) => {
                let message = format!("the request was not read: {}", no_memory(full));
                if full.is_for_ever() {
                    Self::payload_too_large(message)
                } else {
                    Self::unavailable(message)
                }
            }
            KeptBodyError::BrokeOff(error) => Self::invalid(format!("the body broke off: {error}")),
        }
    }
}

/// A path parameter, such as an id.
#[derive(Debug)]
pub struct PathParam<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathParam<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(value) = Path::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

/// The parameters of a query. Each has a value and is given once; lists, such as `include[]`, may have several.
#[derive(Debug)]
pub struct QueryParams<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let query = parts.uri.query().unwrap_or_default();
        check_pairs(query)?;
        let query = serde_html_form::Deserializer::from_bytes(query.as_bytes());
        let value = serde_path_to_error::deserialize(query)
            .map_err(|error| ApiError::invalid(format!("{QUERY}: {error}")))?;
        Ok(Self(value))
    }
}

const QUERY: &str = "the query of the address";

/// Most characters of a parameter's name that are shown.
const MAX_NAME_CHARS: usize = 200;

fn check_pairs(query: &str) -> Result<(), ApiError> {
    let pairs = serde_html_form::from_str::<Vec<(String, String)>>(query);
    let pairs = pairs.map_err(|error| ApiError::invalid(format!("{QUERY}: {error}")))?;
    let mut seen = HashSet::new();
    for (name, value) in &pairs {
        let fault = if value.is_empty() {
            "has no value; give one, or leave the parameter away"
        } else if !seen.insert(name) && !name.ends_with("[]") {
            "given twice; give it once"
        } else {
            continue;
        };
        return Err(ApiError::member(&cut(name, MAX_NAME_CHARS), fault));
    }
    Ok(())
}

/// Reads a parameter of a query that is `true` or `false`. The library reads `on` as `true`, as browsers send forms.
pub fn true_or_false<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse()
        .map_err(|_: ParseBoolError| D::Error::custom("`true` or `false`"))
}

/// Reads `null` as the default: OpenAI's clients write `null` for fields that they do not set
/// (`model_dump()`).
pub fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use uuid::Uuid;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Asked {
        #[serde(default)]
        limit: u32,
        before: Option<Uuid>,
        since_ms: Option<u64>,
        text: Option<String>,
        #[serde(default, deserialize_with = "true_or_false")]
        stream: bool,
    }

    async fn asked(query: &str) -> Result<Asked, String> {
        let request = Request::builder().uri(format!("/v1/audit{query}"));
        let mut parts = request.body(()).unwrap().into_parts().0;
        let read = QueryParams::from_request_parts(&mut parts, &()).await;
        let read = read.map(|QueryParams(asked)| asked);
        read.map_err(|error| error.message().to_owned())
    }

    #[tokio::test]
    async fn queries_are_read_and_a_fault_names_the_parameter() {
        let nothing = Asked {
            limit: 0,
            before: None,
            since_ms: None,
            text: None,
            stream: false,
        };
        assert_eq!(asked("").await.as_ref(), Ok(&nothing));
        for query in ["?other=1", "?&&", "?include[]=a&include[]=b"] {
            assert_eq!(asked(query).await.as_ref(), Ok(&nothing), "{query}");
        }
        let id = Uuid::from_u128(7);
        let query = format!("?limit=3&before={id}&since_ms=9&text=a%20b%2Bc+d&stream=true");
        let all = Asked {
            limit: 3,
            before: Some(id),
            since_ms: Some(9),
            text: Some("a b+c d".to_owned()),
            stream: true,
        };
        assert_eq!(asked(&query).await, Ok(all));
        for (query, place) in [
            ("?limit=x", "limit: "),
            ("?limit=-1", "limit: "),
            ("?since_ms=1.5", "since_ms: "),
            ("?before=x", "before: "),
            ("?stream=on", "stream: `true` or `false`"),
            ("?stream=True", "stream: `true` or `false`"),
            ("?limit=", "limit: has no value"),
            ("?limit", "limit: has no value"),
            ("?since_ms=", "since_ms: has no value"),
            ("?before=", "before: has no value"),
            ("?text=", "text: has no value"),
            ("?other=", "other: has no value"),
            ("?limit=1&limit=2", "limit: given twice"),
            ("?text=a&since_ms=9&text=a", "text: given twice"),
        ] {
            let fault = asked(query).await.unwrap_err();
            assert!(fault.contains(place), "{query}: {fault}");
        }
    }
}
