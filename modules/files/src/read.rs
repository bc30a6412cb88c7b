use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_guest::{Annotations, Error, Tool, json};

use crate::roots::Roots;

/// Shown unless the call says otherwise.
const DEFAULT_LINES: u64 = 500;

/// The most text in one answer: about 16 000 tokens, already a large part of a context.
const MAX_BYTES: u64 = 65_536;

/// Where text never has one, binary formats have a zero byte soon.
const SNIFFED_BYTES: u64 = 8_192;

pub fn tool(roots: impl Fn() -> Roots + 'static) -> Tool {
    Tool::new(
        "read",
        "Reads a text file, whole or in part. If `next_offset` comes back there is more: call again \
         with it as `offset`.",
        move |arguments| read(&roots(), &arguments),
    )
    .title("Read a file")
    .annotations(Annotations::READ_ONLY | Annotations::IDEMPOTENT)
    .example(
        "What is on my list in notes/todo.txt?",
        json!({ "path": "notes/todo.txt" }),
        json!({ "text": "buy milk\ncall Ada\n", "total_bytes": 18 }),
        "Buy milk and call Ada.",
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file.
    path: String,
    /// What `offset` and `limit` count. Bytes are for files with very long lines.
    #[serde(default)]
    unit: Unit,
    /// How many lines or bytes to skip.
    #[serde(default)]
    offset: u64,
    /// How many lines or bytes to return at most: 500 lines or 65536 bytes if not given.
    #[schemars(range(min = 1))]
    limit: Option<u64>,
}

#[derive(Default, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Unit {
    #[default]
    Lines,
    Bytes,
}

#[derive(Serialize, JsonSchema)]
struct Content {
    text: String,
    /// The size of the whole file.
    total_bytes: u64,
    /// Where the next part begins, if this is not the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    /// What was left out, if something was.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// A part of a file as it was read.
#[derive(Default)]
struct Part {
    bytes: Vec<u8>,
    next_offset: Option<u64>,
    note: Option<String>,
}

fn read(roots: &Roots, arguments: &Arguments) -> Result<Content, Error> {
    let path = roots.resolve(&arguments.path)?;
    let failed = |error: io::Error| roots.explain(&error, "read", &path);
    roots.may_open(&path, "read")?;
    let mut file = File::open(&path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    // Some systems open a directory and fail at the first read, with less to say.
    if metadata.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    let total_bytes = metadata.len();
    if is_binary(&mut file).map_err(failed)? {
        return Err(Error::correctable(format!(
            "`{}` is not text: a binary file of {total_bytes} bytes; choose another one",
            roots.display(&path)
        )));
    }
    let part = match arguments.unit {
        Unit::Lines => lines(
            file,
            arguments.offset,
            arguments.limit.unwrap_or(DEFAULT_LINES),
        ),
        Unit::Bytes => bytes(file, arguments.offset, arguments.limit.unwrap_or(MAX_BYTES)),
    };
    let part = part.map_err(failed)?;
    Ok(Content {
        text: String::from_utf8_lossy(&part.bytes).into_owned(),
        total_bytes,
        next_offset: part.next_offset,
        note: part.note,
    })
}

/// Whether a zero byte is among the first; leaves the file at its beginning.
pub fn is_binary(file: &mut File) -> io::Result<bool> {
    let mut start = Vec::new();
    file.take(SNIFFED_BYTES).read_to_end(&mut start)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(start.contains(&0))
}

fn lines(file: File, offset: u64, limit: u64) -> io::Result<Part> {
    let mut reader = BufReader::new(file);
    for line in 0..offset {
        if reader.skip_until(b'\n')? == 0 {
            let note = format!("the file has only {line} lines");
            return Ok(Part {
                note: Some(note),
                ..Part::default()
            });
        }
    }
    let mut part = Part::default();
    let mut next = offset;
    while next < offset.saturating_add(limit.max(1)) {
        let mut line = Vec::new();
        reader
            .by_ref()
            .take(MAX_BYTES)
            .read_until(b'\n', &mut line)?;
        if !part.bytes.is_empty() && (part.bytes.len() + line.len()) as u64 > MAX_BYTES {
            // This line goes whole into the next answer.
            part.next_offset = Some(next);
            return Ok(part);
        }
        next += 1;
        part.bytes.append(&mut line);
        if !part.bytes.ends_with(b"\n") && reader.skip_until(b'\n')? > 0 {
            part.note = Some(format!(
                "line {next} is longer than {MAX_BYTES} bytes and was cut; read it with unit `bytes`"
            ));
        }
        if reader.fill_buf()?.is_empty() {
            return Ok(part);
        }
    }
    part.next_offset = Some(next);
    Ok(part)
}

fn bytes(mut file: File, offset: u64, limit: u64) -> io::Result<Part> {
    let total = file.seek(SeekFrom::End(0))?;
    if offset > total {
        let note = format!("the file has only {total} bytes");
        return Ok(Part {
            note: Some(note),
            ..Part::default()
        });
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    // Less than one character could not make progress.
    file.take(limit.clamp(4, MAX_BYTES))
        .read_to_end(&mut bytes)?;
    if offset + (bytes.len() as u64) < total {
        bytes.truncate(bytes.len() - unfinished(&bytes));
    }
    let next = offset + bytes.len() as u64;
    Ok(Part {
        bytes,
        next_offset: (next < total).then_some(next),
        note: None,
    })
}

/// How many bytes at the end begin a UTF-8 character without completing it.
fn unfinished(bytes: &[u8]) -> usize {
    for (index, byte) in bytes.iter().rev().take(3).enumerate() {
        let length = match byte {
            0x80..=0xBF => continue,
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF7 => 4,
            _ => 1,
        };
        return if length > index + 1 { index + 1 } else { 0 };
    }
    0
}
