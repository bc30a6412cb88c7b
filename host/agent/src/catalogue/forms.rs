//! The forms in which models are shown a tool. A form is made once for each kind of Request, and not at each step of
//! each run: reducing and printing the schemas took most of a step's time.

use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toolhold_policy::prompt::PromptText;
use toolhold_protocol::compose::CallForm;

/// Forms of one kind that are kept of a tool. Endpoints that are asked at the same time may need different ones.
const MAX_FORMS: usize = 2;
/// Bytes in memory of all forms of a tool, for each byte of its definition.
pub(super) const FORM_BYTES_A_BYTE: u64 = 60;

/// The forms of one tool.
#[derive(Debug, Default)]
pub(crate) struct ToolForms {
    /// The schema of its calls within that of a solution, by the form of calls and the maximum of strings. `None` if it
    /// has definitions, whose names depend on the other tools.
    pub calls: FormCache<(CallForm<'static>, Option<u32>), Option<Value>>,
    /// Its description and the schema of its parameters as text, by whether parameters have outward names and whether
    /// calls are a plan.
    pub texts: FormCache<(bool, bool), PromptText>,
    /// The function that stands for it where calls are native.
    pub functions: FormCache<CallForm<'static>, FunctionForm>,
    /// Its description and its schema, as texts of a model are compared with them.
    pub plain: FormCache<(), PlainText>,
}

/// A tool as a function of an endpoint with native calls.
#[derive(Debug)]
pub(crate) struct FunctionForm {
    pub description: PromptText,
    pub parameters: Value,
}

/// A text in its plain form, without marks that a copy may have otherwise.
#[derive(Debug)]
pub(crate) struct PlainText {
    /// SHA-256 and bytes of the text itself.
    pub digest: [u8; 32],
    pub bytes: usize,
    pub plain: String,
}

/// A few values by their keys, the latest at the end.
#[derive(Debug)]
pub(crate) struct FormCache<K, V>(Mutex<VecDeque<(K, Arc<V>)>>);

impl<K, V> Default for FormCache<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: PartialEq, V> FormCache<K, V> {
    /// Returns the value of `key`, which `make` makes if it is not kept.
    pub fn get_or_make(&self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        if let Some(known) = find(&self.values(), &key) {
            return known;
        }
        // Without the lock. Of two that are made at the same time one is kept.
        let made = Arc::new(make());
        let mut values = self.values();
        if let Some(known) = find(&values, &key) {
            return known;
        }
        if values.len() == MAX_FORMS {
            values.pop_front();
        }
        values.push_back((key, made.clone()));
        made
    }

    fn values(&self) -> MutexGuard<'_, VecDeque<(K, Arc<V>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find<K: PartialEq, V>(values: &VecDeque<(K, Arc<V>)>, key: &K) -> Option<Arc<V>> {
    let mut values = values.iter();
    let (_, value) = values.find(|(known, _)| known == key)?;
    Some(value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_made_once_and_the_latest_are_kept() {
        let kept = FormCache::default();
        let of = |key: usize, value: usize| *kept.get_or_make(key, || value);
        assert_eq!(
            [of(1, 10), of(1, 11), of(2, 20), of(1, 12)],
            [10, 10, 20, 10]
        );
        // The third makes the first go.
        assert_eq!([of(3, 30), of(2, 21), of(1, 13)], [30, 20, 13]);
        assert_eq!(kept.values().len(), MAX_FORMS);
    }
}
