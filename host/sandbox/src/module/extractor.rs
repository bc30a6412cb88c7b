//! Modules that are extractors: they read documents instead of offering tools.
//!
//! An extractor is loaded, pinned, limited and run as any module is. It can read the bytes of one document, and gives
//! back text, which comes from the document: nobody trusts it more than that.

use crate::bindings::extractor::ExtractorPre;
use crate::bindings::extractor::extractors::{ExtractError, Extracted, Format};
use crate::call::{
    self, CallContext, CallState, CurrentCall, GrantedKnowledge, GuestCall, GuestLogSink,
    OtherTools,
};
use crate::compile::DebugInfo;
use crate::descriptors::DescriptorShare;
use crate::engine::Engine;
use crate::error::LoadError;
use crate::grant::PreparedGrant;
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use toolhold_policy::limits::Limits;
use toolhold_policy::text;
use toolhold_policy::{CallError, Caller, ErrorClass, Output};
use wasmtime::Store;

/// Maximum characters of a title, and of what is wrong with a document.
const MAX_TITLE_CHARS: usize = 300;
const MAX_REASON_CHARS: usize = 300;
/// Maximum formats of an extractor, and endings of a format.
const MAX_FORMATS: usize = 32;
const MAX_ENDINGS: usize = 32;
/// Maximum bytes of a media type, and of an ending.
const MAX_MEDIA_TYPE_BYTES: usize = 127;
const MAX_ENDING_BYTES: usize = 16;

/// A kind of documents that an extractor reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DocumentFormat {
    /// In small letters.
    pub media_type: String,
    /// Of file names, in small letters and without the dot.
    pub endings: Vec<String>,
}

/// What an extractor is given.
#[derive(Debug, Clone)]
pub struct Extraction<'a> {
    pub document: Bytes,
    /// One of its formats.
    pub media_type: &'a str,
    /// A deadline tighter than the module's own.
    pub timeout: Option<Duration>,
}

/// What an extractor made of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractedText {
    /// Without characters that a terminal obeys.
    pub title: Option<String>,
    /// Markdown, as it came.
    pub text: String,
}

/// Why there is no text.
#[derive(Debug, thiserror::Error)]
pub enum ExtractionError {
    #[error("it is encrypted: save it without a password first")]
    Encrypted,
    #[error("it is damaged: {what}")]
    Damaged { what: String },
    #[error("it is of a kind that is not read: {what}")]
    Unsupported { what: String },
    #[error("it is too large: {what}")]
    TooLarge { what: String },
    #[error("there is no text in it")]
    Empty,
    /// The extractor met a limit, crashed, or may not run.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Asks a fresh instance, without grants and without a document, for its formats, within `list_tools_ms`, in the places
/// of modules that are loaded.
pub(super) async fn formats(
    engine: &Engine,
    module: &str,
    limits: &Limits,
    pre: &ExtractorPre<CallState>,
    debug: Option<&DebugInfo>,
) -> Result<Vec<DocumentFormat>, LoadError> {
    let _permit = engine.listing_permit().await;
    let granted = PreparedGrant::default();
    let context = Box::new(CallContext {
        engine,
        limits,
        granted: &granted,
        descriptors: DescriptorShare::of_module(engine.descriptors()),
        module: (0, module),
        is_listing: true,
        begin: None,
        depth: 0,
        document: Bytes::new(),
        revocation: Arc::default(),
        caller: Caller::default(),
        other_tools: OtherTools::default(),
        knowledge: GrantedKnowledge::default(),
        current: CurrentCall::default(),
        reserved: None,
        log_sink: GuestLogSink::default(),
        profiler: None,
        debug,
        timeout: limits.list_tools_time(),
    });
    let listed = call::run(context, ListFormats(pre)).await;
    let formats = listed
        .result
        .map_err(|source| LoadError::ListTools { source })?;
    checked(formats).map_err(|reason| LoadError::NoTools {
        detail: format!(": its formats cannot be used: {reason}"),
    })
}

/// Formats as they are chosen by, or the first fault.
fn checked(formats: Vec<Format>) -> Result<Vec<DocumentFormat>, String> {
    if formats.is_empty() || formats.len() > MAX_FORMATS {
        return Err(format!(
            "there are {}, and 1 to {MAX_FORMATS} are accepted",
            formats.len()
        ));
    }
    let is_part = |part: &str| {
        let of_token =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "!#$&-^_.+".contains(c);
        !part.is_empty() && part.chars().all(of_token)
    };
    let is_media_type = |name: &str| {
        let halves = name.split_once('/');
        name.len() <= MAX_MEDIA_TYPE_BYTES
            && halves.is_some_and(|(kind, own)| is_part(kind) && is_part(own))
    };
    let is_ending = |ending: &String| {
        let mut letters = ending.chars();
        (1..=MAX_ENDING_BYTES).contains(&ending.len())
            && letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    let check = |format: Format| {
        let Format {
            media_type,
            endings,
        } = format;
        if !is_media_type(&media_type) {
            let shown = text::visible(&media_type, 64);
            return Err(format!("{shown:?} is no media type in small letters"));
        }
        if endings.len() > MAX_ENDINGS || !endings.iter().all(is_ending) {
            return Err(format!(
                "the endings of {media_type} must be at most {MAX_ENDINGS}, each of 1 to {MAX_ENDING_BYTES} small \
                 letters and digits"
            ));
        }
        Ok(DocumentFormat {
            media_type,
            endings,
        })
    };
    formats.into_iter().map(check).collect()
}

/// `formats` of an extractor.
struct ListFormats<'a>(&'a ExtractorPre<CallState>);

impl GuestCall for ListFormats<'_> {
    type Return = Vec<Format>;

