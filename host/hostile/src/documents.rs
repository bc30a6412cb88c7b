//! Row 46: extractors, and the documents that make them misbehave.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Arena, Lab, ms};
use std::time::Instant;
use toolhold_policy::Limits;
use toolhold_sandbox::{ExtractedText, Extraction, ExtractionError};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 46,
        name: "extractor_that_does_not_end",
        attack: "an extractor computes, fills its memory, logs without end, crashes",
        must: "fuel / memory / trap, in time; another document is read",
        company: Company::Others,
        tries: |lab| Box::pin(extractor_that_does_not_end(lab)),
    },
    Attack {
        row: 46,
        name: "text_without_end",
        attack: "an extractor makes more text than a document may have",
        must: "output",
        company: Company::Others,
        tries: |lab| Box::pin(text_without_end(lab)),
    },
    Attack {
        row: 46,
        name: "document_read_over_and_over",
        attack: "an extractor reads its document again and again, whole or nothing of it, and beyond its end",
        must: "host bytes; nothing beyond the end",
        company: Company::Others,
        tries: |lab| Box::pin(document_read_over_and_over(lab)),
    },
];

/// What `tests/components/reader` takes.
const MEDIA_TYPE: &str = "application/x-orders";

/// An arena with the extractor under the name `reader`.
async fn arena(lab: &Lab, change: impl FnOnce(&mut Limits)) -> Result<Arena, AttackFailure> {
    let mut arena = lab.arena(|policy| change(&mut policy.limits))?;
    arena.benign().await?;
    arena.load("reader", components::READER.to_vec()).await?;
    Ok(arena)
}

async fn read(arena: &Arena, document: &[u8]) -> Result<ExtractedText, ExtractionError> {
    let Some(module) = arena.registry.module("reader") else {
        return Err(ExtractionError::Empty);
    };
    let extraction = Extraction {
        document: document.to_vec().into(),
        media_type: MEDIA_TYPE,
        timeout: None,
    };
    arena.registry.extract(&module, &extraction).await
}

/// The extraction ends in time with an error of a call of this kind, and the next document is read.
async fn ends(arena: &Arena, document: &[u8], kind: &str) -> Result<String, AttackFailure> {
    let started = Instant::now();
    let ended = read(arena, document).await;
    let took = started.elapsed();
    let own = match &ended {
        Ok(_) => "text",
        Err(ExtractionError::Call(error)) => error.kind(),
        Err(_) => "an error of its own",
    };
    ensure(own == kind, || {
        let shown: String = format!("{ended:?}").chars().take(200).collect();
        format!("it should end with `{kind}`, and ended with {shown}")
    })?;
    let deadline = arena
        .registry
        .module("reader")
        .map(|module| module.limits().timeout())
        .unwrap_or_default();
    ensure(took < deadline.saturating_mul(2), || {
        format!("it took {}", ms(took))
    })?;
    arena.unharmed().await?;
    let next = read(arena, b"text\nwords").await;
    ensure(next.as_ref().is_ok_and(|next| next.text == "words"), || {
        format!("the next document ended with {next:?}")
    })?;
    Ok(format!("{kind} after {}", ms(took)))
}

async fn extractor_that_does_not_end(lab: &Lab) -> Result<String, AttackFailure> {
    let arena = arena(lab, |limits| {
        limits.fuel = 1_000_000_000;
        limits.timeout_ms = 20_000;
    })
    .await?;
    let spun = ends(&arena, b"loop", "fuel").await?;
    let grown = ends(&arena, b"grow", "memory").await?;
    let logged = ends(&arena, b"log", "fuel").await?;
    let crashed = ends(&arena, b"panic", "trap").await?;
    Ok([spun, grown, logged, crashed].join(", "))
}

async fn text_without_end(lab: &Lab) -> Result<String, AttackFailure> {
    let arena = arena(lab, |limits| {
        limits.output_bytes = 1 << 20;
        limits.timeout_ms = 20_000;
    })
    .await?;
    let full = read(&arena, b"write 1048576").await;
    ensure(full.is_ok_and(|full| full.text.len() == 1 << 20), || {
        "as much text as a document may have was refused".into()
    })?;
    let over = ends(&arena, b"write 1048577", "output").await?;
    let far_over = ends(&arena, b"write 67108864", "output").await?;
    Ok(format!("{over}, {far_over}"))
}

async fn document_read_over_and_over(lab: &Lab) -> Result<String, AttackFailure> {
    let arena = arena(lab, |limits| {
        limits.host_bytes = 64 << 20;
        limits.timeout_ms = 20_000;
    })
    .await?;
    let beyond = read(&arena, b"beyond").await;
    ensure(
        beyond
            .as_ref()
            .is_ok_and(|beyond| beyond.text == "6 6 [0, 0, 0, 0]"),
        || format!("at and beyond its end it read {beyond:?}"),
    )?;
    let mut document = b"again 4000000000\n".to_vec();
    document.resize(4 << 20, b'x');
    let whole = ends(&arena, &document, "host_bytes").await?;
    let nothing = ends(&arena, b"again 0", "host_bytes").await?;
    Ok(format!("{whole}, {nothing}"))
}
