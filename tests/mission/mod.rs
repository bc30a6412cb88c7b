//! Statements of the mission's documents: one file a topic, one test a statement.

mod words;
