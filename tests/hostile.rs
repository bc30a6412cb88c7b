//! The hostile suite (docs/security.md): one test an attack, several to some rows. The attacks themselves
//! are in `host/hostile`, where `toolhold selftest` finds them too.
//!
//! Each runs in a process of its own, as the command runs it: what an attack does to the memory and the
//! threads of a process is seen there, and one that is not held off ends that process. Attacks of
//! [`Company::Others`] bear any company; all other ones bound or compare times. Under `cargo test` a lock keeps these apart,
//! and nextest gives those in `alone` the machine to themselves (`.config/nextest.toml`).
#![expect(clippy::expect_used, reason = "a test that cannot go on should say so")]
#![expect(clippy::print_stderr, reason = "what was left out should be seen")]

use serde_json::Value;
use std::path::Path;
use std::sync::{PoisonError, RwLock};
use support::host::{Host, finish};
use toolhold_hostile::{AttackOutcome, Company, Scale, run_apart, share_compiled, suite};

/// Attacks beside each other read it, one that is alone writes.
static MACHINE: RwLock<()> = RwLock::new(());

/// `row_NN_NAME`: the attack NAME, which must be of row NN.
fn held(test: &str) {
    let (row, name) = test[4..].split_once('_').expect("row_NN_NAME");
    let attack = suite().into_iter().find(|attack| attack.name == name);
    let attack = attack.expect("no attack of this name is in the suite");
    assert_eq!(format!("{:02}", attack.row), row, "the row of {name}");
    let host = Host::new();
    let mut command = host.command(&["selftest", "--quick", "--attack", name]);
    share_compiled(&mut command, Path::new(env!("CARGO_TARGET_TMPDIR")));
    let verdict = if attack.company == Company::Others {
        let _beside = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        run_apart(Scale::Quick, command)
    } else {
        let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        run_apart(Scale::Quick, command)
    };
    match verdict.outcome {
        AttackOutcome::Held => eprintln!("{} ({:?})", verdict.observed, verdict.duration),
        AttackOutcome::NotRun => panic!("not run: {}", verdict.observed),
        AttackOutcome::Broke => panic!("{} (must: {})", verdict.observed, attack.must),
    }
}

macro_rules! attacks {
    (others { $($other:ident)* } alone { $($alone:ident)* }) => {
        $(#[test]
        fn $other() {
            held(stringify!($other));
        })*

        mod alone {
            $(#[test]
            fn $alone() {
                super::held(stringify!($alone));
            })*
        }

        #[test]
        fn every_attack_of_the_suite_is_a_test() {
            let of = |is_alone: bool| -> Vec<_> {
                let attacks = suite()
                    .into_iter()
                    .filter(|attack| (attack.company != Company::Others) == is_alone);
                attacks
                    .map(|attack| format!("row_{:02}_{}", attack.row, attack.name))
                    .collect()
            };
            assert_eq!([$(stringify!($other)),*].as_slice(), of(false));
            assert_eq!([$(stringify!($alone)),*].as_slice(), of(true));
        }
    };
}

