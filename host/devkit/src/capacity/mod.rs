//! Capacity and cost estimates of a deployment: [`formulas`] are pure, [`measure`] measures an endpoint,
//! [`inputs`] keeps each number together with its source.

pub mod formulas;
pub mod inputs;
pub mod measure;

pub use formulas::{EXPLANATION, LatencyTerms, OperatingPoint, Plan, Rate};
pub use inputs::{Distribution, Inputs, SourcedDistribution, Speeds};
pub use measure::{Level, Measurement, Probe};
