//! Headers: their size on the wire, and how secrets leave them.

use super::meter::HttpMeter;
use http::{HeaderMap, HeaderName, HeaderValue};
use toolhold_policy::redact::Redactor;

/// What headers weigh on the wire, about: name, colon, space, value, line end.
pub(super) fn header_bytes(headers: &HeaderMap) -> u64 {
    let line = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
    headers.iter().map(line).sum::<usize>() as u64
}

/// `headers` as a guest may see them. A header with a secret in its very name is left out.
pub(super) fn without_secrets(
    headers: HeaderMap,
    redactor: &Redactor,
    meter: &HttpMeter,
) -> HeaderMap {
    if redactor.is_empty() {
        return headers;
    }
    let mut clean = HeaderMap::with_capacity(headers.len());
    for (name, value) in &headers {
        if redactor.finds(name.as_str().as_bytes()) {
            meter.redacted(1);
            continue;
        }
        let cleaned = redactor.clean(value.as_bytes()).and_then(|cleaned| {
            meter.redacted(cleaned.redactions);
            HeaderValue::from_bytes(&cleaned.bytes).ok()
        });
        clean.append(name, cleaned.unwrap_or_else(|| value.clone()));
    }
    clean
}

/// Whether `redactor` finds a secret in names or values.
pub(super) fn holds_any(headers: &HeaderMap, redactor: &Redactor) -> bool {
    !redactor.is_empty()
        && headers.iter().any(|(name, value)| {
            redactor.finds(name.as_str().as_bytes()) || redactor.finds(value.as_bytes())
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::CallDescriptors;
    use toolhold_policy::HttpLimits;

    #[test]
    fn secrets_leave_values_and_names() {
        let redactor = Redactor::new([("k", "abcdefgh12345678")]).unwrap();
        let meter = HttpMeter::new(HttpLimits::default(), CallDescriptors::at_most(1));
        let mut headers = HeaderMap::new();
        headers.insert("x-echo", "<abcdefgh12345678>".parse().unwrap());
        headers.insert("x-abcdefgh12345678", "1".parse().unwrap());
        headers.insert("x-other", "2".parse().unwrap());
        let clean = without_secrets(headers, &redactor, &meter);
        assert_eq!(clean.len(), 2);
        assert_eq!(clean["x-echo"], "<[secret k]>");
        assert_eq!(meter.redactions(), 2);
    }
}
