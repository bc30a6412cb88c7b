//! Compression that nothing asked for, taken off a body.
//!
//! Requests of this host ask for no compression. Proxies and servers compress all the same, most of them with gzip, and
//! others leave the header in place on a body that they expanded. So gzip is recognised by the first bytes of a body, and not
//! by its header. What a body becomes is bounded by its own size: a reader's limit alone would let each answer take as
//! much as the limit for a few bytes on the wire.

use bytes::{Bytes, BytesMut};
use flate2::write::{DeflateDecoder, GzDecoder, ZlibDecoder};
use futures_util::stream::{self, Stream, StreamExt as _};
use std::io::{self, Write};
use std::mem;
use thiserror::Error;

/// Bytes of a body that are expanded at a time. DEFLATE makes at most 1,032 times as many of them.
const PIECE_BYTES: usize = 1 << 10;
/// Bytes that every body may become.
const FREE_BYTES: u64 = 1 << 20;
/// Most bytes that one byte of a larger body may become. Event streams, which repeat themselves, compress about thirtyfold.
const MAX_RATIO: u64 = 200;
/// Most members of a gzip body, one behind the other: servers send one. Each takes some 80 KiB of state, and an empty one has
/// 20 bytes.
const MAX_MEMBERS: u32 = 256;

/// Compressions that are read, by their names.
const READ: [&str; 3] = ["gzip", "x-gzip", DEFLATE];
const DEFLATE: &str = "deflate";
/// Maximum compressions that an error names.
const MAX_NAMED: usize = 8;
/// Compressions that are known by name and not read.
const UNREAD: [&str; 5] = ["br", "zstd", "compress", "x-compress", "dcb"];

/// Why a compressed body cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EncodingError {
    /// Its header names a compression that this crate does not read.
    #[error(
        "it is compressed with {name}, which was not asked for: have the server, or what stands before it, send it \
         uncompressed"
    )]
    Unread { name: String },
    /// Its header names more compressions, one inside the other, than this crate takes off.
    #[error(
        "it is compressed {count} times ({names}), which was not asked for: have the server, or what stands before it, \
         send it uncompressed"
    )]
    TooMany { count: usize, names: String },
    /// The bytes are not what they begin as.
    #[error("its {name} compression, which was not asked for, is broken")]
    Corrupt { name: &'static str },
    /// The body becomes larger than its size allows.
    #[error(
        "its {name} compression, which was not asked for, makes more than {MAX_RATIO} times as many bytes of it"
    )]
    TooDense { name: &'static str },
    /// The body is compressed in very many pieces, each by itself.
    #[error("its gzip compression, which was not asked for, has more than {MAX_MEMBERS} members")]
    TooManyMembers,
}

/// Takes the compression off one body.
#[derive(Debug)]
pub struct Expander {
    coding: Coding,
    /// Takes the compression off what this one gives, of a body that is compressed twice.
    inner: Option<Box<Expander>>,
    /// Bytes taken, compressed.
    taken: u64,
    /// Bytes given, expanded.
    given: u64,
}

#[derive(Debug)]
enum Coding {
    /// Too few bytes to tell: those that came.
    Undecided {
        head: Vec<u8>,
        is_deflate: bool,
    },
    Plain,
    Gzip(Box<GzipMembers>),
    Zlib(Box<ZlibDecoder<Vec<u8>>>),
    /// DEFLATE without the frame that the name stands for (RFC 9110, 8.4.1.2), as some servers send it.
    Deflate(Box<DeflateDecoder<Vec<u8>>>),
}

/// A gzip body: members, one behind the other.
#[derive(Debug)]
struct GzipMembers {
    /// The member that is being expanded.
    member: GzDecoder<Vec<u8>>,
    /// Number of members that have begun.
    begun: u32,
}

