//! Statistics of runs, from their records alone: `run` follows one run event by event, `totals` adds runs
//! up. Neither keeps events, so the memory does not depend on the length and number of records.

mod histogram;
mod run;
mod sides;
mod since;
mod tools;
mod totals;

pub use histogram::Histogram;
pub use run::{ModelUsage, RunStats, StepStats};
pub use sides::SideModelStats;
pub use since::{Since, date_text};
pub use tools::{ToolStats, Tools};
pub use totals::{GroupStats, Totals};
