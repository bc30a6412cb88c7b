//! How much a deployment carries and costs, estimated: [`formulas`] are pure, [`measure`] asks an
//! endpoint for what goes into them, [`inputs`] keeps each number together with where it came from.

pub mod formulas;
pub mod inputs;
pub mod measure;

pub use formulas::{EXPLANATION, Plan, Point, Rate};
pub use inputs::{Inputs, Sourced, Spread};
pub use measure::{Level, Measured, Probe};