impl Expander {
    /// `content_encoding`: the header of that name.
    ///
    /// # Errors
    /// The header names a compression that is not read.
    pub fn new(content_encoding: Option<&str>) -> Result<Self, EncodingError> {
        let named = content_encoding.unwrap_or_default().to_ascii_lowercase();
        let names: Vec<&str> = named.split(',').map(str::trim).collect();
        if let Some(name) = names.iter().find(|name| UNREAD.contains(name)) {
            return Err(EncodingError::Unread {
                name: (*name).to_owned(),
            });
        }
        // The last one was applied last.
        let is_read = |name: &&&str| READ.contains(*name);
        let layers: Vec<&str> = names.iter().filter(is_read).copied().collect();
        match layers.as_slice() {
            [] => Ok(Self::undecided(false)),
            [only] => Ok(Self::undecided(*only == DEFLATE)),
            [inner, outer] => Ok(Self {
                inner: Some(Box::new(Self::undecided(*inner == DEFLATE))),
                ..Self::undecided(*outer == DEFLATE)
            }),
            layers => Err(EncodingError::TooMany {
                count: layers.len(),
                names: layers[..layers.len().min(MAX_NAMED)].join(", "),
            }),
        }
    }

    fn undecided(is_deflate: bool) -> Self {
        Self {
            coding: Coding::Undecided {
                head: Vec::new(),
                is_deflate,
            },
            ..Self::plain()
        }
    }

    /// Leaves a body as it is.
    pub fn plain() -> Self {
        Self {
            coding: Coding::Plain,
            inner: None,
            taken: 0,
            given: 0,
        }
    }

    /// Takes some of the next bytes of the body, and returns what they become: perhaps nothing, and at most about 1 MiB of
    /// compressed ones.
    ///
    /// # Errors
    /// The compression is broken, or the body becomes too large for its size.
    pub fn push(&mut self, bytes: &mut Bytes) -> Result<Bytes, EncodingError> {
        let expanded = self.push_outer(bytes)?;
        self.expand_inner(expanded)
    }

    /// Expands what the outer compression gave, of a body that is compressed twice.
    fn expand_inner(&mut self, mut bytes: Bytes) -> Result<Bytes, EncodingError> {
        let Some(inner) = &mut self.inner else {
            return Ok(bytes);
        };
        let mut expanded = BytesMut::new();
        while !bytes.is_empty() {
            expanded.extend_from_slice(&inner.push(&mut bytes)?);
            // Weighed against the bytes that came, too, and while they are expanded.
            let given = inner.given;
            if given > FREE_BYTES && given > self.taken.saturating_mul(MAX_RATIO) {
                let name = inner.coding.name();
                return Err(EncodingError::TooDense { name });
            }
        }
        Ok(expanded.freeze())
    }

    fn push_outer(&mut self, bytes: &mut Bytes) -> Result<Bytes, EncodingError> {
        if let Coding::Undecided { head, is_deflate } = &mut self.coding {
            let wanted = 2_usize.saturating_sub(head.len()).min(bytes.len());
            let first = bytes.split_to(wanted);
            head.extend_from_slice(&first);
            let Some(coding) = Coding::of(head, *is_deflate) else {
                return Ok(Bytes::new());
            };
            let head = mem::take(head);
            self.coding = coding;
            return self.expand(&head);
        }
        if matches!(self.coding, Coding::Plain) {
            return Ok(mem::take(bytes));
        }
        let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
        self.expand(&piece)
    }

    /// Returns the last bytes, at the end of the body. The rest of a body that was cut is not missed here.
    pub fn finish(&mut self) -> Bytes {
        let rest = match mem::replace(&mut self.coding, Coding::Plain) {
            Coding::Undecided { head, .. } => Bytes::from(head),
            Coding::Plain | Coding::Gzip(_) | Coding::Zlib(_) | Coding::Deflate(_) => Bytes::new(),
        };
        let Some(mut inner) = self.inner.take() else {
            return rest;
        };
        // Of at most two bytes, which begin no compression that is whole.
        [rest, inner.finish()].concat().into()
    }

    fn expand(&mut self, piece: &[u8]) -> Result<Bytes, EncodingError> {
        let name = self.coding.name();
        let corrupt = |_: io::Error| EncodingError::Corrupt { name };
        let expanded = match &mut self.coding {
            Coding::Undecided { .. } | Coding::Plain => return Ok(Bytes::copy_from_slice(piece)),
            Coding::Gzip(members) => {
                if !members.write(piece).map_err(corrupt)? {
                    return Err(EncodingError::TooManyMembers);
                }
                mem::take(members.member.get_mut())
            }
            Coding::Zlib(decoder) => {
                written(decoder, piece).map_err(corrupt)?;
                mem::take(decoder.get_mut())
            }
            Coding::Deflate(decoder) => {
                written(decoder, piece).map_err(corrupt)?;
                mem::take(decoder.get_mut())
            }
        };
        self.taken = self.taken.saturating_add(piece.len() as u64);
        self.given = self.given.saturating_add(expanded.len() as u64);
        if self.given > FREE_BYTES && self.given > self.taken.saturating_mul(MAX_RATIO) {
            return Err(EncodingError::TooDense { name });
        }
        Ok(expanded.into())
    }
}

