//! The stack that a Go module has before its runtime starts.
//!
//! Go's first global is its stack pointer, zero until the runtime has started; an export that is
//! called with zero refuses to run.

use super::super::core_module::{MAGIC, append, leb, sections, unsigned};

const MEMORY: u8 = 5;
const GLOBAL: u8 = 6;
/// A mutable i32 that begins as zero.
const STACK_POINTER: &[u8] = &[0x7f, 1, 0x41, 0, 0x0b];
const PAGE_BYTES: u32 = 65536;

/// The module with its stack pointer at the end of its first memory; none if it is no module of the
/// layout that Go makes.
pub fn with_early_stack(module: &[u8]) -> Option<Vec<u8>> {
    let mut out = MAGIC.to_vec();
    let mut pages = None;
    let mut patched = false;
    for (id, section) in sections(module)? {
        let mut section = section.to_vec();
        if id == MEMORY {
            pages = first_memory(&section);
        } else if id == GLOBAL {
            let (count, globals) = unsigned(&section)?;
            let others = globals.strip_prefix(STACK_POINTER)?;
            // Sixteen bytes below the end, as the runtime leaves them too.
            let top = pages?.checked_mul(PAGE_BYTES)?.checked_sub(16)?;
            let mut with_stack = leb(count);
            with_stack.extend([0x7f, 1, 0x41]);
            with_stack.extend(positive(top));
            with_stack.push(0x0b);
            with_stack.extend(others);
            section = with_stack;
            patched = true;
        }
        append(&mut out, id, &section)?;
    }
    patched.then_some(out)
}

/// The pages that the first memory begins with.
fn first_memory(section: &[u8]) -> Option<u32> {
    let (_count, memory) = unsigned(section)?;
    let (_flags, limits) = memory.split_first()?;
    Some(unsigned(limits)?.0)
}

/// A signed LEB128 number that is not negative: its sixth bit from the last byte must be clear.
fn positive(value: u32) -> Vec<u8> {
    let mut bytes = leb(value);
    if let Some(last) = bytes.last_mut()
        && *last & 0x40 != 0
    {
        *last |= 0x80;
        bytes.push(0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_begins_at_the_end_of_memory() {
        // One memory of 20 pages; two globals, the first the stack pointer.
        let module = [
            MAGIC,
            &[MEMORY, 3, 1, 0, 20],
            &[
                GLOBAL, 11, 2, 0x7f, 1, 0x41, 0, 0x0b, 0x7e, 1, 0x42, 0, 0x0b,
            ],
        ]
        .concat();
        let expected = [
            MAGIC,
            &[MEMORY, 3, 1, 0, 20],
            // 20 * 65536 - 16 = 0x13fff0
            &[
                GLOBAL, 14, 2, 0x7f, 1, 0x41, 0xf0, 0xff, 0xcf, 0, 0x0b, 0x7e, 1, 0x42, 0, 0x0b,
            ],
        ]
        .concat();
        assert_eq!(with_early_stack(&module), Some(expected));
    }

    #[test]
    fn another_layout_is_left_alone() {
        assert_eq!(with_early_stack(b"\0asm\x0d\0\x01\0"), None);
        assert_eq!(with_early_stack(MAGIC), None);
        let constant = [
            MAGIC,
            &[MEMORY, 3, 1, 0, 20],
            &[GLOBAL, 6, 1, 0x7f, 0, 0x41, 0, 0x0b],
        ]
        .concat();
        assert_eq!(with_early_stack(&constant), None);
        assert_eq!(with_early_stack(&[MAGIC, &[MEMORY, 200, 1]].concat()), None);
    }

    #[test]
    fn numbers_read_back() {
        for value in [0, 1, 63, 64, 127, 128, 300, u32::MAX] {
            assert_eq!(unsigned(&leb(value)), Some((value, &[][..])));
        }
        assert_eq!(positive(64), [0xc0, 0]);
    }
}
