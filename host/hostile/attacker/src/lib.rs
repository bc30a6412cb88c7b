//! A guest that attacks its host: every export does what it is told and reports what the host said.
//!
//! Files, loops and sockets go through the raw WASI interface, because the standard library resolves
//! paths against the granted directories itself, and would refuse most attacks before they begin.

mod files;
mod locks;
mod loops;
mod network;
mod speech;

use bindings::exports::toolhold::attacker::attacks::{
    Channel, Guest, Handle, LockWish, Profile, Turn,
};
use std::sync::atomic::{AtomicU32, Ordering};

#[expect(clippy::pedantic, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({
        path: ["../../../wit", "wit"],
        world: "toolhold:attacker/attacker",
        generate_all,
    });
}

struct Attacker;

bindings::export!(Attacker with_types_in bindings);

/// Calls that this instance has seen: 1, if every call has an instance of its own.
static CALLS: AtomicU32 = AtomicU32::new(0);

impl Guest for Attacker {
    fn preopens() -> Vec<String> {
        files::preopens()
    }
    fn read(dir: String, path: String) -> Result<String, String> {
        files::read(&dir, &path, true)
    }
    fn read_nofollow(dir: String, path: String) -> Result<String, String> {
        files::read(&dir, &path, false)
    }
    fn write(dir: String, path: String, content: String) -> Result<(), String> {
        files::write(&dir, &path, &content, true)
    }
    fn overwrite(dir: String, path: String, content: String) -> Result<(), String> {
        files::write(&dir, &path, &content, false)
    }
    fn fill(dir: String, path: String, chunk: u32, chunks: u32) -> Result<u64, String> {
        files::fill(&dir, &path, chunk, chunks)
    }
    fn write_at(dir: String, path: String, offset: u64, by_stream: bool) -> Result<(), String> {
        files::write_at(&dir, &path, offset, by_stream)
    }
    fn deepen(dir: String, levels: u32) -> u32 {
        files::deepen(&dir, levels)
    }
    fn watch(dir: String, path: String, times: u32, nanoseconds: u64) -> Vec<String> {
        loops::watch(&dir, &path, times, nanoseconds)
    }
    fn list(dir: String, path: String) -> Result<Vec<String>, String> {
        files::list(&dir, &path)
    }
    fn stat(dir: String, path: String) -> Result<String, String> {
        files::stat(&dir, &path)
    }
    fn rename(dir: String, path: String, to_dir: String, to_path: String) -> Result<(), String> {
        files::rename(&dir, &path, &to_dir, &to_path)
    }
    fn hard_link(dir: String, path: String, to_dir: String, to_path: String) -> Result<(), String> {
        files::hard_link(&dir, &path, &to_dir, &to_path)
    }
    fn symlink(dir: String, target: String, path: String) -> Result<(), String> {
        files::symlink(&dir, &target, &path)
    }
    fn read_link(dir: String, path: String) -> Result<String, String> {
        files::read_link(&dir, &path)
    }
    fn make_dir(dir: String, path: String) -> Result<(), String> {
        files::make_dir(&dir, &path)
    }
    fn remove(dir: String, path: String) -> Result<(), String> {
        files::remove(&dir, &path)
    }
    fn remove_dir(dir: String, path: String) -> Result<(), String> {
        files::remove_dir(&dir, &path)
    }
    fn set_size(dir: String, path: String, size: u64) -> Result<(), String> {
        files::set_size(&dir, &path, size)
    }
    fn set_times(dir: String, path: String) -> Result<(), String> {
        files::set_times(&dir, &path)
    }
    fn through(dir: String, path: String, then: String) -> Result<String, String> {
        files::through(&dir, &path, &then)
    }

    fn lock(path: String, wish: LockWish) -> Result<u32, String> {
        locks::lock(&path, &wish)
    }

    fn environment() -> Vec<(String, String)> {
        wasip2::cli::environment::get_environment()
    }
    fn arguments() -> Vec<String> {
        wasip2::cli::environment::get_arguments()
    }
    fn working_directory() -> Option<String> {
        wasip2::cli::environment::initial_cwd()
    }

    fn connect(address: String) -> Result<(), String> {
        network::connect(&address)
    }
    fn send(address: String) -> Result<(), String> {
        network::send(&address)
    }
    fn listen(address: String) -> Result<(), String> {
        network::listen(&address)
    }
    fn lookup(name: String) -> Result<Vec<String>, String> {
        network::lookup(&name)
    }

    fn spin(turn: Turn) {
        loops::spin(turn);
    }
    fn wait(count: u32, nanoseconds: u64) {
        loops::wait(count, nanoseconds);
    }
    fn wait_until_the_end() {
        loops::wait_until_the_end();
    }
    fn hoard(handle: Handle, count: u32) -> u32 {
        loops::hoard(handle, count)
    }
    fn hold(handle: Handle, count: u32, nanoseconds: u64) -> u32 {
        let held = loops::hoard(handle, count);
        loops::wait(1, nanoseconds);
        held
    }

    fn flood(channel: Channel, text: String, bytes: u64) {
        speech::flood(channel, &text, bytes);
    }
    fn say(bytes: u32) -> String {
        "x".repeat(bytes as usize)
    }
    fn say_many(count: u32) -> Vec<(bool, Option<u8>)> {
        vec![(true, Some(7)); count as usize]
    }
    fn say_numbers(count: u32) -> Vec<i8> {
        vec![7; count as usize]
    }
    fn say_texts(count: u32, bytes: u32) -> Vec<String> {
        vec!["x".repeat(bytes as usize); count as usize]
    }
    fn say_lists(lists: u32, count: u32) -> Vec<Vec<String>> {
        vec![vec![String::new(); count as usize]; lists as usize]
    }
    fn say_number(bits: u64) -> f64 {
        f64::from_bits(bits)
    }
    fn panic(text: String) {
        panic!("{text}");
    }
    fn fail(text: String) -> Result<(), String> {
        Err(text)
    }
    fn random(bytes: u64) -> u64 {
        wasip2::random::random::get_random_bytes(bytes).len() as u64
    }

    fn take(profile: Profile) -> u32 {
        drop(profile);
        CALLS.fetch_add(1, Ordering::Relaxed) + 1
    }
}
