//! The rules of docs/protocol.md that need no run: each row of a table names its rule. What needs a loop, an
//! endpoint or a module is tested where `ELSEWHERE` says.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

mod advisors;
mod data;
mod decisions;
mod instances;
mod messages;
mod plans;
mod references;
mod saved;
mod schema;
mod solutions;
mod tools;
mod types;
mod versions;

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path as File;
use toolhold_protocol::data::{Data, Method, Write};
use toolhold_protocol::reference::Path;

const RULES: &str = include_str!("../../../../docs/protocol.md");

const HERE: [&str; 13] = [
    include_str!("advisors.rs"),
    include_str!("data.rs"),
    include_str!("decisions.rs"),
    include_str!("instances.rs"),
    include_str!("messages.rs"),
    include_str!("plans.rs"),
    include_str!("references.rs"),
    include_str!("saved.rs"),
    include_str!("schema.rs"),
    include_str!("solutions.rs"),
    include_str!("tools.rs"),
    include_str!("types.rs"),
    include_str!("versions.rs"),
];

const LOOP: &str = "host/agent/tests/scripted_runs";

/// Rules without a row here: the folder, the file and the test.
#[rustfmt::skip]
const ELSEWHERE: [(&str, &str, &str, &str); 71] = [
    ("2.7", LOOP, "messages.rs", "data_is_shown_merged_under_a_heading_with_description_and_schema"),
    ("2.8", LOOP, "messages.rs", "where_data_comes_from_is_hidden_from_the_model_and_kept"),
    ("2.9", LOOP, "messages.rs", "earlier_requests_are_a_prefix_of_later_ones"),
    ("2.14", LOOP, "borders.rs", "a_result_from_elsewhere_is_screened_and_shown_as_a_result"),
    ("2.14", "tests/mission", "repair.rs", "statement_000_36_results_without_ids_answer_calls_by_name_and_order"),
    ("2.14", "tests/serve", "client_calls.rs", "reasoning_goes_with_a_clients_call_into_the_next_run"),
    ("2.15", LOOP, "conversations.rs", "statement_000_51_a_summary_is_extended_and_facts_survive_ten_of_them"),
    ("3.3", LOOP, "tools.rs", "unknown_name_fails_composition_and_names_what_exists"),
    ("3.4", LOOP, "run_loop.rs", "errors_are_messages_with_a_class"),
    ("4.1", LOOP, "schema.rs", "the_same_solution_is_had_through_each_contract"),
    ("4.3", LOOP, "schema.rs", "a_reply_with_faults_of_form_is_mended_in_each_contract"),
    ("4.9", LOOP, "schema.rs", "an_output_beside_calls_counts_only_where_both_are_allowed"),
    ("4.10", LOOP, "quoted.rs", "calls_that_are_repeated_are_made_in_no_form_and_from_no_place"),
    ("4.11", LOOP, "prompt_texts.rs", "a_forged_text_begins_no_line_in_any_place"),
    ("5.1", LOOP, "variables.rs", "statement_042_14_without_data_a_dagger_begins_a_text"),
    ("5.1", LOOP, "retrieval.rs", "statement_042_14_beside_passages_alone_a_dagger_begins_a_text"),
    ("5.6", LOOP, "variables.rs", "without_a_place_a_latent_result_is_a_thought_and_an_explicit_one_is_told"),
    ("6.2", "tests/module_runs", "modules.rs", "a_module_receives_its_arguments_and_what_its_scopes_name"),
    ("6.3", "tests", "interpreters.rs", "nothing_is_there_in_the_next_call"),
    ("6.4", "tests/module_runs", "modules.rs", "a_component_by_path_stands_under_the_rules_of_its_name"),
    ("6.5", "tests/module_runs", "modules.rs", "a_nested_module_knows_its_own_call_and_not_its_callers"),
    ("7.1", LOOP, "ends.rs", "every_stop_says_why_and_returns_what_there_is"),
    ("7.2", LOOP, "run_loop.rs", "a_call_is_over_before_the_model_has_written_the_last"),
    ("7.3", LOOP, "scheduling.rs", "a_call_waits_for_what_it_reads_and_the_others_do_not"),
    ("7.3", LOOP, "scheduling.rs", "statement_042_13_calls_have_the_effect_of_their_order"),
    ("7.4", LOOP, "run_loop.rs", "an_output_that_breaks_its_schema_is_given_again"),
    ("7.5", LOOP, "ends.rs", "every_stop_says_why_and_returns_what_there_is"),
    ("7.6", LOOP, "run_loop.rs", "light_faults_of_arguments_and_of_form_are_put_right_and_told"),
    ("7.6", "tests/mission", "repair.rs", "statement_000_36_arguments_of_latent_calls_are_put_right"),
    ("7.6", "tests/mission", "repair.rs", "statement_000_36_dates_are_put_right_under_a_pattern"),
    ("7.6", LOOP, "rules_of_format_4.rs", "answers_of_another_contract_stood_alone"),
    ("7.8", LOOP, "run_loop.rs", "errors_are_messages_with_a_class"),
    ("7.9", LOOP, "fallback.rs", "candidates_are_asked_in_order_and_each_begins_with_a_fresh_copy"),
    ("7.10", LOOP, "shields.rs", "a_blocked_call_is_not_made_and_the_model_is_told_why"),
    ("7.11", LOOP, "window.rs", "dropped_history_leaves_every_identifier_with_its_values"),
    ("7.12", LOOP, "conversations.rs", "a_conversation_that_is_too_long_is_summed_up_and_keeps_its_facts"),
    ("7.12", LOOP, "conversations.rs", "facts_without_cues_outlast_requests_with_them_in_each_script"),
    ("7.12", LOOP, "rules_of_format_4.rs", "statements_left_a_summary_by_their_weight"),
    ("7.12", LOOP, "conversations.rs", "texts_of_the_user_in_a_row_are_summed_up_where_nothing_else_is_left"),
    ("7.13", LOOP, "jobs.rs", "a_call_that_answers_with_a_job_is_waited_for_and_its_result_is_the_calls"),
    ("7.13", LOOP, "jobs.rs", "a_resumed_run_asks_about_its_job_and_does_not_call_again"),
    ("7.14", LOOP, "demanded.rs", "a_call_that_is_demanded_comes_before_the_answer"),
    ("7.14", LOOP, "demanded.rs", "a_client_with_tools_is_given_a_call_of_one_of_them"),
    ("7.15", LOOP, "blobs.rs", "the_model_is_shown_an_image_of_which_the_record_has_the_digest"),
    ("7.15", "host/agent/src/run/driver", "nested.rs", "the_record_of_a_nested_call_refuses_names_of_bytes_that_its_tool_gives"),
    ("8.3", LOOP, "plans.rs", "eager_planning_is_execution_and_latent_outputs_are_written_in_place"),
    ("8.4", LOOP, "plans.rs", "a_lazy_plan_is_checked_as_a_whole_before_any_of_it_runs"),
    ("8.6", LOOP, "plans.rs", "plan_and_state_are_carried_by_step_and_followed_extended_or_replaced"),
    ("8.7", LOOP, "plans.rs", "a_saved_plan_runs_again_on_other_inputs_without_a_model"),
    ("9.3", LOOP, "instances.rs", "one_plan_serves_all_instances_in_one_request"),
    ("9.4", LOOP, "instances.rs", "a_call_for_an_instance_that_does_not_exist_is_a_structural_error_of_that_call"),
    ("9.5", LOOP, "instances.rs", "equal_calls_of_instances_are_no_repetition"),
    ("9.6", LOOP, "placeholders.rs", "instances_do_not_get_each_others_data_by_placeholder"),
    ("10.4", LOOP, "advisors.rs", "the_votes_of_a_consulted_advisor_join_the_council_of_the_next_reply"),
    ("10.4", LOOP, "advisors.rs", "statement_004_13_a_council_is_recorded_before_the_calls_that_it_allows"),
    ("10.5", LOOP, "advisors.rs", "an_advisor_on_demand_is_asked_through_a_tool_and_sees_the_task_and_the_context"),
    ("11.1", LOOP, "record.rs", "every_body_is_found_in_the_record_again"),
    ("11.2", LOOP, "record.rs", "a_changed_event_is_found"),
    ("11.3", LOOP, "record.rs", "a_changed_byte_breaks_a_seal"),
    ("11.4", LOOP, "record.rs", "a_run_that_is_killed_after_any_event_goes_on"),
    ("11.4", LOOP, "record.rs", "notes_of_a_resumed_run_are_replayed"),
    ("11.4", LOOP, "cancelled_records.rs", "a_plan_that_was_cancelled_before_it_is_resumed_ends_as_cancelled"),
    ("11.5", LOOP, "record.rs", "a_record_grows_with_the_steps_and_not_with_their_square"),
    ("11.6", LOOP, "record.rs", "pieces_of_a_reply_are_shown_and_not_recorded"),
    ("11.7", "tests/serve", "mod.rs", "a_client_goes_on_in_the_middle_of_a_reply"),
    ("13.1", LOOP, "retrieval.rs", "a_run_that_is_killed_after_any_event_goes_on"),
    ("13.2", LOOP, "retrieval.rs", "a_passage_cannot_instruct"),
    ("13.3", LOOP, "retrieval.rs", "a_passage_is_read_by_reference"),
    ("13.4", LOOP, "retrieval.rs", "passages_stand_before_the_question_and_are_cited"),
    ("13.5", LOOP, "retrieval.rs", "required_citations_are_asked_for_once"),
    ("13.6", LOOP, "retrieval.rs", "passages_stand_before_the_question_and_are_cited"),
];

