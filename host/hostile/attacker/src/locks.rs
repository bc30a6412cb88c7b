//! Locks on files that are taken and never given back.

use crate::LockWish;
use crate::bindings::toolhold::module::file_locks::{LockError, LockKind, LockableFile};
use crate::loops;

pub fn lock(path: &str, wish: &LockWish) -> Result<u32, String> {
    let held = take(path, wish);
    loops::wait(1, wish.nanoseconds);
    assert!(!wish.dies, "it dies with {held:?}");
    held
}

fn take(path: &str, wish: &LockWish) -> Result<u32, String> {
    let kind = if wish.exclusive {
        LockKind::Exclusive
    } else {
        LockKind::Shared
    };
    // Forgotten, so that the host has it open until the call ends.
    let mut last: Option<&'static LockableFile> = None;
    for _ in 0..wish.opens {
        match LockableFile::open(path) {
            Ok(file) => last = Some(Box::leak(Box::new(file))),
            Err(error) if last.is_none() => return Err(said(error)),
            Err(_) => break,
        }
    }
    let file = last.ok_or("nothing to lock")?;
    for taken in 0..wish.ranges {
        match file.lock(u64::from(taken) * 2, 1, kind) {
            Ok(()) => {}
            Err(error) if taken == 0 => return Err(said(error)),
            Err(_) => return Ok(taken),
        }
    }
    Ok(wish.ranges)
}

fn said(error: LockError) -> String {
    format!("{error:?}")
}
