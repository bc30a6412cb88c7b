//! An extractor that does what the first line of its document says.

wit_bindgen::generate!({ path: "../../../wit", world: "extractor" });

use exports::toolhold::module::extractors::{ExtractError, Extracted, Format, Guest};
use toolhold::module::{document, log};

struct Reader;

export!(Reader);

impl Guest for Reader {
    fn formats() -> Vec<Format> {
        // There is no document while a module is loaded.
        assert_eq!(document::size(), 0);
        assert!(document::read(0, 10).is_empty());
        vec![Format {
            media_type: "application/x-orders".into(),
            endings: vec!["orders".into()],
        }]
    }

    fn extract(media_type: String) -> Result<Extracted, ExtractError> {
        let read = document::read(0, 4096);
        let text = String::from_utf8_lossy(&read).into_owned();
        let (order, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let (order, argument) = order.split_once(' ').unwrap_or((order, ""));
        let number: u64 = argument.parse().unwrap_or_default();
        let extracted = |text: String| {
            Ok(Extracted {
                title: Some(format!("a {media_type}")),
                text,
            })
        };
        match order {
            "text" => extracted(rest.to_owned()),
            "encrypted" => Err(ExtractError::Encrypted),
            "damaged" => Err(ExtractError::Damaged(argument.to_owned())),
            "unsupported" => Err(ExtractError::Unsupported(argument.to_owned())),
            "too-large" => Err(ExtractError::TooLarge(argument.to_owned())),
            "loop" => loop {
                core::hint::black_box(());
            },
            // So many bytes of text.
            "write" => extracted("x".repeat(number as usize)),
            "log" => loop {
                log::write(log::Level::Info, &"x".repeat(1 << 16));
            },
            "grow" => {
                let mut all = Vec::new();
                loop {
                    all.push(core::hint::black_box(vec![1_u8; 1 << 20]));
                }
            }
            // The document over and over; the number is of bytes at a time.
            "again" => loop {
                core::hint::black_box(document::read(0, number as u32));
            },
            // What there is at and beyond the end.
            "beyond" => {
                let size = document::size();
                let all = document::read(0, u32::MAX).len();
                let beyond = [size, size + 1, u64::MAX, u64::MAX - 1];
                let lengths = beyond.map(|offset| document::read(offset, u32::MAX).len());
                extracted(format!("{size} {all} {lengths:?}"))
            }
            "panic" => panic!("as it was told"),
            other => Err(ExtractError::Unsupported(format!("the order {other:?}"))),
        }
    }
}
