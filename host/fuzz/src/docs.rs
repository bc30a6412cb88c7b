//! What a component says of its tools: sections of any bytes and any WIT text are read or refused, and
//! what was read is written and read again as it was.

use toolhold_sandbox::docs::{Docs, package, section, wit};

/// A component without anything in it.
const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

pub fn run(data: &[u8]) {
    let _ = package::parse(data);
    if let Ok(docs) = section::parse(data) {
        kept(EMPTY, &docs);
    }
    if data.starts_with(EMPTY) {
        let _ = section::find(data, package::NAME);
        let docs = section::find(data, section::NAME).and_then(|found| section::parse(found).ok());
        kept(data, &docs.unwrap_or_default());
    } else if let Ok(text) = std::str::from_utf8(data) {
        let mut package = wit::WitPackage::default();
        package.files.push(("fuzz.wit".into(), text.into()));
        kept(EMPTY, &wit::read_all(&[package], &mut Vec::new()));
    }
}

/// The docs are found in the component as they were put there, and putting them there again changes
/// nothing.
fn kept(component: &[u8], docs: &Docs) {
    let Ok(with_docs) = section::replace(component, docs) else {
        return;
    };
    assert_eq!(section::replace(&with_docs, docs).as_ref(), Ok(&with_docs));
    let found = section::find(&with_docs, section::NAME);
    if docs.is_empty() {
        assert_eq!(found, None);
    } else if let Some(found) = found
        && found.len() <= section::MAX_BYTES
    {
        assert_eq!(section::parse(found).as_ref(), Ok(docs));
    }
}
