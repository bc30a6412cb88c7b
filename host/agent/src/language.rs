//! The language of a task: told by the client, or recognised where the task is long enough to tell.

use std::borrow::Cow;
use toolhold_protocol::settings::RunRequest;
use whatlang::{Detector, Lang};

/// The languages that are told apart, with their BCP 47 tags. Fewer make short texts easier to tell.
const LANGUAGES: &[(Lang, &str)] = &[
    (Lang::Ara, "ar"),
    (Lang::Ben, "bn"),
    (Lang::Bul, "bg"),
    (Lang::Ces, "cs"),
    (Lang::Cmn, "zh"),
    (Lang::Dan, "da"),
    (Lang::Deu, "de"),
    (Lang::Ell, "el"),
    (Lang::Eng, "en"),
    (Lang::Fin, "fi"),
    (Lang::Fra, "fr"),
    (Lang::Heb, "he"),
    (Lang::Hin, "hi"),
    (Lang::Hun, "hu"),
    (Lang::Ind, "id"),
    (Lang::Ita, "it"),
    (Lang::Jpn, "ja"),
    (Lang::Kor, "ko"),
    (Lang::Nld, "nl"),
    (Lang::Nob, "nb"),
    (Lang::Pes, "fa"),
    (Lang::Pol, "pl"),
    (Lang::Por, "pt"),
    (Lang::Ron, "ro"),
    (Lang::Rus, "ru"),
    (Lang::Slk, "sk"),
    (Lang::Spa, "es"),
    (Lang::Swe, "sv"),
    (Lang::Tha, "th"),
    (Lang::Tur, "tr"),
    (Lang::Ukr, "uk"),
    (Lang::Vie, "vi"),
];

/// The language of instructions and of what the host tells the model. A model needs not be told to stay in it.
const ENGLISH: &str = "en";

/// Bytes of a text that are looked at: more does not tell more, and takes time.
const MAX_TEXT_BYTES: usize = 4_096;

/// Below this, short texts are taken for languages that look alike.
const MIN_CONFIDENCE: f64 = 0.5;

/// The tag of the language of `text`, if it can be told.
pub fn recognise(text: &str) -> Option<&'static str> {
    let text = &text[..text.floor_char_boundary(MAX_TEXT_BYTES)];
    let languages = LANGUAGES.iter().map(|(language, _)| *language);
    let found = Detector::with_allowlist(languages.collect()).detect(text)?;
    let found = (found.confidence() >= MIN_CONFIDENCE).then(|| found.lang())?;
    let mut known = LANGUAGES.iter();
    let (_, tag) = known.find(|(language, _)| *language == found)?;
    Some(tag)
}

/// Records the language of the task, in which the model is told to answer. It is not told of a language that was only
/// recognised and is English.
pub fn keep(request: &mut RunRequest, tag: &str, is_chosen: bool) {
    request.language = Some(tag.to_owned());
    request.tells_language = is_chosen || tag != ENGLISH;
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
    let known = LANGUAGES.iter().find(|(_, known)| *known == tag);
    let name: Cow<'_, str> = known.map_or_else(
        || format!("{tag:?}").into(),
        |(language, _)| language.eng_name().into(),
    );
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
    use uuid::Uuid;

    #[test]
    fn a_language_is_recognised_where_the_text_tells_it() {
        for (text, tag) in [
            (
                "Wie viele Tage liegen zwischen dem 27. Februar 2024 und heute?",
                Some("de"),
            ),
            (
                "Résume les notes de la dernière réunion en trois phrases.",
                Some("fr"),
            ),
            (
                "How many days are there between 2024-02-27 and 2026-11-21?",
                Some("en"),
            ),
            ("東京の天気は？", Some("ja")),
            ("What is 2^61 - 1?", None),
            ("2+2?", None),
            ("", None),
        ] {
            assert_eq!(recognise(text), tag, "{text}");
        }
        // Cut within a character.
        let long = format!("x{}", "ü".repeat(MAX_TEXT_BYTES));
        recognise(&long);
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
