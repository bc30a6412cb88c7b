//! Bodies, paths and queries whose faults are answered as all others are.

use crate::http::error::ApiError;
use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::Value;

/// A JSON body.
#[derive(Debug)]
pub struct Body<T> {
    pub said: T,
    /// As it came: by this a request that is repeated is recognised.
    pub raw: Value,
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let Json(raw) = Json::<Value>::from_request(request, state).await?;
        let said = T::deserialize(&raw).map_err(|error| ApiError::invalid(error.to_string()))?;
        Ok(Self { said, raw })
    }
}

/// A part of the path, such as an id.
#[derive(Debug)]
pub struct Place<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Place<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(value) = Path::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

#[derive(Debug)]
pub struct Asked<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Query(value) = Query::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

/// For members that OpenAI's clients write as `null` where they have nothing to say (`model_dump()` does): that
/// is as good as nothing.
pub fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
