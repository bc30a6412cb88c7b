//! The file of a backup: a tar archive in one exact form, which `tar` lists and unpacks.
//!
//! Its members are regular files. The last one has the SHA-256 of all bytes before it. A reader takes only what a
//! writer writes: it makes each header again from the name, the size and the time that the header gives, and compares
//! all 512 bytes. So there are no links, no devices, no sparse files and no second way to write a name, and no member is
//! larger than the bytes that the archive has for it.

use sha2::{Digest as _, Sha256};
use std::io::{self, Read, Write};
use thiserror::Error;
use toolhold_json::hex::hex;

const BLOCK: usize = 512;
/// Bytes of a name in a header. A longer one stands in a member of its own before, as GNU tar writes it.
const HEADER_NAME_BYTES: usize = 100;
/// Most bytes of a name.
pub const MAX_NAME_BYTES: usize = 1_024;
/// Most members of an archive, the last one aside.
const MAX_MEMBERS: u64 = 1_000_000;
const LONG_NAME: &[u8] = b"././@LongLink";
const FILE: u8 = b'0';
const NAME: u8 = b'L';
/// The last member.
const SEAL: &str = "sha256";
/// Sizes from here on do not fit eleven octal digits, and are written as binary numbers.
const OCTAL_LIMIT: u64 = 1 << 33;

/// Why a file is no backup that can be restored.
#[derive(Debug, Error)]
pub enum ArchiveError {
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error(
        "it is no archive of `toolhold backup`, or was changed since: byte {at} begins no member"
    )]
    Form { at: u64 },
    #[error("it ends within a member: a part of the archive is missing")]
    CutOff,
    #[error("its SHA-256 is not the one that was written: bytes of it were changed")]
    Changed,
    #[error("it goes on after its end")]
    Longer,
    #[error("it has more than {MAX_MEMBERS} members")]
    TooMany,
}

/// Writes an archive.
#[derive(Debug)]
pub struct ArchiveWriter<W> {
    out: W,
    hasher: Sha256,
    members: u64,
    made_s: u64,
}

impl<W: Write> ArchiveWriter<W> {
    /// `made_s`: the time that all members have, in seconds since 1970.
    pub fn new(out: W, made_s: u64) -> Self {
        Self {
            out,
            hasher: Sha256::new(),
            members: 0,
            made_s,
        }
    }

    /// Adds a member with the first `bytes` bytes of `content`.
    ///
    /// # Errors
    /// There are too many members, the name is too long or empty, the content is shorter, or what the file systems say.
    pub fn add(&mut self, name: &str, bytes: u64, content: impl Read) -> io::Result<()> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        // The last one does not count.
        self.members += u64::from(name != SEAL);
        if self.members > MAX_MEMBERS {
            return Err(io::Error::other(ArchiveError::TooMany));
        }
        if name.len() > HEADER_NAME_BYTES {
            let long = [name.as_bytes(), &[0]].concat();
            self.put(&header(LONG_NAME, NAME, long.len() as u64, self.made_s))?;
            self.put(&long)?;
            self.pad(long.len() as u64)?;
        }
        self.put(&header(name.as_bytes(), FILE, bytes, self.made_s))?;
        let mut left = bytes;
        let mut content = content.take(bytes);
        let mut piece = vec![0; 64 << 10];
        while left > 0 {
            let read = match content.read(&mut piece) {
                Ok(0) => return Err(io::Error::other("it became shorter while it was read")),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.put(&piece[..read])?;
            left -= read as u64;
        }
        self.pad(bytes)
    }

