//! Bounds of members of requests that their types do not tell, as the OpenAPI description has them.

use crate::stop_texts;
use serde_json::{Value, json};
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr, Schema};

/// Maximum pairs of `metadata`.
pub const MAX_PAIRS: usize = 16;
/// Maximum characters of a name in `metadata`.
pub const MAX_PAIR_NAME: usize = 64;
/// Maximum characters of a text in `metadata`.
pub const MAX_PAIR_TEXT: usize = 512;

/// `model` of OpenAI's APIs.
pub fn model() -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .description(Some("Name of the agent."))
        .into()
}

/// `messages`, of which there is at least one.
pub fn messages() -> RefOr<Schema> {
    ArrayBuilder::new()
        .items(Ref::from_schema_name("ChatMessage"))
        .min_items(Some(1))
        .into()
}

/// `stop`: nothing, a text or a list of texts.
pub fn stop() -> RefOr<Schema> {
    let text = |kind: SchemaType| {
        ObjectBuilder::new()
            .schema_type(kind)
            .min_length(Some(1))
            .max_length(Some(stop_texts::MAX_BYTES))
    };
    let one = text(SchemaType::from_iter([Type::String, Type::Null]));
    let several = ArrayBuilder::new()
        .items(text(Type::String.into()))
        .max_items(Some(stop_texts::MAX_TEXTS));
    AnyOfBuilder::new()
        .item(one)
        .item(several)
        .description(Some(
            "The answer ends before the first of these texts: one, or a list of at most 16.",
        ))
        .into()
}

/// `tool_choice`: nothing, a word or an object.
pub fn tool_choice() -> RefOr<Schema> {
    let words = ["auto", "none", "required", "any"].map(Value::from);
    let word = ObjectBuilder::new()
        .schema_type(SchemaType::AnyValue)
        .enum_values(Some(words.into_iter().chain([Value::Null])));
    let object = ObjectBuilder::new()
        .schema_type(Type::Object)
        .examples([json!({"type": "function", "name": "weather"})]);
    AnyOfBuilder::new()
        .item(word)
        .item(object)
        .description(Some(
            "`auto`; `none`: the model calls no tool, neither the client's nor the agent's; `required`; a function by its \
             name; or `allowed_tools`.",
        ))
        .into()
}

/// `input` of a response: a text or a list of items.
pub fn input() -> RefOr<Schema> {
    let items = ArrayBuilder::new()
        .items(ObjectBuilder::new().schema_type(Type::Object))
        .min_items(Some(1));
    AnyOfBuilder::new()
        .item(ObjectBuilder::new().schema_type(Type::String))
        .item(items)
        .description(Some(
            "A text, or a list of items: messages (`input_text`, `output_text`, `input_image`, `input_file`), \
             `function_call` and `function_call_output`. An `item_reference` stands for an item of a response, by its `id`. \
             Items of the type `reasoning` are left out.",
        ))
        .into()
}

/// `metadata` of a response.
pub fn metadata() -> RefOr<Schema> {
    let text = |most: usize| {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .max_length(Some(most))
    };
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
        .max_properties(Some(MAX_PAIRS))
        .property_names(Some(text(MAX_PAIR_NAME).build()))
        .additional_properties(Some(text(MAX_PAIR_TEXT)))
        .description(Some(
            "Pairs of names and texts, which the response repeats.",
        ))
        .into()
}

/// Name of a function that a client defines.
pub fn function_name() -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some("^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$"))
        .into()
}
