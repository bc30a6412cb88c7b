//! Translates a component from text: `cargo run -p toolhold-sandbox --example wat_to_wasm -- FILE.wat FILE.wasm`.
#![expect(
    clippy::unwrap_used,
    reason = "a tool of a bench that cannot go on should say so"
)]

fn main() {
    let mut paths = std::env::args().skip(1);
    let (text, component) = (paths.next().unwrap(), paths.next().unwrap());
    std::fs::write(component, wat::parse_file(text).unwrap()).unwrap();
}
