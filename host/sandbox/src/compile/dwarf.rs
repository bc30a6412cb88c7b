//! What the compiler's process makes of DWARF: offsets in a component to lines of its source. Nothing here may run in the
//! process that holds other people's calls: DWARF decides how long reading it takes.

use super::lines::{LinesTask, SourceLine};
use addr2line::Context;
use addr2line::gimli::{Dwarf, EndianSlice, LittleEndian};
use std::collections::HashMap;
use std::ops::Range;
use wasmparser::{Encoding, Parser, Payload};

/// Frames of one offset: the function, and those that the compiler put it into.
const MAX_INLINED: usize = 8;
/// Characters of a name, so that the answer is short.
const MAX_CHARS: usize = 300;
/// Begins the names of the sections.
const DEBUG: &str = ".debug_";

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// The lines of each offset.
pub(super) fn lines(task: &LinesTask, input: &[u8]) -> Result<Vec<Vec<SourceLine>>, String> {
    let (component, beside) = input
        .split_at_checked(task.component_bytes)
        .ok_or("the component is not whole")?;
    let modules = core_modules(component)?;
    let beside = if beside.is_empty() {
        Vec::new()
    } else {
        core_modules(beside)?
    };
    let mut contexts: HashMap<usize, Option<Context<Bytes<'_>>>> = HashMap::new();
    let mut line = |offset: usize| {
        let (index, module) = modules
            .iter()
            .enumerate()
            .find(|(_, module)| module.code.contains(&offset))?;
        let context = contexts.entry(index).or_insert_with(|| {
            // The file beside it is of the same code, or of no use.
            let same = beside.iter().find(|it| it.bytes == module.bytes);
            context(same.unwrap_or(module))
        });
        // DWARF counts from the beginning of the code.
        let address = (offset - module.code.start) as u64;
        Some(found(context.as_ref()?, address).unwrap_or_default())
    };
    let offsets = task.offsets.iter();
    Ok(offsets
        .map(|offset| offset.and_then(&mut line).unwrap_or_default())
        .collect())
}

/// A core module in a component, or by itself.
struct CoreModule<'a> {
    /// Its section of code, in bytes of what holds it.
    code: Range<usize>,
    bytes: &'a [u8],
    debug: HashMap<&'a str, &'a [u8]>,
}

fn core_modules(bytes: &[u8]) -> Result<Vec<CoreModule<'_>>, String> {
    let mut found = Vec::new();
    // `None` for components.
    let mut open: Vec<Option<CoreModule<'_>>> = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(|error| error.to_string())? {
            Payload::Version { encoding, .. } => {
                let module = (encoding == Encoding::Module).then(|| CoreModule {
                    code: 0..0,
                    bytes: &[],
                    debug: HashMap::new(),
                });
                open.push(module);
            }
            Payload::CodeSectionStart { range, .. } => {
                if let Some(Some(module)) = open.last_mut() {
                    module.bytes = bytes.get(range.clone()).unwrap_or_default();
                    module.code = range;
                }
            }
            Payload::CustomSection(section) => {
                if let Some(Some(module)) = open.last_mut()
                    && section.name().starts_with(DEBUG)
                {
                    module.debug.insert(section.name(), section.data());
                }
            }
            Payload::End(_) => found.extend(open.pop().flatten()),
            _ => {}
        }
    }
    Ok(found)
}

fn context<'a>(module: &CoreModule<'a>) -> Option<Context<Bytes<'a>>> {
    if module.debug.is_empty() {
        return None;
    }
    let section = |id: addr2line::gimli::SectionId| {
        let bytes = module.debug.get(id.name()).copied().unwrap_or_default();
        Ok::<_, addr2line::gimli::Error>(EndianSlice::new(bytes, LittleEndian))
    };
    Context::from_dwarf(Dwarf::load(section).ok()?).ok()
}

