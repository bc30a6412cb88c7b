//! JSON ↔ component values: nothing panics; what a schema describes is accepted and keeps its
//! meaning; what was accepted once comes back in a form that stays.

use crate::{json, sandbox, types};
use arbitrary::Unstructured;
use serde_json::Value;
use toolhold_sandbox::fuzzing::FuzzedSignature;
use toolhold_sandbox::value::LiftError;

/// More than any input of libFuzzer's size can make.
pub(crate) const LIMIT: u64 = 1 << 20;

pub fn run(data: &[u8]) {
    // Running out of bytes ends an input, not the promise.
    let _ = check(&mut Unstructured::new(data));
}

fn check(u: &mut Unstructured) -> arbitrary::Result<()> {
    let wat = types::importing(u)?;
    // Types without a JSON form are refused.
    let Some(signature) = signature(&wat) else {
        return Ok(());
    };
    let schema = signature.schema();
    for _ in 0..8 {
        let arguments = json::described(&schema, u)?;
        let back = signature
            .round_trip(&arguments, LIMIT)
            .unwrap_or_else(|| panic!("{arguments} is refused, of {schema}\n{wat}"));
        let back = settled(&signature, &arguments, back, &wat);
        assert!(
            json::same(&arguments, &back),
            "{arguments} became {back}\n{wat}"
        );
        bounded(&signature, &back, u.int_in_range(0..=200)?, &wat);

        let wild = json::mutated(arguments, u)?;
        if let Some(back) = signature.round_trip(&wild, LIMIT) {
            settled(&signature, &wild, back, &wat);
        }
    }
    Ok(())
}

/// What came back, which is accepted and comes back as it is.
fn settled(
    signature: &FuzzedSignature,
    given: &Value,
    back: Result<Value, LiftError>,
    wat: &str,
) -> Value {
    let back = back.unwrap_or_else(|reason| panic!("{given} was accepted, but: {reason:?}\n{wat}"));
    let again = signature.round_trip(&back, LIMIT);
    assert_eq!(again, Some(Ok(back.clone())), "{given}\n{wat}");
    back
}

/// The limit counts the text of each parameter to the byte.
fn bounded(signature: &FuzzedSignature, value: &Value, limit: u64, wat: &str) {
    let parameters = value.as_object().into_iter().flatten();
    let fits = parameters.fold(true, |fits, (_, value)| {
        fits && value.to_string().len() as u64 <= limit
    });
    let bounded = signature.round_trip(value, limit);
    assert_eq!(
        matches!(bounded, Some(Ok(_))),
        fits,
        "{value} with {limit}: {bounded:?}\n{wat}"
    );
}

/// The imported function's parameters; generated components are valid, or the generator is at fault.
pub(crate) fn signature(wat: &str) -> Option<FuzzedSignature> {
    let bytes = wat::parse_str(wat).unwrap_or_else(|error| panic!("{error}\n{wat}"));
    FuzzedSignature::imported(&sandbox::ENGINE, &bytes)
        .unwrap_or_else(|reason| panic!("{reason}\n{wat}"))
}
