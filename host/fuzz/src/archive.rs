//! The file of a backup: nothing panics, no member is larger than the archive, and members that are read are read again once
//! written.

use toolhold_files::archive::{ArchiveError, ArchiveWriter, MAX_NAME_BYTES, read_archive, sealed};

pub fn run(data: &[u8]) {
    check(data);
    // With a SHA-256 that fits, which no search finds.
    check(&sealed(data));
}

fn check(archive: &[u8]) {
    let Ok(found) = members(archive) else {
        return;
    };
    let mut writer = ArchiveWriter::new(Vec::new(), 0);
    for (name, content) in &found {
        if let Err(error) = writer.add(name, content.len() as u64, &**content) {
            panic!("{name:?} was read, and cannot be written: {error}");
        }
    }
    let written = writer.finish().map(|written| members(&written));
    assert!(
        matches!(&written, Ok(Ok(again)) if *again == found),
        "{written:?}"
    );
}

fn members(archive: &[u8]) -> Result<Vec<(String, Vec<u8>)>, ArchiveError> {
    let mut found = Vec::new();
    let mut all = 0;
    read_archive(archive, |name, bytes, content| {
        let mut read = Vec::new();
        content.read_to_end(&mut read)?;
        all += read.len();
        assert!(all <= archive.len() && read.len() as u64 <= bytes);
        assert!(!name.is_empty() && name.len() <= MAX_NAME_BYTES);
        found.push((name.to_owned(), read));
        Ok::<_, ArchiveError>(())
    })?;
    Ok(found)
}