    /// Adds the last member and the end, and returns what was written to.
    ///
    /// # Errors
    /// What the file system says.
    pub fn finish(mut self) -> io::Result<W> {
        let seal = seal(&self.hasher);
        self.add(SEAL, seal.len() as u64, seal.as_bytes())?;
        self.put(&[0; 2 * BLOCK])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn pad(&mut self, bytes: u64) -> io::Result<()> {
        self.put(&[0; BLOCK][..padding(bytes)])
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.out.write_all(bytes)
    }
}

/// The archive with these bytes before its last member: for `host/fuzz`, which would not find a SHA-256 that fits.
#[doc(hidden)]
pub fn sealed(body: &[u8]) -> Vec<u8> {
    let mut writer = ArchiveWriter::new(Vec::new(), 0);
    let written = writer.put(body).and_then(|()| writer.finish());
    // Memory can be written.
    written.unwrap_or_default()
}

/// Reads a whole archive, and gives each member to `take`: its name, its size and its content. What `take` leaves of the
/// content is read over. The names are as written: the caller checks them. Content that was taken is not yet known to be
/// unchanged: that is known when this returns.
///
/// # Errors
/// [`ArchiveError`], or what `take` returns.
pub fn read_archive<E: From<ArchiveError>>(
    input: impl Read,
    mut take: impl FnMut(&str, u64, &mut dyn Read) -> Result<(), E>,
) -> Result<(), E> {
    let mut input = HashedInput::new(input);
    let mut members = 0;
    loop {
        let (before, at) = (input.hasher.clone(), input.at);
        let (name, bytes) = input.member()?;
        if name == SEAL {
            return Ok(input.ends(&before, bytes, at)?);
        }
        members += 1;
        if members > MAX_MEMBERS {
            return Err(ArchiveError::TooMany.into());
        }
        let mut content = (&mut input).take(bytes);
        take(&name, bytes, &mut content)?;
        io::copy(&mut content, &mut io::sink()).map_err(ArchiveError::Read)?;
        if content.limit() > 0 {
            return Err(ArchiveError::CutOff.into());
        }
        input.padding(bytes)?;
    }
}

/// An archive, with the hash of what was read of it.
struct HashedInput<R> {
    input: R,
    hasher: Sha256,
    at: u64,
}

impl<R: Read> Read for HashedInput<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        self.at += read as u64;
        Ok(read)
    }
}

impl<R: Read> HashedInput<R> {
    fn new(input: R) -> Self {
        Self {
            input,
            hasher: Sha256::new(),
            at: 0,
        }
    }

    /// The name and the size of the next member.
    fn member(&mut self) -> Result<(String, u64), ArchiveError> {
        let at = self.at;
        let form = || ArchiveError::Form { at };
        let mut header = self.header()?;
        let mut long = None;
        if header.kind == NAME {
            let most = MAX_NAME_BYTES as u64 + 1;
            let is_name = header.name == LONG_NAME && header.bytes <= most;
            if !is_name || header.bytes <= HEADER_NAME_BYTES as u64 + 1 {
                return Err(form());
            }
            // Bounded just above.
            let mut name = vec![0; header.bytes as usize];
            self.exact(&mut name)?;
            self.padding(header.bytes)?;
            if name.pop() != Some(0) {
                return Err(form());
            }
            header = self.header()?;
            if name.get(..HEADER_NAME_BYTES) != Some(header.name.as_slice()) {
                return Err(form());
            }
            long = Some(name);
        }
        if header.kind != FILE {
            return Err(form());
        }
        let name = String::from_utf8(long.unwrap_or(header.name)).map_err(|_| form())?;
        Ok((name, header.bytes))
    }

    fn header(&mut self) -> Result<MemberHeader, ArchiveError> {
        let at = self.at;
        let mut block = [0; BLOCK];
        self.exact(&mut block)?;
        MemberHeader::of(&block).ok_or(ArchiveError::Form { at })
    }

    /// Reads the bytes that fill the last block of a member.
    fn padding(&mut self, bytes: u64) -> Result<(), ArchiveError> {
        let at = self.at;
        let mut block = [0; BLOCK];
        let rest = &mut block[..padding(bytes)];
        self.exact(rest)?;
        if rest.iter().any(|byte| *byte != 0) {
            return Err(ArchiveError::Form { at });
        }
        Ok(())
    }