attacks! {
    others {
        row_01_loop_by_fuel
        row_01_loop_by_deadline
        row_02_loop_through_host_calls
        row_03_sleep_for_an_hour
        row_03_wait_that_never_ends
        row_04_memory_in_steps
        row_04_memory_at_start
        row_04_memory_filled
        row_05_table_in_steps
        row_05_many_tables
        row_06_recursion
        row_06_recursion_in_two_stacks
        row_07_handles_in_a_loop
        row_08_output_of_a_gigabyte
        row_08_output_that_is_not_text
        row_08_output_that_is_not_json
        row_09_flood
        row_09_escape_sequences
        row_10_paths_that_lead_out
        row_10_links_that_lead_out
        row_10_links_that_a_guest_makes
        row_10_across_grants
        row_10_special_files
        row_11_write_under_a_read_grant
        row_11_disk_filled
        row_11_disk_filled_by_many
        row_12_environment_and_files
        row_13_sockets
        row_13_name_lookup
        row_13_lookup_by_a_request
        row_14_spellings_of_forbidden_addresses
        row_14_names_that_lead_inside
        row_14_redirects_that_lead_inside
        row_14_smuggled_requests
        row_14_proxy_variables
        row_15_response_without_end
        row_15_response_of_a_gigabyte
        row_15_compressed_bomb
        row_16_secret_that_comes_back
        row_16_secret_that_is_told
        row_16_secret_sent_elsewhere
        row_17_files_that_are_no_component
        row_17_truncated_files
        row_17_random_bytes
        row_17_file_being_written
        row_18_file_being_swapped
        row_18_file_swapped_after_pinning
        row_19_flipped_bytes
        row_19_forged_artefacts
        row_19_writable_cache
        row_20_trap_then_call_again
        row_20_state_left_behind
        row_21_two_tenants
        row_21_two_sessions
        row_22_names_of_tools
        row_22_names_of_others
        row_23_rug_pull
        row_23_descriptions
        row_25_arguments_too_large
        row_25_arguments_of_wrong_shape
        row_25_arguments_as_text
        row_26_cancelled_at_random
        row_31_grant_replaced_by_a_link
        row_31_grant_replaced_by_a_folder
        row_31_grant_swapped_before_start
        row_31_fifo_where_the_host_looks
        row_31_cache_entry_without_end
        row_32_schema_of_a_result
        row_32_schema_of_arguments
        row_33_deep_tree_of_a_session
        row_33_deep_tree_without_descriptors
        row_33_deep_tree_at_start
        row_33_deep_tree_that_is_carried
        row_33_deep_tree_of_a_call
        row_35_fields_in_a_loop
        row_35_listings_in_a_loop
        row_35_results_of_many_values
        row_35_weight_of_all_places
        row_35_arguments_in_all_places
        row_35_bytes_that_wait_for_a_place
        row_36_descriptors_hoarded_by_two
        row_36_fifo_by_a_race
        row_36_module_becomes_a_fifo
        row_36_modules_without_number
        row_37_texts_where_people_approve
        row_37_calls_where_people_decide
        row_38_secret_in_odd_forms
        row_39_newcomer_before_an_approved_name
        row_39_newcomer_as_another_version
        row_40_sparse_files
        row_41_found_file_of_a_stranger
        row_41_found_file_without_end
        row_42_wish_for_all_places
        row_42_rate_spent_by_one_key
        row_42_memory_kept_by_one_key
        row_42_sessions_begun_in_a_loop
        row_42_wrong_keys_without_end
        row_43_killed_after_a_side_effect
        row_44_errors_that_name_the_cause
        row_45_values_kept_by_many
        row_45_value_larger_than_is_kept
        row_45_writes_larger_than_is_kept
        row_46_extractor_that_does_not_end
        row_46_text_without_end
        row_46_document_read_over_and_over
        row_47_reserved_names
        row_47_reserved_names_by_a_race
        row_47_reserved_bytes_by_another_name
        row_47_grants_over_files_of_the_host
        row_47_reserved_while_a_call_runs
        row_48_calls_in_repeated_text
        row_48_calls_in_prose_beside_text_of_others
        row_48_calls_behind_line_prefixes
        row_48_calls_in_another_format
        row_48_calls_out_of_encoded_text
        row_48_calls_in_invented_formats
        row_48_quoted_calls_beside_own_ones
        row_49_locks_never_released
        row_49_locks_without_number
        row_49_directory_never_left
        row_49_databases_of_many_writers
        row_50_keys_sent_elsewhere
        row_51_foreign_component_under_a_shipped_name
        row_52_nested_in_all_places
        row_52_listed_beside_full_places
        row_52_dropped_while_made
        row_53_growth_that_fails_in_a_loop
        row_54_names_of_this_machine_in_foreign_ones
        row_55_shares_of_a_stranger
        row_56_grants_of_many_processes
        row_57_lines_of_the_host_in_prompts
        row_57_lines_of_the_host_in_later_steps
        row_57_lines_of_the_host_by_a_server
        row_57_lines_of_the_host_in_schemas
        row_58_work_of_a_revoked_key
        row_58_work_of_an_expired_key
        row_58_requests_that_wait_for_their_turn
        row_59_failures_for_now_without_end
        row_60_walks_of_one_caller
        row_60_copies_of_one_key
        row_60_copies_of_requests_that_left
        row_61_sweeps_beside_a_stopped_process
        row_61_calls_that_begin_beside_sweeps
        row_62_decisions_of_many_people
        row_63_runs_of_a_frozen_server
        row_64_texts_of_deleted_documents
        row_64_forged_tombstones
        row_64_texts_that_the_host_composed
        row_65_calls_in_places_that_an_end_frees
        row_65_calls_in_places_of_an_ended_session
        row_66_resumed_and_cancelled_at_once
        row_67_jobs_that_lie
        row_67_jobs_without_end
        row_68_answers_of_clients_that_left
        row_69_bodies_of_endpoints_and_servers
        row_70_schemas_that_cost_work
        row_71_names_like_those_of_others
        row_72_images_of_others
        row_73_arguments_of_nested_options
        row_74_parents_in_all_places_of_a_module
        row_75_pieces_of_bodies_over_tls
        row_76_answers_that_nobody_reads
        row_77_values_beside_letters
        row_77_values_in_other_forms
        row_77_values_that_are_divided
        row_78_configuration_that_is_cut
        row_78_shields_that_a_cut_takes
        row_79_resumed_before_modules_are_loaded
        row_80_blocked_texts_in_every_field
        row_80_hidden_secrets_that_leave
        row_81_reads_after_writes
    }
    alone {
        row_01_loops_beside_a_benign_call
        row_03_sleepers_in_every_place
        row_17_bombs
        row_17_compile_bomb
        row_17_debug_information_bombs
        row_27_crowd_of_sleepers
        row_27_timeouts_in_a_row
        row_32_types_to_inspect
        row_32_texts_to_parse
        row_34_load_beside_stalling_modules
        row_34_revoked_while_modules_load
        row_34_revoked_while_a_call_runs
    }
}

