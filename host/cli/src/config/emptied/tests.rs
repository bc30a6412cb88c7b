//! Reloads that are held back: the losses, and the parts that are put back.

use super::super::flags::Flags;
use super::super::found::FoundFile;
use super::super::layers;
use super::*;

const GRANT: &str = "[module.m]\nkey_value = {}\n";

fn table(text: &str) -> (String, Table) {
    ("file a".to_owned(), text.parse().unwrap())
}

fn files([grants, own]: [Option<&str>; 2]) -> ConfigFiles {
    ConfigFiles {
        grants: grants.map(table),
        own: own.map(table),
        ..ConfigFiles::default()
    }
}

/// Tells what is lost from the one pair of files (with grants, and the user's own) to the other, beside these flags and
/// variables, and what the second pair is then.
fn restored(
    then: [Option<&str>; 2],
    now: [Option<&str>; 2],
    flags: &Flags,
    variables: &[(&str, &str)],
) -> (Option<LostContent>, [Option<(String, Table)>; 2]) {
    let content = ContentInUse::of(&files(then));
    let mut now = files(now);
    let variables = variables.iter();
    let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let merged = layers::merge(&now, flags, variables).ok();
    let emptied = content.restore(&mut now, merged.as_ref());
    let without_grants = content.restore_grants(&mut now);
    let emptied = emptied.or(without_grants);
    (emptied.map(|emptied| emptied.lost), [now.grants, now.own])
}

/// Tells what is lost, and whether the second pair is another then than it was.
fn lost_from(then: [Option<&str>; 2], now: [Option<&str>; 2]) -> (Option<LostContent>, bool) {
    let (lost, after) = restored(then, now, &Flags::default(), &[]);
    let is_other = after != now.map(|text| text.map(table));
    (lost, is_other)
}

#[test]
fn a_reload_that_takes_everything_the_endpoint_or_all_grants_is_told_from_other_edits() {
    use LostContent::{EndpointInUse, Endpoints, EndpointsAndGrants, Everything, Grants};
    let whole = &*format!("[run]\nmax_steps = 70\n{GRANT}[endpoints.e]\nmodel = \"a\"\n");
    let grants = &*format!("[run]\nmax_steps = 70\n{GRANT}");
    let endpoint = "[run]\nmax_steps = 70\n[endpoints.e]\nmodel = \"a\"\n";
    let two = "[endpoints.default]\nmodel = \"a\"\n[endpoints.other]\nmodel = \"b\"\n";
    let of_agent = "[agents.a]\nendpoint = \"one\"\n[endpoints.two]\nmodel = \"b\"\n";
    let agents = &*format!("{of_agent}[endpoints.one]\nmodel = \"a\"\n");
    let more = &*format!("{whole}[module.n]\nscratch = {{}}\n");
    let in_use = |name: &str| Some(EndpointInUse(name.to_owned()));
    for (then, now, expected) in [
        (whole, "", Some(Everything)),
        (whole, "# nothing\n", Some(Everything)),
        (grants, "", Some(Everything)),
        (whole, grants, Some(Endpoints)),
        (whole, "[run]\nmax_steps = 70\n", Some(EndpointsAndGrants)),
        // Cut within a number, and changed elsewhere too.
        (whole, "[run]\nmax_steps = 7\n", Some(EndpointsAndGrants)),
        (whole, "[limits]\nfuel = 8\n", Some(EndpointsAndGrants)),
        // The endpoint of an agent, or of all, is gone, and another is not.
        (two, "[endpoints.other]\nmodel = \"b\"\n", in_use("default")),
        (agents, of_agent, in_use("one")),
        (whole, endpoint, Some(Grants)),
        (grants, "[run]\nmax_steps = 7\n", Some(Grants)),
        (
            grants,
            "[module.m]\nkey_value = 1\n[module.n]\ntools = []\n",
            None,
        ),
        (
            grants,
            "[module.m]\nlog_level = \"debug\"\ntools = []\n",
            Some(Grants),
        ),
        // A person took one of two back, another endpoint into use, or one away that no agent uses.
        (more, whole, None),
        (two, "[endpoints.default]\nmodel = \"c\"\n", None),
        (
            two,
            "endpoint = \"other\"\n[endpoints.other]\nmodel = \"b\"\n",
            None,
        ),
        (endpoint, "[endpoints.f]\nmodel = \"b\"\n", None),
        (endpoint, "endpoint = \"openai\"\n", None),
        (
            two,
            "[endpoints.other]\nmodel = \"b\"\n[pools.default]\n",
            None,
        ),
        (whole, whole, None),
        ("[run]\nmax_steps = 7\n", "", None),
        ("", "", None),
    ] {
        let (lost, is_other) = lost_from([None, Some(then)], [None, Some(now)]);
        assert_eq!(lost, expected, "{then} -> {now}");
        assert_eq!(is_other, lost.is_some(), "{then} -> {now}");
    }
}