impl Coding {
    /// By the first bytes; `None` if they are too few.
    fn of(head: &[u8], is_deflate: bool) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Self::Gzip(Box::new(GzipMembers {
                member: GzDecoder::new(Vec::new()),
                begun: 1,
            }))),
            // RFC 1950: the method, and a checksum of both bytes.
            [method, flags, ..]
                if is_deflate
                    && method & 0x0f == 8
                    && u16::from_be_bytes([*method, *flags]).is_multiple_of(31) =>
            {
                Some(Self::Zlib(Box::new(ZlibDecoder::new(Vec::new()))))
            }
            [] | [0x1f] => None,
            [_] if is_deflate => None,
            [first, second, ..] if is_deflate && !begins_text(*first, *second) => {
                Some(Self::Deflate(Box::new(DeflateDecoder::new(Vec::new()))))
            }
            _ => Some(Self::Plain),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Undecided { .. } | Self::Plain => "identity",
            Self::Gzip(_) => "gzip",
            Self::Zlib(_) | Self::Deflate(_) => "deflate",
        }
    }
}

/// True for two bytes that a body of events, JSON or a page may begin with. The header stays in place on bodies that a
/// proxy expanded.
fn begins_text(first: u8, second: u8) -> bool {
    // The third kind of block is reserved.
    let is_block = (first >> 1) & 0b11 != 0b11;
    let is_field = [b"da", b"ev", b"id", b"re", b"er", &[0xef, 0xbb]].contains(&&[first, second]);
    let is_text = second.is_ascii_graphic() || second.is_ascii_whitespace();
    let is_begin = b"{[<: \r\n\t".contains(&first) && is_text;
    !is_block || is_field || is_begin
}

impl GzipMembers {
    /// Expands a piece into the buffer of the member. Returns false if the body has too many members.
    fn write(&mut self, mut piece: &[u8]) -> io::Result<bool> {
        while !piece.is_empty() {
            match self.member.write(piece)? {
                // The member is over, and this is the next one.
                0 => {
                    self.begun += 1;
                    if self.begun > MAX_MEMBERS {
                        return Ok(false);
                    }
                    self.member.try_finish()?;
                    let expanded = mem::take(self.member.get_mut());
                    self.member = GzDecoder::new(expanded);
                }
                taken => piece = piece.get(taken..).unwrap_or_default(),
            }
        }
        self.member.flush()?;
        Ok(true)
    }
}

/// Writes a piece, and all that it becomes into the writer's own buffer.
fn written(decoder: &mut impl Write, piece: &[u8]) -> std::io::Result<()> {
    decoder.write_all(piece)?;
    decoder.flush()
}

/// The body without its compression. `fault` makes an error of the stream of one of the compression, which ends it.
pub fn expanded<S, E>(
    body: S,
    expander: Expander,
    fault: impl Fn(EncodingError) -> E + Send,
) -> impl Stream<Item = Result<Bytes, E>> + Send
where
    S: Stream<Item = Result<Bytes, E>> + Send + Unpin,
    E: Send,
{
    let begin = Expansion {
        body,
        expander,
        fault,
        pending: Bytes::new(),
        is_over: false,
    };
    stream::unfold(begin, |mut state| async move {
        let item = state.next().await?;
        Some((item, state))
    })
}

struct Expansion<S, F> {
    body: S,
    expander: Expander,
    fault: F,
    /// Bytes that came and are not expanded yet.
    pending: Bytes,
    is_over: bool,
}