/// The numbers of docs/protocol.md, written `**7.3**` there.
fn numbers(text: &str, around: &str) -> BTreeSet<String> {
    let is_number = |text: &&str| {
        let parts = text.split_once('.');
        parts.is_some_and(|parts| {
            [parts.0, parts.1]
                .iter()
                .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
        })
    };
    text.split(around)
        .filter(is_number)
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_rule_has_a_row_and_every_row_a_rule() {
    let rules = numbers(RULES, "**");
    assert!(rules.len() > 60, "{rules:?}");
    let here: BTreeSet<_> = HERE.iter().flat_map(|file| numbers(file, "\"")).collect();
    let elsewhere: BTreeSet<_> = ELSEWHERE.iter().map(|row| row.0.to_owned()).collect();
    let unknown: Vec<_> = here
        .union(&elsewhere)
        .filter(|rule| !rules.contains(*rule))
        .collect();
    assert!(
        unknown.is_empty(),
        "docs/protocol.md has no rule {unknown:?}"
    );
    let untested: Vec<_> = rules
        .iter()
        .filter(|rule| !here.contains(*rule) && !elsewhere.contains(*rule))
        .collect();
    assert!(untested.is_empty(), "no row names the rule {untested:?}");
}

#[test]
fn the_tests_of_the_other_rules_are_there() {
    let root = File::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (rule, folder, file, test) in ELSEWHERE {
        let path = root.join(folder).join(file);
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{rule}: {path:?}: {error}"));
        assert!(
            text.contains(&format!("fn {test}(")),
            "{rule}: {path:?} has no {test}"
        );
    }
}

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn entry(instance: Option<&str>, at: &str, method: Method, value: Value) -> Write {
    Write {
        path: path(at),
        instance: instance.map(str::to_owned),
        method,
        value,
    }
}

fn data(writes: impl IntoIterator<Item = Write>) -> Data {
    let mut data = Data::default();
    for write in writes {
        data.write(write).unwrap();
    }
    data
}

/// Set in an instance or in the global data.
fn sets(writes: &[(Option<&str>, &str, Value)]) -> Data {
    data(
        writes
            .iter()
            .map(|(instance, at, value)| entry(*instance, at, Method::Set, value.clone())),
    )
}
