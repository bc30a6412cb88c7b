//! The language of a task: the client's choice, or recognised where the task tells it with certainty.

use serde_json::Value;
use std::borrow::Cow;
use toolhold_protocol::settings::RunRequest;
use toolhold_text::language::name;

pub use toolhold_text::language::recognise;

/// The language of instructions and of what the host tells the model. A model needs not be told to stay in it.
const ENGLISH: &str = "en";

/// Records the language of the task, in which the model is told to answer. It is not told of a language that was only
/// recognised and is English.
pub fn keep(request: &mut RunRequest, tag: &str, is_chosen: bool) {
    request.language = Some(tag.to_owned());
    request.tells_language = is_chosen || tag != ENGLISH;
}

/// Bytes of joined texts after which no more are added, and the most bytes of one text: what follows tells the same language.
const MAX_JOINED_BYTES: usize = 4_096;

/// Returns the language of the texts in the input of a saved Request. The host's texts for the user are in it; the model gets
/// the instructions of the author alone.
pub fn recognise_in(input: &Value) -> Option<&'static str> {
    recognise(&texts_in(input))
}

/// Joins the texts of an input, up to the bytes that a language is recognised by.
pub fn texts_in(input: &Value) -> String {
    let mut texts = String::new();
    join_texts(input, &mut texts);
    texts
}

fn join_texts(value: &Value, texts: &mut String) {
    match value {
        _ if texts.len() > MAX_JOINED_BYTES => {}
        Value::String(text) => {
            texts.push_str(&text[..text.floor_char_boundary(MAX_JOINED_BYTES)]);
            texts.push('\n');
        }
        Value::Array(values) => values.iter().for_each(|value| join_texts(value, texts)),
        Value::Object(members) => members.values().for_each(|value| join_texts(value, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The instructions that the model of a run is given: its own, and the language of its task. What the operator and the
/// author of an agent decide are the instructions alone, whatever language its users write.
pub fn told_instructions(request: &RunRequest) -> Cow<'_, str> {
    let instructions = request.instructions.as_str();
    let Some(tag) = request
        .language
        .as_deref()
        .filter(|_| request.tells_language)
    else {
        return instructions.into();
    };
    let name: Cow<'_, str> = name(tag).map_or_else(|| format!("{tag:?}").into(), Cow::Borrowed);
    let kept = format!(
        "The language of the task is {name}: write the texts of your final output in it, unless the task asks for \
         another one."
    );
    if instructions.is_empty() {
        kept.into()
    } else {
        format!("{instructions}\n\n{kept}").into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use uuid::Uuid;

    #[test]
    fn the_language_of_an_input_is_that_of_its_texts() {
        let task = "Посчитай сумму заказов за март.";
        let input = json!({"n": 3, "asked": [{"text": task}, null, true]});
        assert_eq!(recognise_in(&input), Some("ru"));
        assert_eq!(recognise_in(&json!({"n": 3})), None);
    }

    #[test]
    fn one_text_is_joined_up_to_the_bound() {
        let mut texts = String::new();
        // Each character has three bytes, so the bound is within one.
        join_texts(&json!(["語".repeat(MAX_JOINED_BYTES), "later"]), &mut texts);
        let whole = MAX_JOINED_BYTES / "語".len();
        assert_eq!(texts, format!("{}\nlater\n", "語".repeat(whole)));
        join_texts(&json!("last"), &mut texts);
        assert!(!texts.contains("last"));
    }

    #[test]
    fn only_a_language_that_needs_it_is_told_to_the_model() {
        let kept = |tag: &str, is_chosen| {
            let mut request = RunRequest::new(Uuid::now_v7(), "t");
            request.instructions = "Be short.".into();
            keep(&mut request, tag, is_chosen);
            assert_eq!(request.language.as_deref(), Some(tag));
            assert_eq!(request.instructions, "Be short.");
            told_instructions(&request).into_owned()
        };
        assert_eq!(kept("en", false), "Be short.");
        for (tag, is_chosen, name) in [
            ("en", true, "English"),
            ("de", false, "German"),
            ("gsw-CH", true, "\"gsw-CH\""),
        ] {
            let told = kept(tag, is_chosen);
            assert!(told.starts_with("Be short.\n\n"), "{told}");
            assert!(told.contains(&format!(" is {name}:")), "{told}");
        }
    }
}