/// `> state/grants.toml` leaves an empty file, and `toolhold modules revoke` an empty table.
#[test]
fn grants_of_commands_are_taken_back_by_a_command() {
    let (emptied, revoked) = (Some(""), Some("[module]\n"));
    let endpoint = Some("[endpoints.e]\nmodel = \"a\"\n");
    for (then, now, expected) in [
        (
            [Some(GRANT), None],
            [emptied, None],
            Some(LostContent::Everything),
        ),
        (
            [Some(GRANT), endpoint],
            [None, endpoint],
            Some(LostContent::Everything),
        ),
        // Others are left, but the file is none.
        (
            [Some(GRANT), Some(GRANT)],
            [emptied, Some(GRANT)],
            Some(LostContent::Everything),
        ),
        ([Some(GRANT), endpoint], [revoked, endpoint], None),
        ([Some(GRANT), Some(GRANT)], [revoked, Some(GRANT)], None),
        (
            [Some(GRANT), Some(GRANT)],
            [Some(GRANT), Some("[run]\nmax_steps = 7\n")],
            None,
        ),
        // It was revoked long ago: that confirms nothing of today.
        (
            [revoked, Some(GRANT)],
            [revoked, Some("[run]\nmax_steps = 7\n")],
            Some(LostContent::Grants),
        ),
        // Cut behind the first line.
        (
            [Some("[module.m.environment]\nA = \"a\"\n"), None],
            [Some("[module.m.environment]\n"), None],
            Some(LostContent::Grants),
        ),
        ([None, None], [emptied, None], None),
    ] {
        let (lost, is_other) = lost_from(then, now);
        assert_eq!(lost, expected, "{then:?} -> {now:?}");
        assert_eq!(is_other, lost.is_some(), "{then:?} -> {now:?}");
    }
}

/// Other removals and settings of the same edit hold.
#[test]
fn only_what_was_lost_is_put_back() {
    let endpoints = "[endpoints.default]\nmodel = \"a\"\n[endpoints.other]\nmodel = \"b\"\n";
    let agent = "[agents.a]\nendpoint = \"other\"\ndescription = \"x\"\n";
    let second = "[module.n]\nsource = \"n.wasm\"\nscratch = {}\n";
    let server = "[mcp.s]\nurl = \"http://a/\"\n";
    let whole = &*format!("[run]\nmax_steps = 70\n{agent}{endpoints}{GRANT}{second}{server}");
    for (now, after) in [
        // The last endpoint, one grant of two, a server, and what an agent may do.
        (
            format!("[run]\nmax_steps = 7\n[agents.a]\ndescription = \"y\"\n{GRANT}"),
            format!(
                "[run]\nmax_steps = 7\n[agents.a]\nendpoint = \"other\"\ndescription = \"y\"\n{GRANT}{endpoints}"
            ),
        ),
        // One that is in use, with an agent, and the grants of a module.
        (
            format!("[endpoints.other]\nmodel = \"b\"\n{second}"),
            format!("{endpoints}{second}"),
        ),
        // All grants, and a server.
        (
            format!("{agent}{endpoints}[module.m]\ntools = []\nlog_level = \"debug\"\n"),
            format!(
                "{agent}{endpoints}{second}[module.m]\ntools = []\nlog_level = \"debug\"\nkey_value = {{}}\n"
            ),
        ),
        // The rest of a file that was cut.
        ("[run]\nmax_steps = 7\n".to_owned(), whole.to_owned()),
        (String::new(), whole.to_owned()),
    ] {
        let (lost, [_, own]) = restored(
            [None, Some(whole)],
            [None, Some(&now)],
            &Flags::default(),
            &[],
        );
        assert!(lost.is_some(), "{now}");
        assert_eq!(own, Some(table(&after)), "{now}");
    }
}