impl<S, F, E> Expansion<S, F>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    F: Fn(EncodingError) -> E,
{
    async fn next(&mut self) -> Option<Result<Bytes, E>> {
        while !self.is_over {
            if self.pending.is_empty() {
                match self.body.next().await {
                    Some(Ok(bytes)) => self.pending = bytes,
                    Some(Err(error)) => {
                        self.is_over = true;
                        return Some(Err(error));
                    }
                    None => {
                        self.is_over = true;
                        let rest = self.expander.finish();
                        return (!rest.is_empty()).then_some(Ok(rest));
                    }
                }
            }
            match self.expander.push(&mut self.pending) {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Some(Ok(bytes)),
                Err(error) => {
                    self.is_over = true;
                    return Some(Err((self.fault)(error)));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use proptest::prelude::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn deflate(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// The head of a member, and a block of the reserved type.
    fn broken() -> Vec<u8> {
        let mut head = gzip(b"")[..10].to_vec();
        head.extend_from_slice(&[0x07, 0, 0, 0]);
        head
    }

    fn read(
        content_encoding: Option<&str>,
        body: &[u8],
        chunk: usize,
    ) -> Result<Vec<u8>, EncodingError> {
        let mut expander = Expander::new(content_encoding)?;
        let mut out = Vec::new();
        for chunk in body.chunks(chunk) {
            let mut bytes = Bytes::copy_from_slice(chunk);
            while !bytes.is_empty() {
                out.extend_from_slice(&expander.push(&mut bytes)?);
            }
        }
        out.extend_from_slice(&expander.finish());
        Ok(out)
    }

    #[test]
    fn bodies_are_expanded_by_what_they_are_and_not_by_what_is_said() {
        let text = br#"{"error":{"message":"the model is asleep"}}"#;
        for (said, body) in [
            (Some("gzip"), gzip(text)),
            (Some("X-GZip"), gzip(text)),
            (None, gzip(text)),
            (Some("gzip"), text.to_vec()),
            (Some("deflate"), zlib(text)),
            (Some("deflate"), deflate(text)),
            (Some("deflate"), text.to_vec()),
            (Some("gzip, gzip"), gzip(&gzip(text))),
            (Some("deflate, gzip"), gzip(&zlib(text))),
            (Some("deflate, gzip"), gzip(&deflate(text))),
            (Some("gzip, gzip"), gzip(text)),
            (Some("gzip, x-gzip"), text.to_vec()),
            (Some("identity"), text.to_vec()),
            (Some("utf-8"), text.to_vec()),
            (None, text.to_vec()),
            (Some("gzip"), [gzip(&text[..9]), gzip(&text[9..])].concat()),
        ] {
            for chunk in [1, 7, 10_000] {
                let read = read(said, &body, chunk).unwrap();
                assert_eq!(read, text, "{said:?} {chunk}");
            }
        }
        // A header of a compression and a body of one letter, or of none.
        for short in [&b"x"[..], b"\x1f", b""] {
            assert_eq!(read(Some("deflate"), short, 1).unwrap(), short);
        }
    }

    #[test]
    fn pieces_of_a_stream_come_out_when_they_come_in() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        let mut expander = Expander::new(None).unwrap();
        let mut out = Vec::new();
        for n in 0..50 {
            let event = format!("data: {{\"n\":{n}}}\n\n");
            encoder.write_all(event.as_bytes()).unwrap();
            encoder.flush().unwrap();
            let mut bytes = Bytes::from(mem::take(encoder.get_mut()));
            out.clear();
            while !bytes.is_empty() {
                out.extend_from_slice(&expander.push(&mut bytes).unwrap());
            }
            assert_eq!(out, event.as_bytes(), "{n}");
        }
    }

    #[test]
    fn other_compressions_and_broken_ones_are_refused_by_name() {
        let refused = read(Some("br"), b"\x0b\x02\x80", 9).unwrap_err();
        assert!(refused.to_string().contains("br"), "{refused}");
        assert!(read(Some("gzip, zstd"), b"", 1).is_err());
        let refused = read(Some("gzip, gzip,gzip"), b"", 1).unwrap_err();
        assert!(
            refused.to_string().contains("3 times (gzip, gzip, gzip)"),
            "{refused}"
        );
        let refused = read(None, &broken(), 9).unwrap_err();
        assert_eq!(refused, EncodingError::Corrupt { name: "gzip" });
        assert!(refused.to_string().contains("gzip"), "{refused}");
    }

    #[test]
    fn a_body_becomes_no_more_than_its_size_allows() {
        let bomb = gzip(&vec![b' '; 8 << 20]);
        assert!(bomb.len() < 100_000, "{}", bomb.len());
        for chunk in [1, 1_000, bomb.len()] {
            let mut expander = Expander::new(Some("gzip")).unwrap();
            let (mut given, mut largest) = (0, 0);
            let mut fault = None;
            'body: for chunk in bomb.chunks(chunk) {
                let mut bytes = Bytes::copy_from_slice(chunk);
                while !bytes.is_empty() {
                    match expander.push(&mut bytes) {
                        Ok(piece) => {
                            given += piece.len();
                            largest = largest.max(piece.len());
                        }
                        Err(error) => {
                            fault = Some(error);
                            break 'body;
                        }
                    }
                }
            }
            assert_eq!(fault, Some(EncodingError::TooDense { name: "gzip" }));
            assert!(given < 6 << 20, "{given} of chunks of {chunk}");
            assert!(largest < 6 << 20, "{largest} of chunks of {chunk}");
        }
        let twice = read(Some("gzip, gzip"), &gzip(&bomb), 1_000);
        assert_eq!(twice, Err(EncodingError::TooDense { name: "gzip" }));
        // Members without anything: each costs the host more than the one who sends it.
        let empty = gzip(b"");
        for chunk in [1, 7, 1_000_000] {
            let members = |count: u32| empty.repeat(count as usize);
            let most = read(None, &members(MAX_MEMBERS), chunk);
            assert_eq!(most, Ok(Vec::new()), "{chunk}");
            let more = read(None, &members(MAX_MEMBERS + 1), chunk);
            assert_eq!(more, Err(EncodingError::TooManyMembers), "{chunk}");
        }
        // What repeats itself as events do is read.
        let event = br#"data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"a"}}]}"#;
        let events: Vec<u8> = (0..50_000_u32)
            .flat_map(|n| [&event[..], n.to_string().as_bytes(), b"\n\n"].concat())
            .collect();
        assert_eq!(read(None, &gzip(&events), 5_000).unwrap(), events);
    }

    #[tokio::test]
    async fn a_stream_is_expanded_and_ends_with_its_first_error() {
        let body = gzip(b"one and two");
        let chunks: Vec<Result<Bytes, String>> = vec![
            Ok(Bytes::copy_from_slice(&body[..5])),
            Ok(Bytes::new()),
            Ok(Bytes::copy_from_slice(&body[5..])),
            Err("cut".into()),
            Ok(Bytes::from_static(b"never")),
        ];
        let expander = Expander::new(None).unwrap();
        let stream = expanded(stream::iter(chunks), expander, |error| error.to_string());
        let read: Vec<_> = stream.collect().await;
        let (last, pieces) = read.split_last().unwrap();
        assert_eq!(*last, Err("cut".into()));
        let text: Vec<u8> = pieces.iter().flatten().flatten().copied().collect();
        assert_eq!(text, b"one and two");

        let chunks = stream::iter([Ok::<_, String>(Bytes::from(broken()))]);
        let expander = Expander::new(None).unwrap();
        let stream = expanded(chunks, expander, |error| error.to_string());
        let read: Vec<_> = stream.collect().await;
        assert!(read.last().unwrap().is_err(), "{read:?}");
    }

    proptest! {
        #[test]
        fn no_bytes_are_fatal_and_chunks_change_nothing(
            noise in prop::collection::vec(any::<u8>(), 0..200),
            chunk in 1_usize..50,
            is_gzip in any::<bool>(),
        ) {
            let body = if is_gzip { [&[0x1f_u8, 0x8b, 8, 0][..], noise.as_slice()].concat() } else { noise };
            let whole = read(None, &body, body.len().max(1));
            let pieces = read(None, &body, chunk);
            prop_assert_eq!(pieces.is_ok(), whole.is_ok());
            if let (Ok(pieces), Ok(whole)) = (pieces, whole) {
                prop_assert_eq!(pieces, whole);
            }
        }

        #[test]
        fn a_compressed_body_comes_back(
            text in prop::collection::vec(any::<u8>(), 0..2_000),
            chunk in 1_usize..500,
        ) {
            prop_assert_eq!(read(None, &gzip(&text), chunk).unwrap(), text.clone());
            prop_assert_eq!(read(Some("deflate"), &zlib(&text), chunk).unwrap(), text);
        }
    }
}
