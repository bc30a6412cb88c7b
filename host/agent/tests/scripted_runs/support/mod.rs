//! Runs in this process, without endpoint and modules: a model says what a script says, in any contract
//! and in small pieces, tools are functions, and every run is held to its record.
//!
//! `reply` is what the model says, `script` the model that says it, `tools` what it may call, `drive` runs
//! both, `events` reads what came of it. Two ways to say all of that at once: `told`, a run over four tools
//! that are always there; `play`, a run over a context, whose data is looked at in the end.

mod drive;
mod events;
pub mod play;
mod reply;
mod script;
pub mod told;
mod tools;

pub use drive::{driver, holds, request, rest, run, shown, watch, watched};
pub use events::{end, json_of, lines, place, results, starts};
pub use reply::{Reply, calls, output};
pub use script::{Gate, Script};
pub use tools::{Echo, NoModules, plain_tools, some_data, tools};
