//! A function's signature for a model to read, for want of a description.

use crate::docs::{Docs, FunctionDocs, Glossary};
use crate::value::shape::{Shape, ShapeMember};
use toolhold_policy::text;

/// Characters; a signature of records within records says less the longer it is, and the schemas
/// have all of it.
const MAX_SIGNATURE_CHARS: usize = 400;

/// `evaluate(expression: string) -> result<f64, string>`; types are called by their names where
/// `docs` knows them, and spelled out where it does not.
pub(super) fn signature(
    function: &str,
    params: &[ShapeMember],
    result: Option<&Shape>,
    docs: Option<(&Docs, &FunctionDocs)>,
) -> String {
    let params: Vec<_> = params
        .iter()
        .map(|ShapeMember { name, shape }| {
            let known = docs.and_then(|(docs, f)| Some((docs, &f.parameters.get(name)?.ty)));
            let glossary = known.map_or(Glossary::EMPTY, |(docs, ty)| Glossary::new(docs, ty));
            format!("{name}: {}", spelled(shape, glossary))
        })
        .collect();
    let mut out = format!("{function}({})", params.join(", "));
    if let Some(shape) = result {
        let glossary = docs.map_or(Glossary::EMPTY, |(d, f)| Glossary::new(d, &f.result));
        out.push_str(" -> ");
        out.push_str(&spelled(shape, glossary));
    }
    text::visible(&out, MAX_SIGNATURE_CHARS)
}

fn spelled(shape: &Shape, glossary: Glossary<'_>) -> String {
    let entry = glossary.entry();
    if let Some(name) = entry.name {
        return name;
    }
    let child = |index: usize, shape: &Shape| spelled(shape, glossary.child(&entry, index));
    let side = |index: usize, shape: &Option<Box<Shape>>| {
        shape
            .as_deref()
            .map_or("_".to_owned(), |shape| child(index, shape))
    };
    match shape {
        Shape::Bool => "bool".into(),
        Shape::S8 => "s8".into(),
        Shape::U8 => "u8".into(),
        Shape::S16 => "s16".into(),
        Shape::U16 => "u16".into(),
        Shape::S32 => "s32".into(),
        Shape::U32 => "u32".into(),
        Shape::S64 => "s64".into(),
        Shape::U64 => "u64".into(),
        Shape::F32 => "f32".into(),
        Shape::F64 => "f64".into(),
        Shape::Char => "char".into(),
        Shape::String => "string".into(),
        Shape::Bytes => "list<u8>".into(),
        Shape::List(item) => format!("list<{}>", child(0, item)),
        Shape::Fixed(item, length) => format!("list<{}, {length}>", child(0, item)),
        Shape::Map(key, value) => format!("map<{}, {}>", child(0, key), child(1, value)),
        Shape::Option(inner) => format!("option<{}>", child(0, inner)),
        Shape::Result(None, None) => "result".into(),
        Shape::Result(ok, None) => format!("result<{}>", side(0, ok)),
        Shape::Result(ok, err) => format!("result<{}, {}>", side(0, ok), side(1, err)),
        Shape::Tuple(shapes) => {
            let items = shapes.iter().enumerate().map(|(i, shape)| child(i, shape));
            format!("tuple<{}>", joined(items, ", "))
        }
        Shape::Record(fields) => {
            let fields = fields.iter().map(|ShapeMember { name, shape }| {
                let (_, of) = glossary.part(&entry, name);
                format!("{name}: {}", spelled(shape, of))
            });
            format!("{{{}}}", joined(fields, ", "))
        }
        Shape::Variant(cases) => {
            let cases = cases.iter().map(|case| match &case.shape {
                None => case.name.clone(),
                Some(shape) => {
                    let (_, of) = glossary.part(&entry, &case.name);
                    format!("{}({})", case.name, spelled(shape, of))
                }
            });
            joined(cases, " | ")
        }
        Shape::Enum(names) => names.join(" | "),
        Shape::Flags(names) => format!("flags<{}>", names.join(", ")),
    }
}

fn joined(parts: impl Iterator<Item = String>, separator: &str) -> String {
    parts.collect::<Vec<_>>().join(separator)
}
