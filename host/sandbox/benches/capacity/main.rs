//! What many calls, many modules and long calls cost: one table, every ratio measured side by side.
//!
//! `cargo bench -p toolhold-sandbox --bench capacity [-- SECTION…]`; about a minute. Latencies of
//! single calls are in `calls`. The Python rows need `toolhold build modules/python` first.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints its table, and says so where it cannot go on"
)]

#[path = "../bare/mod.rs"]
mod bare;
mod call;
mod crowd;
mod head_of_line;
mod image;
mod interruption;
mod measure;
mod native;
mod shelf;

/// The product's, for both sides.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A part of the table and what measures it.
type Section = (&'static str, fn());

const SECTIONS: [Section; 7] = [
    ("call", call::run),
    ("native", native::run),
    ("crowd", crowd::run),
    ("head-of-line", head_of_line::run),
    ("interruption", interruption::run),
    ("modules", shelf::run),
    ("image", image::run),
];

fn main() {
    if native::is_tool() {
        return native::tool();
    }
    // Cargo passes `--bench`.
    let wanted: Vec<_> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    for (name, run) in SECTIONS {
        if wanted.is_empty() || wanted.iter().any(|w| w == name) {
            println!("\n{name}");
            run();
        }
    }
}
