//! JSON Schemas as a model should see them.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, transform};
use serde_json::Value;

/// The schema of `T` as it is read: one self-contained object, without the `$schema` and `title` keys that
/// `schemars` adds. Every key costs the model tokens in every request, and `$ref`s cost small models
/// the thread.
pub fn of_arguments<T: JsonSchema>() -> Value {
    generate::<T>(SchemaSettings::draft2020_12().for_deserialize())
}

/// The schema of `T` as it is written: what `serde` always writes is required.
pub fn of_result<T: JsonSchema>() -> Value {
    generate::<T>(SchemaSettings::draft2020_12().for_serialize())
}

fn generate<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let settings = settings.with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
        settings
            .transforms
            .push(Box::new(transform::RecursiveTransform(tidy)));
    });
    settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

fn tidy(schema: &mut Schema) {
    schema.remove("title");
    // A doc comment wraps where the source is wide enough; the model's copy needs no line breaks.
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    // `uint`, `int64`, `double` name Rust types: validators ignore them, and some model servers
    // refuse a schema with a format they do not know.
    if let Some(Value::String(format)) = schema.get("format")
        && ["int", "uint", "float", "double"]
            .iter()
            .any(|number| format.starts_with(number))
    {
        schema.remove("format");
    }
}