    async fn perform(self, store: &mut Store<CallState>) -> wasmtime::Result<Self::Return> {
        let instance = self.0.instantiate_async(&mut *store).await?;
        instance
            .toolhold_module_extractors()
            .call_formats(store)
            .await
    }
}

/// `extract` of an extractor.
pub(super) struct Extract<'a> {
    pub pre: &'a ExtractorPre<CallState>,
    pub media_type: &'a str,
}

impl GuestCall for Extract<'_> {
    type Return = Result<Extracted, ExtractError>;

    async fn perform(self, store: &mut Store<CallState>) -> wasmtime::Result<Self::Return> {
        let instance = self.pre.instantiate_async(&mut *store).await?;
        instance
            .toolhold_module_extractors()
            .call_extract(store, self.media_type)
            .await
    }
}

/// Puts what came back into `extracted`, within the limits of outputs, and returns the call's output: an error of the
/// extractor is one of the call, so that it counts as such and a limit that it met is named.
pub(super) fn output(
    returned: Result<Extracted, ExtractError>,
    limits: &Limits,
    extracted: &mut Result<ExtractedText, ExtractionError>,
) -> Result<Output, CallError> {
    let plain = |what: &str| text::visible(what, MAX_REASON_CHARS);
    let fault = match returned {
        Ok(Extracted { text: own, .. }) if own.len() as u64 > limits.output_bytes => {
            return Err(CallError::Output {
                limit: limits.output_bytes,
            });
        }
        Ok(Extracted { text: own, .. }) if own.trim().is_empty() => ExtractionError::Empty,
        Ok(Extracted { title, text: own }) => {
            let title = title.map(|title| text::visible(title.trim(), MAX_TITLE_CHARS));
            *extracted = Ok(ExtractedText {
                title: title.filter(|title| !title.is_empty()),
                text: own,
            });
            return Ok(Output::Value(Value::Null));
        }
        Err(ExtractError::Encrypted) => ExtractionError::Encrypted,
        Err(ExtractError::Damaged(what)) => ExtractionError::Damaged { what: plain(&what) },
        Err(ExtractError::Unsupported(what)) => ExtractionError::Unsupported { what: plain(&what) },
        Err(ExtractError::TooLarge(what)) => ExtractionError::TooLarge { what: plain(&what) },
    };
    let told = CallError::Tool {
        class: ErrorClass::Fatal,
        message: fault.to_string(),
        data: None,
    };
    *extracted = Err(fault);
    Err(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(media_type: &str, endings: &[&str]) -> Format {
        Format {
            media_type: media_type.into(),
            endings: endings.iter().map(|&ending| ending.into()).collect(),
        }
    }

    #[test]
    fn formats_are_media_types_and_endings_or_refused() {
        let good = checked(vec![format("application/vnd.x+xml", &["x", "x2"])]).unwrap();
        assert_eq!(good[0].endings, ["x", "x2"]);
        for (formats, reason) in [
            (vec![], "there are 0"),
            (vec![format("a/b", &[]); 33], "there are 33"),
            (vec![format("Text/Plain", &[])], "no media type"),
            (vec![format("text", &[])], "no media type"),
            (vec![format("text/\u{1b}[2J", &[])], "no media type"),
            (vec![format("a/b", &[".x"])], "endings of a/b"),
            (
                vec![format("a/b", &["abcdefghijklmnopq"])],
                "endings of a/b",
            ),
        ] {
            let refused = checked(formats).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
    }

    #[test]
    fn what_an_extractor_says_is_bounded_and_harmless_to_show() {
        let limits = Limits {
            output_bytes: 10,
            ..Limits::default()
        };
        let give = |title: &str, text: &str| {
            let returned = Ok(Extracted {
                title: Some(title.into()),
                text: text.into(),
            });
            let mut extracted = Err(ExtractionError::Empty);
            let said = output(returned, &limits, &mut extracted);
            (said.map(|_| ()), extracted)
        };
        let (said, _) = give("t", "12345678901");
        assert!(matches!(said, Err(CallError::Output { limit: 10 })));
        let (_, extracted) = give("t", " \n");
        assert!(matches!(extracted, Err(ExtractionError::Empty)));
        let (said, extracted) = give(" \u{1b}[31mred\u{202e} ", "text");
        let extracted = extracted.unwrap();
        assert!(said.is_ok());
        let title = extracted.title.unwrap();
        assert!(
            !title.contains(['\u{1b}', '\u{202e}']) && title.contains("red"),
            "{title:?}"
        );
    }
}