/// Without shields and rules of calls that wait, runs would show and do more than was meant.
#[test]
fn protections_that_a_cut_takes_away_are_put_back() {
    let endpoint = "[endpoints.default]\nmodel = \"a\"\n";
    let shield = "[shields.s]\nkind = \"pii\"\nhide = [\"card\"]\n";
    let waits = "[decisions]\non_write = [\"m\"]\n";
    let agent = "[agents.a]\ndescription = \"x\"\n";
    let of_agent = "[agents.a.shields.t]\nkind = \"pii\"\nblock = [\"email\"]\n";
    for (then, now, expected) in [
        (
            format!("{endpoint}{waits}{shield}"),
            format!("{endpoint}{waits}"),
            Some("shields"),
        ),
        (
            format!("{endpoint}{waits}"),
            endpoint.to_owned(),
            Some("decisions"),
        ),
        (
            format!("{endpoint}{agent}{of_agent}"),
            format!("{endpoint}{agent}"),
            Some("agents.a.shields"),
        ),
        (shield.to_owned(), String::new(), Some("shields")),
        // The agent is gone, another shield is left, no call waited, and a person says that none waits.
        (
            format!("{endpoint}{waits}"),
            format!("{endpoint}[decisions]\ndefault = \"never\"\n"),
            None,
        ),
        (
            format!("{endpoint}{waits}"),
            format!("{endpoint}[decisions]\non_write = []\n"),
            None,
        ),
        (
            format!("{endpoint}{agent}{of_agent}"),
            endpoint.to_owned(),
            None,
        ),
        (
            format!("{endpoint}{shield}[shields.u]\nkind = \"pii\"\n"),
            format!("{endpoint}{shield}"),
            None,
        ),
        (
            format!("{endpoint}[decisions]\ndefault = \"never\"\n"),
            endpoint.to_owned(),
            None,
        ),
    ] {
        let (lost, [_, own]) = restored(
            [None, Some(&then)],
            [None, Some(&now)],
            &Flags::default(),
            &[],
        );
        let key = lost.map(|lost| match lost {
            LostContent::Protection(protection) => protection.key(),
            other => panic!("{other:?}"),
        });
        assert_eq!(key.as_deref(), expected, "{then} -> {now}");
        let after = if expected.is_some() { &then } else { &now };
        assert_eq!(own, Some(table(after)), "{then} -> {now}");
    }
    // With the endpoint.
    let then = format!("{endpoint}{GRANT}{shield}");
    let (lost, [_, own]) = restored(
        [None, Some(&then)],
        [None, Some(GRANT)],
        &Flags::default(),
        &[],
    );
    assert_eq!(lost, Some(LostContent::Endpoints));
    assert_eq!(own, Some(table(&then)));
}

/// A cut behind the table's name, and behind a key of it that exempts calls.
#[test]
fn rules_of_calls_that_a_cut_takes_out_of_their_table_are_put_back() {
    let endpoint = "[endpoints.default]\nmodel = \"a\"\n";
    let exempt = "[decisions]\nnever = [\"m.read\"]\n";
    let then = format!("{endpoint}{exempt}always = [\"m\"]\n");
    for now in [
        format!("{endpoint}[decisions]\n"),
        format!("{endpoint}{exempt}"),
    ] {
        let (lost, [_, own]) = restored(
            [None, Some(&then)],
            [None, Some(&now)],
            &Flags::default(),
            &[],
        );
        assert!(
            matches!(lost, Some(LostContent::Protection(_))),
            "{now}: {lost:?}"
        );
        assert_eq!(own, Some(table(&then)), "{now}");
    }
}

/// The user's own file has the endpoint.
#[test]
fn found_file_that_lost_its_shields_goes_on_as_it_was_trusted() {
    let own = "[endpoints.default]\nmodel = \"a\"\n";
    let limits = "[run]\nmax_steps = 70\n";
    let shields = "[shields.s]\nkind = \"pii\"\nhide = [\"card\"]\n";
    let both = |found: &str, trust| ConfigFiles {
        own: Some(table(own)),
        found: Some(FoundLayer {
            origin: "file b".to_owned(),
            table: found.parse().unwrap(),
            file: FoundFile {
                path: "/b".into(),
                bytes: found.into(),
            },
            trust,
        }),
        ..ConfigFiles::default()
    };
    let whole = format!("{limits}{shields}");
    let content = ContentInUse::of(&both(&whole, FilePinState::Pinned));
    let mut files = both(limits, FilePinState::Gone);
    let emptied = content.restore(&mut files, None).unwrap();
    assert!(matches!(emptied.lost, LostContent::Protection(_)));
    let found = files.found.unwrap();
    assert_eq!(found.trust, FilePinState::Pinned);
    assert_eq!(found.table, table(&whole).1);
    // This one has its shields, and a server refuses it until it is trusted.
    let mut files = both(&format!("{whole}[fallback]\n"), FilePinState::Gone);
    assert!(content.restore(&mut files, None).is_none());
}

