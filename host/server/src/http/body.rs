//! Extractors for bodies, paths and queries whose errors have the API's error shape.

use crate::http::App;
use crate::http::error::ApiError;
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::Value;
use toolhold_admission::MemoryReservation;
use toolhold_json::bounded;

/// A JSON body.
#[derive(Debug)]
pub struct Body<T> {
    pub said: T,
    /// The received bytes; their digest identifies a repeated request.
    pub raw: Value,
    /// The memory of both, while the request is handled.
    _kept: MemoryReservation,
}

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &App) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let request = Request::from_parts(parts.clone(), body);
        let text = Bytes::from_request(request, state).await;
        let text = text.map_err(JsonRejection::from)?;
        // Before it is read: the value of a small text may need a lot of memory.
        let weight = bounded::weigh(&text);
        let weight = weight.map_err(|error| ApiError::payload_too_large(error.to_string()))?;
        let kept = state.dispatcher.agents().registry().kept();
        let kept = kept.reserve(weight).map_err(|full| {
            ApiError::unavailable(format!(
                "requests and calls take all {} bytes of memory that they may (modules.kept_bytes); try again in a while",
                full.ceiling
            ))
        })?;
        let request = Request::from_parts(parts, text.into());
        let Json(raw) = Json::<Value>::from_request(request, state).await?;
        let said = T::deserialize(&raw).map_err(|error| ApiError::invalid(error.to_string()))?;
        Ok(Self {
            said,
            raw,
            _kept: kept,
        })
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

#[derive(Debug)]
pub struct QueryParams<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Query(value) = Query::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

/// Reads `null` as the default: OpenAI's clients write `null` for fields that they do not set
/// (`model_dump()`).
pub fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
