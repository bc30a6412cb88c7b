//! The code interpreter: runs JavaScript that a model wrote, in QuickJS inside the sandbox.
//!
//! `engine` runs the code to its end, promises and timers included; `prelude.js` is what the code
//! finds beside the language; `files` are its functions over `scratch`, the granted directory;
//! `transcript` is what was printed.
//! Every call is a fresh instance: nothing that code defines is there in the next call.

mod engine;
mod files;
mod scratch;
mod tool;
mod transcript;

toolhold_guest::export!(tools);

fn tools() -> Vec<toolhold_guest::Tool> {
    vec![tool::tool(scratch::Scratch::granted)]
}

#[cfg(test)]
mod tests;
