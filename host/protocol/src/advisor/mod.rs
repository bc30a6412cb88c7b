//! Advisors: personas that give a structured, weighted opinion before the model chooses calls
//! (docs/protocol.md, 10).
//!
//! In the order of a Request: [`Advisor`] is what the context says, [`taking_part`] who speaks in
//! this iteration, [`schema`] and [`render`] what the model is asked, [`Council`] what it answered,
//! and [`Tally`] and [`Dissent`] what follows from that.

mod council;
mod definition;
mod form;
mod participation;
mod tally;
mod votes;

pub use council::{Council, CouncilMode, Opinion, OpinionFault};
pub use definition::{Advisor, AdvisorError, Attendance};
pub use form::{CONSULT_ADVISOR, ConsultTool, VOTING, consult_tool, render, schema};
pub use participation::{DueOpinion, Moment, latest, seats, taking_part};
pub use tally::{Ballot, Dissent, DissentingChoice, Tally, ToolTally, VoteOutcome};
pub use votes::Vote;
