//! For how many days records and entries of the audit log are kept.

use super::routes_tests::load;
use std::num::NonZeroU32;

#[test]
fn records_and_the_audit_log_are_kept_for_ever_or_for_days_of_their_own() {
    for (text, records, audit) in [
        ("", None, None),
        ("[storage]\nkeep_audit_days = 0", None, None),
        ("[storage]\nkeep_days = 7", Some(7), None),
        ("[storage]\nkeep_audit_days = 365", None, Some(365)),
        (
            "[storage]\nkeep_days = 7\nkeep_audit_days = 365",
            Some(7),
            Some(365),
        ),
    ] {
        let config = load(text).unwrap();
        let days = [config.keep_days(), config.keep_audit_days()];
        let expected = [records, audit].map(|days| days.and_then(NonZeroU32::new));
        assert_eq!(days, expected, "{text}");
    }
    for wrong in ["-1", "1.5", "\"365d\"", "4294967296"] {
        let refused = load(&format!("[storage]\nkeep_audit_days = {wrong}")).unwrap_err();
        assert!(refused.contains("keep_audit_days"), "{wrong}: {refused}");
    }
}
