//! Forms are drawn by pages and by each other: those in a circle would be drawn without end.

use pdf_extract::{Dictionary, Document as Pdf, Object, ObjectId};
use std::collections::HashMap;
use toolhold_guest::extractor::ExtractError;

/// Forms in each other. Drawing one calls itself for the next.
const MAX_DEPTH: usize = 32;

/// # Errors
/// Forms refer to each other in a circle, or too deep.
pub fn check(pdf: &Pdf) -> Result<(), ExtractError> {
    // How deep what a form draws is nested; absent while it is looked at.
    let mut depths: HashMap<ObjectId, Option<usize>> = HashMap::new();
    for &start in pdf.objects.keys() {
        if depths.contains_key(&start) {
            continue;
        }
        let mut open = vec![(start, drawn(pdf, start), 1)];
        depths.insert(start, None);
        while let Some((form, left, depth)) = open.last_mut() {
            let Some(next) = left.pop() else {
                depths.insert(*form, Some(*depth));
                let depth = *depth + 1;
                open.pop();
                if let Some((_, _, above)) = open.last_mut() {
                    *above = depth.max(*above);
                }
                continue;
            };
            let known = match depths.get(&next) {
                Some(None) => {
                    let why = "its forms refer to each other in a circle";
                    return Err(ExtractError::Damaged(why.to_owned()));
                }
                Some(&Some(known)) => Some(known),
                None => None,
            };
            if let Some(known) = known {
                *depth = (*depth).max(known + 1);
            } else {
                depths.insert(next, None);
                open.push((next, drawn(pdf, next), 1));
            }
            let nested = open.last().map_or(0, |(_, _, depth)| *depth);
            if nested > MAX_DEPTH || open.len() > MAX_DEPTH {
                return Err(ExtractError::TooLarge(format!(
                    "its forms stand in each other more than {MAX_DEPTH} deep"
                )));
            }
        }
    }
    Ok(())
}

/// The forms that a form may draw.
fn drawn(pdf: &Pdf, id: ObjectId) -> Vec<ObjectId> {
    let forms = pdf.get_object(id).and_then(Object::as_stream).ok();
    let forms = forms.and_then(|form| dictionary(pdf, &form.dict, b"Resources"));
    let forms = forms.and_then(|resources| dictionary(pdf, resources, b"XObject"));
    let forms = forms.into_iter().flat_map(Dictionary::iter);
    forms
        .filter_map(|(_, form)| form.as_reference().ok())
        .collect()
}

fn dictionary<'a>(pdf: &'a Pdf, of: &'a Dictionary, key: &[u8]) -> Option<&'a Dictionary> {
    let (_, found) = pdf.dereference(of.get(key).ok()?).ok()?;
    found.as_dict().ok()
}