fn found(
    context: &Context<Bytes<'_>>,
    address: u64,
) -> Result<Vec<SourceLine>, addr2line::gimli::Error> {
    let unit = context.find_dwarf_and_unit(address).skip_all_loads();
    let folder = unit.and_then(|unit| unit.comp_dir);
    let folder = folder.map(|it| it.to_string_lossy().into_owned());
    let folder = folder.as_deref().unwrap_or_default();
    let mut frames = context.find_frames(address).skip_all_loads()?;
    let mut lines = Vec::new();
    while lines.len() < MAX_INLINED
        && let Some(frame) = frames.next()?
    {
        let function = frame.function.as_ref();
        let function = function.and_then(|it| it.demangle().ok());
        let place = frame.location;
        let file = place.as_ref().and_then(|it| it.file);
        lines.push(SourceLine {
            function: function.map(|it| cut(&it).into()),
            file: file.map(|it| cut(within(it, folder)).into()),
            line: place.as_ref().and_then(|it| it.line),
            // 0: somewhere in the line.
            column: place.and_then(|it| it.column).filter(|it| *it > 0),
        });
    }
    // A place without any name and number says nothing.
    lines.retain(|it| it.file.is_some() && it.line.is_some());
    Ok(lines)
}

/// The path from the folder in which the compiler ran.
fn within<'a>(file: &'a str, folder: &str) -> &'a str {
    let inside = file.strip_prefix(folder).filter(|_| !folder.is_empty());
    let inside = inside.and_then(|it| it.strip_prefix('/'));
    let path = inside.unwrap_or(file);
    path.strip_prefix("./").unwrap_or(path)
}

/// Its end: of a path that says most.
fn cut(text: &str) -> &str {
    match text.char_indices().rev().nth(MAX_CHARS - 1) {
        Some((start, _)) => &text[start..],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_from_the_folder_of_the_compiler() {
        for (file, folder, told) in [
            ("/src/words/module.c", "/src/words", "module.c"),
            (
                "/src/words/toolhold/json.c",
                "/src/words",
                "toolhold/json.c",
            ),
            ("/src/words2/a.c", "/src/words", "/src/words2/a.c"),
            ("./a.c", "", "a.c"),
            ("/usr/include/a.h", "", "/usr/include/a.h"),
        ] {
            assert_eq!(within(file, folder), told);
        }
        let long = "é".repeat(MAX_CHARS + 5);
        assert_eq!(cut(&long).chars().count(), MAX_CHARS);
        assert_eq!(cut("short"), "short");
    }

    #[test]
    fn what_is_no_component_has_no_lines() {
        let task = |component_bytes| LinesTask {
            component_bytes,
            offsets: vec![Some(3), None, Some(usize::MAX)],
        };
        assert!(lines(&task(9), b"short").is_err());
        assert!(lines(&task(5), b"short").is_err());
        let component = wat::parse_str("(component (core module (func unreachable)))").unwrap();
        let none = vec![Vec::new(); 3];
        assert_eq!(lines(&task(component.len()), &component), Ok(none.clone()));
        // Sections that are empty or cut off.
        let odd = wat::parse_str(
            r#"(component (core module (func unreachable)
                (@custom ".debug_info" "\ff\ff") (@custom ".debug_line" "\ff\ff\ff\ff\ff")))"#,
        )
        .unwrap();
        let anywhere = LinesTask {
            component_bytes: odd.len(),
            offsets: (0..odd.len()).map(Some).collect(),
        };
        let found = lines(&anywhere, &odd).unwrap();
        assert!(found.iter().all(Vec::is_empty), "{found:?}");
    }

    /// A core module beside the component tells lines only if its code is that of the component.
    #[test]
    fn modules_are_told_apart_by_their_code() {
        let component = wat::parse_str(
            "(component (core module (func unreachable)) (component (core module (func nop unreachable))))",
        )
        .unwrap();
        let modules = core_modules(&component).unwrap();
        assert_eq!(modules.len(), 2);
        assert!(modules[0].code.end <= modules[1].code.start);
        for module in &modules {
            assert_eq!(&component[module.code.clone()], module.bytes);
        }
        let alone = wat::parse_str("(module (func nop unreachable))").unwrap();
        let beside = core_modules(&alone).unwrap();
        assert_eq!(beside[0].bytes, modules[1].bytes);
        assert_ne!(beside[0].bytes, modules[0].bytes);
    }
}
