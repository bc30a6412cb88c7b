//! The party of a request, which has a share of the memory that is kept for clients: its key, or its address where
//! there is no key.

use axum::http::Extensions;
use std::sync::{Arc, OnceLock};
use toolhold_connections::source;

/// The name of the key that a request came with. It is among the request's extensions from the beginning and empty
/// until the key is known, so that who answers last knows it, too.
#[derive(Debug, Clone, Default)]
pub struct KeyName(Arc<OnceLock<Arc<str>>>);

impl KeyName {
    /// The name, once the key is known.
    pub fn get(&self) -> Option<&str> {
        self.0.get().map(AsRef::as_ref)
    }

    /// Notes the name; it is empty where the server needs no keys.
    pub fn note(extensions: &mut Extensions, name: &str) {
        if !name.is_empty() {
            let noted = extensions.get_or_insert_default::<Self>();
            // A request has one key.
            let _ = noted.0.set(name.into());
        }
    }
}

/// The name of the request's key, or else its address. Names of keys contain no colon.
pub fn party(extensions: &Extensions) -> Arc<str> {
    let key = extensions.get::<KeyName>().and_then(|name| name.0.get());
    match key {
        Some(name) => name.clone(),
        None => format!("from:{}", source(extensions)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sends_a_request_is_a_key_or_an_address_where_there_is_none() {
        let mut extensions = Extensions::new();
        assert_eq!(&*party(&extensions), "from:0.0.0.0");
        KeyName::note(&mut extensions, "");
        assert_eq!(&*party(&extensions), "from:0.0.0.0");
        // Whoever saw the request before its key was known knows it now.
        let before = extensions.get_or_insert_default::<KeyName>().clone();
        KeyName::note(&mut extensions, "ada");
        assert_eq!(&*party(&extensions), "ada");
        let mut earlier = Extensions::new();
        earlier.insert(before);
        assert_eq!(&*party(&earlier), "ada");
    }
}