    /// Reads the content of the last member, and the end. `before`: the hash of what was read before that member, which
    /// began at byte `at`.
    fn ends(mut self, before: &Sha256, bytes: u64, at: u64) -> Result<(), ArchiveError> {
        let expected = seal(before);
        if bytes != expected.len() as u64 {
            return Err(ArchiveError::Form { at });
        }
        let mut written = vec![0; expected.len()];
        self.exact(&mut written)?;
        self.padding(bytes)?;
        if written != expected.as_bytes() {
            return Err(ArchiveError::Changed);
        }
        let at = self.at;
        let mut end = [0; 2 * BLOCK];
        self.exact(&mut end)?;
        if end != [0; 2 * BLOCK] {
            return Err(ArchiveError::Form { at });
        }
        let mut more = (&mut self).take(1);
        match io::copy(&mut more, &mut io::sink())? {
            0 => Ok(()),
            _ => Err(ArchiveError::Longer),
        }
    }

    fn exact(&mut self, buffer: &mut [u8]) -> Result<(), ArchiveError> {
        self.read_exact(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ArchiveError::CutOff,
            _ => ArchiveError::Read(error),
        })
    }
}

/// The fields of a header.
struct MemberHeader {
    name: Vec<u8>,
    kind: u8,
    bytes: u64,
}

impl MemberHeader {
    /// Absent: no writer writes these bytes.
    fn of(block: &[u8; BLOCK]) -> Option<Self> {
        let name = &block[..HEADER_NAME_BYTES];
        let end = name.iter().position(|byte| *byte == 0);
        let name = &name[..end.unwrap_or(HEADER_NAME_BYTES)];
        let (bytes, made_s) = (number(&block[SIZE])?, number(&block[TIME])?);
        let kind = block[KIND];
        let is_exact = !name.is_empty() && header(name, kind, bytes, made_s) == *block;
        is_exact.then(|| Self {
            name: name.to_owned(),
            kind,
            bytes,
        })
    }
}

const SIZE: std::ops::Range<usize> = 124..136;
const TIME: std::ops::Range<usize> = 136..148;
const SUM: std::ops::Range<usize> = 148..156;
const KIND: usize = 156;

