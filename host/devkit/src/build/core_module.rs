//! A core module as bytes: its sections, and the module without what only a debugger reads.

use std::fs;
use std::path::Path;

use super::BuildError;

pub const MAGIC: &[u8] = b"\0asm\x01\0\0\0";
const CUSTOM: u8 = 0;
/// How the names of DWARF's sections begin.
const DEBUG: &[u8] = b".debug_";
/// The section of names, and the part of it that has those of functions.
const NAMES: &[u8] = b"name";
const FUNCTION_NAMES: u8 = 1;

/// The sections of a module, each with its id; none if it is not one.
pub fn sections(module: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut rest = module.strip_prefix(MAGIC)?;
    let mut sections = Vec::new();
    while let Some((&id, after)) = rest.split_first() {
        let (size, after) = unsigned(after)?;
        let (section, following) = after.split_at_checked(usize::try_from(size).ok()?)?;
        sections.push((id, section));
        rest = following;
    }
    Some(sections)
}

/// Appends a section; none if it is too large for one.
pub fn append(out: &mut Vec<u8>, id: u8, section: &[u8]) -> Option<()> {
    out.push(id);
    out.extend(leb(u32::try_from(section.len()).ok()?));
    out.extend(section);
    Some(())
}

/// Takes the debug information out of the module in this file, and leaves the names of its functions, which a trap
/// tells. The compiler writes both or neither. A file that is no module is left as it is, for others to refuse. Returns the
/// module as it was.
pub fn keep_names(core: &Path) -> Result<Vec<u8>, BuildError> {
    let module = fs::read(core).map_err(BuildError::io("read", core))?;
    if let Some(smaller) = without_debug(&module) {
        fs::write(core, smaller).map_err(BuildError::io("write", core))?;
    }
    Ok(module)
}

fn without_debug(module: &[u8]) -> Option<Vec<u8>> {
    let mut out = MAGIC.to_vec();
    for (id, section) in sections(module)? {
        if id == CUSTOM {
            let (length, named) = unsigned(section)?;
            let (name, content) = named.split_at_checked(usize::try_from(length).ok()?)?;
            if name.starts_with(DEBUG) {
                continue;
            }
            if name == NAMES {
                append(&mut out, id, &function_names(content)?)?;
                continue;
            }
        }
        append(&mut out, id, section)?;
    }
    Some(out)
}

/// The section of names with those of functions alone. The module's own name is that of the file it was linked as, another
/// one in each build.
fn function_names(mut content: &[u8]) -> Option<Vec<u8>> {
    let mut section = leb(u32::try_from(NAMES.len()).ok()?);
    section.extend(NAMES);
    while let Some((&id, after)) = content.split_first() {
        let (size, after) = unsigned(after)?;
        let (names, following) = after.split_at_checked(usize::try_from(size).ok()?)?;
        if id == FUNCTION_NAMES {
            append(&mut section, id, names)?;
        }
        content = following;
    }
    Some(section)
}

/// An unsigned LEB128 number of at most 32 bits, and what follows it.
pub fn unsigned(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((u32::try_from(value).ok()?, &bytes[index + 1..]));
        }
    }
    None
}

pub fn leb(mut value: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_information_goes_and_names_of_functions_stay() {
        let custom = |name: &[u8], content: &[u8]| {
            let mut section = leb(u32::try_from(name.len()).unwrap());
            section.extend(name);
            section.extend(content);
            section
        };
        let module = |customs: &[(&[u8], &[u8])]| {
            let mut out = MAGIC.to_vec();
            append(&mut out, 5, &[1, 0, 1]).unwrap();
            for (name, content) in customs {
                append(&mut out, CUSTOM, &custom(name, content)).unwrap();
            }
            out
        };
        let long = [7; 200];
        let functions = [1, 4, 1, 0, 1, b'f'];
        // The module's name, those of functions and those of locals.
        let names = [&[0, 2, 1, b'm'][..], &functions, &[2, 1, 0]].concat();
        let built = module(&[
            (b".debug_info", &long),
            (NAMES, &names),
            (b".debug_line", &long),
            (b"producers", &long),
        ]);
        let kept = module(&[(NAMES, &functions), (b"producers", &long)]);
        assert_eq!(without_debug(&built), Some(kept));
        assert_eq!(without_debug(b"\0asm\x0d\0\x01\0"), None);
        assert_eq!(without_debug(&built[..built.len() - 1]), None);
        assert_eq!(without_debug(&module(&[(NAMES, &[1, 9])])), None);
    }
}
