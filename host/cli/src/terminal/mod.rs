//! What is shown to a person, and what a person is asked.

pub mod approver;
pub mod columns;
pub mod input;
pub mod pipe;
pub mod progress;
pub mod style;
pub mod view;