/// The header of a member, in the form `ustar`. Of a longer name it has the beginning.
fn header(name: &[u8], kind: u8, bytes: u64, made_s: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let name = &name[..name.len().min(HEADER_NAME_BYTES)];
    block[..name.len()].copy_from_slice(name);
    // Mode, user and group: only the owner reads what is unpacked.
    block[100..108].copy_from_slice(b"0000600\0");
    block[108..116].copy_from_slice(b"0000000\0");
    block[116..124].copy_from_slice(b"0000000\0");
    block[SIZE].copy_from_slice(&digits(bytes));
    block[TIME].copy_from_slice(&digits(made_s));
    block[SUM].fill(b' ');
    block[KIND] = kind;
    block[257..263].copy_from_slice(b"ustar\0");
    block[263..265].copy_from_slice(b"00");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[SUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// A number of a header: eleven octal digits and a NUL, or a mark and a binary number.
fn digits(value: u64) -> [u8; 12] {
    let mut field = [0; 12];
    if value < OCTAL_LIMIT {
        field[..11].copy_from_slice(format!("{value:011o}").as_bytes());
    } else {
        field[0] = 0x80;
        field[4..].copy_from_slice(&value.to_be_bytes());
    }
    field
}

/// The number of a field. A caller compares the field with what [`digits`] makes of it.
fn number(field: &[u8]) -> Option<u64> {
    if field.first() == Some(&0x80) {
        let value = field.get(4..)?.try_into().ok()?;
        return Some(u64::from_be_bytes(value));
    }
    let text = std::str::from_utf8(field.get(..11)?).ok()?;
    u64::from_str_radix(text, 8).ok()
}

fn padding(bytes: u64) -> usize {
    let rest = (bytes % BLOCK as u64) as usize;
    (BLOCK - rest) % BLOCK
}

/// The content of the last member.
fn seal(hasher: &Sha256) -> String {
    format!("{}\n", hex(&hasher.clone().finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = ArchiveWriter::new(Vec::new(), 1_700_000_000);
        for (name, content) in members {
            writer.add(name, content.len() as u64, *content).unwrap();
        }
        writer.finish().unwrap()
    }

    fn members(archive: &[u8]) -> Result<Vec<(String, Vec<u8>)>, ArchiveError> {
        let mut found = Vec::new();
        read_archive(archive, |name, bytes, content| {
            let mut read = Vec::new();
            content.read_to_end(&mut read)?;
            // Fewer only if the archive is cut off.
            assert!(read.len() as u64 <= bytes);
            found.push((name.to_owned(), read));
            Ok::<_, ArchiveError>(())
        })?;
        Ok(found)
    }

    fn some() -> Vec<(&'static str, Vec<u8>)> {
        vec![
            ("about.json", b"{}".to_vec()),
            ("state/empty", Vec::new()),
            ("state/block", vec![1; BLOCK]),
            ("state/more", vec![2; 70_000]),
        ]
    }

    #[test]
    fn a_written_archive_is_read() {
        let long = format!("state/{}", "n".repeat(300));
        let edge = "e".repeat(HEADER_NAME_BYTES);
        let over = "o".repeat(HEADER_NAME_BYTES + 1);
        let mut written = some();
        for name in [&long, &edge, &over] {
            written.push((name.as_str(), name.as_bytes().to_vec()));
        }
        let borrowed: Vec<(&str, &[u8])> = written.iter().map(|(n, c)| (*n, &**c)).collect();
        let read = members(&archive(&borrowed)).unwrap();
        let read: Vec<(&str, Vec<u8>)> = read.iter().map(|(n, c)| (&**n, c.clone())).collect();
        assert_eq!(read, written);
        assert_eq!(archive(&[]).len(), 4 * BLOCK);
    }

    /// A part of all bytes, because each is hashed with all others.
    #[test]
    fn no_changed_archive_is_read_to_its_end() {
        let some = some();
        let long = "l".repeat(200);
        let mut borrowed: Vec<(&str, &[u8])> = some.iter().map(|(n, c)| (*n, &**c)).collect();
        borrowed.truncate(3);
        borrowed.push((&long, b"x"));
        let whole = archive(&borrowed);
        members(&whole).unwrap();
        for at in (0..whole.len()).step_by(13) {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(members(&changed).is_err(), "byte {at}");
        }
        for end in (0..whole.len()).step_by(13) {
            assert!(members(&whole[..end]).is_err(), "{end} bytes");
        }
        let longer = [&*whole, &[0]].concat();
        assert!(matches!(members(&longer), Err(ArchiveError::Longer)));
    }

    #[test]
    fn other_kinds_of_members_are_refused() {
        for kind in [b'1', b'2', b'5', b'x', b'g', b'S', 0] {
            let mut foreign = header(b"state/grants.toml", kind, 0, 0).to_vec();
            foreign.extend(archive(&[]));
            let refused = members(&foreign).unwrap_err();
            assert!(matches!(refused, ArchiveError::Form { at: 0 }), "{refused}");
        }
    }

    #[test]
    fn a_size_beyond_the_archive_is_a_part_that_is_missing() {
        for bytes in [1, OCTAL_LIMIT - 1, OCTAL_LIMIT, u64::MAX] {
            let head = header(b"state/toolhold.db", FILE, bytes, 0);
            assert_eq!(MemberHeader::of(&head).unwrap().bytes, bytes);
            let refused = members(&head).unwrap_err();
            assert!(matches!(refused, ArchiveError::CutOff), "{refused}");
        }
    }
}
