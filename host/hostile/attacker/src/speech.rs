//! Saying too much.

use crate::Channel;
use crate::bindings::toolhold::module::{log, progress};
use wasip2::cli::{stderr, stdout};
use wasip2::io::streams::OutputStream;

/// What the host takes in one blocking write.
const PIECE: usize = 4 << 10;

pub fn flood(channel: Channel, text: &str, bytes: u64) {
    match channel {
        Channel::StandardOutput => pour(&stdout::get_stdout(), text, bytes),
        Channel::StandardError => pour(&stderr::get_stderr(), text, bytes),
        Channel::Log => repeat(text, bytes, |text| log::write(log::Level::Error, text)),
        Channel::Progress => repeat(text, bytes, |text| progress::report(1, 0, text)),
    }
}

fn pour(stream: &OutputStream, text: &str, bytes: u64) {
    let piece: Vec<u8> = text.bytes().cycle().take(PIECE).collect();
    let mut left = bytes;
    while left > 0 {
        let now = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        if stream.blocking_write_and_flush(&piece[..now]).is_err() {
            return;
        }
        left -= now as u64;
    }
}

/// At least one byte a turn, or an empty text would be written for ever.
fn repeat(text: &str, bytes: u64, write: impl Fn(&str)) {
    let turns = bytes.div_ceil((text.len() as u64).max(1));
    for _ in 0..turns {
        write(text);
    }
}
