//! Trace contexts of the W3C: `traceparent` and `tracestate`.

use http::HeaderMap;
use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use std::collections::HashMap;

/// The trace of a client, from the headers of its request; an empty context without one.
pub fn client_context(headers: &HeaderMap) -> Context {
    let none = Context::new();
    TraceContextPropagator::new().extract_with_context(&none, &HeaderExtractor(headers))
}

/// The trace that `traceparent` and `tracestate` name; an empty context if they cannot be read.
pub fn parse_context(traceparent: &str, tracestate: &str) -> Context {
    let none = Context::new();
    let said = [("traceparent", traceparent), ("tracestate", tracestate)];
    let said: HashMap<String, String> = said
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    TraceContextPropagator::new().extract_with_context(&none, &said)
}

/// The span of a context as `traceparent`; `None` without a span.
pub fn parent_of(context: &Context) -> Option<String> {
    let mut said = HashMap::new();
    TraceContextPropagator::new().inject_context(context, &mut said);
    said.remove("traceparent")
}
