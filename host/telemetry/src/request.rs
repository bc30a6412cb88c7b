//! Parameters of requests to models, for their spans and metrics.

use serde_json::Value;
use toolhold_protocol::event::SharedWithPrevious;

/// Parameters of the last request of a run, or of a sub-agent. An event has only those that differ from the request before.
#[derive(Debug, Clone, Default)]
pub struct RequestParameters {
    /// The model that the request names.
    pub model: String,
    pub max_tokens: Option<i64>,
    pub temperature: Option<f64>,
}

impl RequestParameters {
    /// Takes the next request. `run_model` is the model of a request that names none.
    pub fn take(&mut self, same: &SharedWithPrevious, body: &Value, run_model: &str) {
        let is_same = |name: &str| same.fields.iter().any(|field| field == name);
        match body.get("model").and_then(Value::as_str) {
            Some(model) => model.clone_into(&mut self.model),
            None if is_same("model") => {}
            None => run_model.clone_into(&mut self.model),
        }
        // An observer that starts in the middle has not seen an earlier name.
        if self.model.is_empty() {
            run_model.clone_into(&mut self.model);
        }
        if !is_same("max_tokens") {
            self.max_tokens = body.get("max_tokens").and_then(Value::as_i64);
        }
        if !is_same("temperature") {
            self.temperature = body.get("temperature").and_then(Value::as_f64);
        }
    }
}
