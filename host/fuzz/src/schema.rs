//! WIT types → JSON Schema: every schema is one; it holds for all JSON that the conversion accepts
//! and for all that it gives.

use crate::value::{LIMIT, signature};
use crate::{json, types};
use arbitrary::Unstructured;

pub fn run(data: &[u8]) {
    let _ = check(&mut Unstructured::new(data));
}

fn check(u: &mut Unstructured) -> arbitrary::Result<()> {
    let wat = types::importing(u)?;
    let Some(signature) = signature(&wat) else {
        return Ok(());
    };
    let schema = signature.schema();
    let validator = jsonschema::draft202012::new(&schema)
        .unwrap_or_else(|error| panic!("{schema} is no JSON Schema: {error}\n{wat}"));
    for _ in 0..8 {
        let described = json::described(&schema, u)?;
        assert!(
            validator.is_valid(&described),
            "{described}\n{schema}\n{wat}"
        );
        let wild = json::mutated(described, u)?;
        if let Some(Ok(back)) = signature.round_trip(&wild, LIMIT) {
            assert!(
                validator.is_valid(&wild),
                "accepted: {wild}\n{schema}\n{wat}"
            );
            assert!(validator.is_valid(&back), "given: {back}\n{schema}\n{wat}");
        }
    }
    Ok(())
}
