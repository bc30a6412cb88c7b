//! JSON that models write: nothing panics, what is JSON is read as it is, no value is made up, and what was
//! mended needs no mending again.

use serde_json::Value;
use toolhold_json::coerce::coerce;
use toolhold_json::repair::{TextEnd, repair};

pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let own = repair(&text, TextEnd::Own);
    let cut = repair(&text, TextEnd::Cut);
    // Of a text that was cut nothing more is read than of one that was not, and nothing else.
    if let Some(cut) = &cut {
        assert_eq!(own.as_ref(), Some(cut));
    }
    if let Some(mended) = &own {
        let again = repair(&mended.value.to_string(), TextEnd::Cut);
        let again = again.map(|again| (again.value, again.repairs.len()));
        assert_eq!(again, Some((mended.value.clone(), 0)));
        // As a schema and as arguments, whatever it is.
        if let Some(coerced) = coerce(&mended.value, &mended.value) {
            assert!(coerced.repairs.len() <= 32);
        }
    }
    // A text that quotes JSON is JSON of another kind, and not asked for; a key that is there twice with
    // different values has no reading.
    if let Ok(value @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(&text)
        && let Some(mended) = own
    {
        assert_eq!(mended.value, value);
    }
}
