//! Never coming back: loops and waits through the host, and handles that are never given back.

use crate::bindings::toolhold::module::log;
use crate::files;
use crate::{Handle, Turn};
use wasip2::cli::stdout;
use wasip2::clocks::{monotonic_clock, wall_clock};
use wasip2::filesystem::types::{Descriptor, DescriptorFlags, OpenFlags, PathFlags};
use wasip2::http::types::Fields;
use wasip2::io::poll;
use wasip2::random::random;
use wasip2::sockets::{network::IpAddressFamily, udp_create_socket};

pub fn spin(turn: Turn) {
    let output = stdout::get_stdout();
    loop {
        match turn {
            Turn::Clock => drop(monotonic_clock::now()),
            Turn::WallClock => drop(wall_clock::now()),
            Turn::Random => drop(random::get_random_bytes(4 << 10)),
            Turn::Log => log::write(log::Level::Info, "again"),
            Turn::StandardOutput => drop(output.blocking_write_and_flush(b"again\n")),
            Turn::Subscribe => drop(monotonic_clock::subscribe_duration(1)),
        }
    }
}

pub fn wait(count: u32, nanoseconds: u64) {
    let timers: Vec<_> = (0..count)
        .map(|_| monotonic_clock::subscribe_duration(nanoseconds))
        .collect();
    drop(poll::poll(&timers.iter().collect::<Vec<_>>()));
}

pub fn watch(dir: &str, path: &str, times: u32, nanoseconds: u64) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..times {
        let now = files::read(dir, path, true).unwrap_or_else(|code| format!("error: {code}"));
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        wait(1, nanoseconds);
    }
    seen
}

pub fn wait_until_the_end() {
    monotonic_clock::subscribe_instant(u64::MAX).block();
}

/// Forgets what it opens: that is what keeps the host's side of it alive.
pub fn hoard(handle: Handle, count: u32) -> u32 {
    for opened in 0..count {
        match handle {
            Handle::Pollable => std::mem::forget(monotonic_clock::subscribe_duration(1)),
            Handle::OutputStream => std::mem::forget(stdout::get_stdout()),
            Handle::Descriptor => match open() {
                Some(file) => std::mem::forget(file),
                None => return opened,
            },
            Handle::FileStream => {
                let Some(stream) = open().and_then(|file| file.read_via_stream(0).ok()) else {
                    return opened;
                };
                std::mem::forget(stream);
            }
            Handle::Socket => match udp_create_socket::create_udp_socket(IpAddressFamily::Ipv4) {
                Ok(socket) => std::mem::forget(socket),
                Err(_) => return opened,
            },
            Handle::Fields => {
                let fields = Fields::new();
                for _ in 0..FIELD_VALUES {
                    if fields.append("x-hoard", &[b'x'; FIELD_BYTES]).is_err() {
                        break;
                    }
                }
                std::mem::forget(fields);
            }
            Handle::Listing => {
                let listing = files::granted("/data")
                    .ok()
                    .and_then(|dir| dir.read_directory().ok());
                let Some(listing) = listing else {
                    return opened;
                };
                std::mem::forget(listing);
            }
        }
    }
    count
}

/// Values of one field, and their bytes: together a little less than hosts allow for all fields.
const FIELD_VALUES: usize = 30;
const FIELD_BYTES: usize = 4 << 10;

/// The directory itself: there is always one, and it is opened anew.
fn open() -> Option<Descriptor> {
    let dir = files::granted("/data").ok()?;
    dir.open_at(
        PathFlags::empty(),
        "file.txt",
        OpenFlags::empty(),
        DescriptorFlags::READ,
    )
    .ok()
}
