//! Output for people, and questions to them.

pub mod columns;
pub mod decider;
pub mod input;
pub mod log;
pub mod output;
pub mod pipe;
pub mod progress;
pub mod rows;
pub mod standing;
pub mod stderr;
pub mod style;
pub mod user_question;
pub mod view;
