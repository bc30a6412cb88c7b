//! Statements of the documents that the project was made from, by their numbers: one file a topic, one test a statement.

mod capacity_formula;
mod default_fallback;
mod documents_by_address;
mod language;
mod serving_templates;
mod versions;
mod words;