/// Each attack was run through the command by a test of its own; the report of all rows is tested beside it.
#[test]
fn the_command_reports_the_rows_that_it_ran() {
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    let done = Host::new().run(&["selftest", "--quick", "--json", "--row", "8", "--row", "22"]);
    let report: Value = serde_json::from_str(&done.stdout).expect("one JSON object");
    assert_eq!(done.code, Some(0), "{report:#}");
    let attacks: Vec<_> = suite()
        .into_iter()
        .filter(|attack| [8, 22].contains(&attack.row))
        .map(|attack| (Some(u64::from(attack.row)), Some(attack.name), Some("held")))
        .collect();
    let reported: Vec<_> = report["attacks"]
        .as_array()
        .expect("a list of attacks")
        .iter()
        .map(|line| {
            (
                line["row"].as_u64(),
                line["name"].as_str(),
                line["outcome"].as_str(),
            )
        })
        .collect();
    assert_eq!(reported, attacks);
    assert_eq!(report["held"].as_u64(), Some(attacks.len() as u64));
}

/// docs/security.md, "The hostile suite": what was not run is not known to hold.
#[test]
fn the_command_fails_for_an_attack_that_it_could_not_run() {
    let _beside = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    let host = Host::new();
    let mut command = host.command(&["selftest", "--quick", "--row", "10"]);
    // One attack of the row makes a FIFO, with a program of the system.
    command.env("PATH", host.path().join("without-programs"));
    let done = finish(command.output().expect("the binary runs"));
    assert_eq!(done.code, Some(1), "{done:?}");
    for part in ["\n4 held, 0 broke, 1 not run\n", "mkfifo"] {
        assert!(done.stdout.contains(part), "{part}: {done:?}");
    }
}

#[test]
fn the_command_prints_a_table_that_fits_and_fails_for_unknown_rows() {
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    let host = Host::new();
    let done = host.run(&["selftest", "--quick", "--row", "1", "--row", "6"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stdout.contains("\n5 held, 0 broke, 0 not run\n"),
        "{done:?}"
    );
    assert!(
        done.stdout.lines().all(|line| line.chars().count() <= 100),
        "{}",
        done.stdout
    );
    assert!(!done.stdout.contains('\u{1b}'), "no colours into a pipe");
    for (row, expect) in [("24", "does not try the sandbox"), ("99", "rows 1 to 81")] {
        let done = host.run(&["selftest", "--row", row]);
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(done.stderr.contains(expect), "{done:?}");
    }
}
