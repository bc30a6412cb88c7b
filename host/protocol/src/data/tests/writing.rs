//! The log, and how much can be written to it.

use super::*;

#[test]
fn an_entry_of_the_log_is_json() {
    let write = entry(Some("x"), "†s.a[1]", Concat, json!([1]));
    let text = json!({"path": "†s.a[1]", "instance": "x", "method": "concat", "value": [1]});
    assert_eq!(serde_json::to_value(&write).unwrap(), text);
    assert_eq!(serde_json::from_value::<Write>(text).unwrap(), write);
    let short: Write = serde_json::from_value(json!({"path": "†s", "value": 1})).unwrap();
    assert_eq!(short, entry(None, "†s", Set, json!(1)));
}

#[test]
fn padding_counts_as_written() {
    let mut data = Data::default();
    let wide = format!("[{MAX_INDEX}]");
    let mut accepted = 0;
    while let Ok(()) = data.write(entry(None, &format!("†s.k{accepted}{wide}"), Set, json!(1))) {
        accepted += 1;
        assert!(accepted < 1000, "lists of nulls grow without a limit");
    }
    assert!(accepted * MAX_INDEX * size_of::<Value>() <= MAX_BYTES);
    assert_eq!(data.log().len(), accepted);
}
