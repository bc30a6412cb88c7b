//! Statements of the mission's documents, by their numbers: one file a topic.

mod conversations;