/// A file that was changed since a person trusted it gets back what was trusted, and nothing that it takes away besides.
#[test]
fn changed_found_file_gets_no_grant_back() {
    let kept = format!("[run]\nmax_steps = 70\n{GRANT}[endpoints.default]\nmodel = \"a\"\n");
    let then = format!(
        "{kept}[module.n]\nsource = \"n.wasm\"\nscratch = {{}}\n[mcp.s]\nurl = \"http://a/\"\n"
    );
    let now = format!("[run]\nmax_steps = 99\n{GRANT}[module.o]\nscratch = {{}}\n");
    let found = |text: &str, trust| ConfigFiles {
        found: Some(FoundLayer {
            origin: "file a".to_owned(),
            table: text.parse().unwrap(),
            file: FoundFile {
                path: "/a".into(),
                bytes: text.into(),
            },
            trust,
        }),
        ..ConfigFiles::default()
    };
    let content = ContentInUse::of(&found(&then, FilePinState::Pinned));
    let mut files = found(&now, FilePinState::Gone);
    let emptied = content.restore(&mut files, None).unwrap();
    assert_eq!(emptied.lost, LostContent::Endpoints);
    assert_eq!(content.restore_grants(&mut files), None);
    let found = files.found.unwrap();
    assert_eq!(found.trust, FilePinState::Pinned);
    let expected = format!("{kept}[module.n]\nsource = \"n.wasm\"\n[mcp]\n");
    assert_eq!(found.table, table(&expected).1);
}

/// Flags, variables and built-in endpoints say as well what runs use.
#[test]
fn endpoint_that_nobody_uses_is_not_held_back() {
    let two = "[endpoints.default]\nmodel = \"a\"\n[endpoints.local]\nmodel = \"b\"\n";
    let local = "[endpoints.local]\nmodel = \"b\"\n";
    let usual = "[endpoints.default]\nmodel = \"a\"\n";
    let preset = "endpoint = \"openai\"\n[endpoints.openai]\nmodel = \"a\"\n";
    let steps = "[run]\nmax_steps = 7\n";
    let flag = |flag: &str, key: &str, value: &str| {
        let mut flags = Flags::default();
        flags.set_text(flag, key, value);
        flags
    };
    let none = Flags::default();
    let unset: &[(&str, &str)] = &[];
    let by_flag = flag("--endpoint", "endpoint", "local");
    let address = "http://127.0.0.1:9/v1";
    let address_by_flag = flag("--base-url", "endpoints.{endpoint}.base_url", address);
    let by_variable = &[("TOOLHOLD_ENDPOINT", "local")][..];
    let address_by_variable = &[("TOOLHOLD_BASE_URL", address)][..];
    let in_use = |name: &str| Some(LostContent::EndpointInUse(name.to_owned()));
    for (then, now, flags, variables, expected) in [
        (two, local, &none, unset, in_use("default")),
        (two, local, &by_flag, unset, None),
        (two, local, &none, by_variable, None),
        (two, usual, &by_flag, unset, in_use("local")),
        (two, usual, &none, by_variable, in_use("local")),
        (preset, "endpoint = \"openai\"\n", &none, unset, None),
        (preset, steps, &none, unset, Some(LostContent::Endpoints)),
        (usual, steps, &none, unset, Some(LostContent::Endpoints)),
        (usual, steps, &address_by_flag, unset, None),
        (usual, steps, &none, address_by_variable, None),
        (local, steps, &address_by_flag, unset, None),
    ] {
        let (lost, _) = restored([None, Some(then)], [None, Some(now)], flags, variables);
        assert_eq!(lost, expected, "{then} -> {now}, {flags:?}, {variables:?}");
    }
}
