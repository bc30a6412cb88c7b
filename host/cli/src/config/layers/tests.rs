use super::*;
use crate::config::secrets::StoredSecrets;
use std::io::Write as _;
use toolhold_runtime::config::Configuration;

fn merge_with(
    text: &str,
    variables: &[(&str, &str)],
    flags: &Flags,
) -> Result<Merged, ConfigError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    merge(
        &ConfigFiles::read(Some(file.path()))?,
        flags,
        variables
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
    )?
    .known()
}

fn checked(merged: &Merged) -> Result<Configuration, ConfigError> {
    crate::config::configuration(
        merged,
        &ConfigFiles::default(),
        &StoredSecrets::default(),
        merged.table(),
        "",
    )
}

#[test]
fn a_variable_that_a_setting_names_may_be_called_anything() {
    for text in [
        "[endpoints.spare]\nbase_url = \"http://s/v1\"\napi_key_env = \"TOOLHOLD_SPARE_KEY\"",
        "[mcp.s]\ncommand = [\"s\"]\nsecret_env = [\"OTHER\", \"TOOLHOLD_SPARE_KEY\"]",
        "[mcp.s]\nurl = \"http://s/\"\ntoken_env = \"TOOLHOLD_SPARE_KEY\"",
        "[storage]\nurl_env = \"TOOLHOLD_SPARE_KEY\"",
        "[module.m]\nsecrets = [{ name = \"k\", env = \"TOOLHOLD_SPARE_KEY\" }]",
    ] {
        let variables = [("TOOLHOLD_SPARE_KEY", "s3cret")];
        let merged = merge_with(text, &variables, &Flags::default());
        let merged = merged.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(!merged.leaves.contains_key("spare_key"));
        let others = [("TOOLHOLD_SPARE_KEYS", "s3cret")];
        let unknown = merge_with(text, &others, &Flags::default()).unwrap_err();
        assert!(
            matches!(&unknown, ConfigError::UnknownKey { key, .. } if key == "spare_keys"),
            "{text}: {unknown}"
        );
    }
    // A flag may name it, and so may another variable.
    let mut flags = Flags::default();
    flags.set(
        "--key",
        "endpoints.default.api_key_env",
        Some("TOOLHOLD_SPARE_KEY"),
    );
    merge_with("", &[("TOOLHOLD_SPARE_KEY", "s3cret")], &flags).unwrap();
    let named = ("TOOLHOLD_STORAGE__URL_ENV", "TOOLHOLD_SPARE_KEY");
    let variables = [("TOOLHOLD_SPARE_KEY", "s3cret"), named];
    merge_with("", &variables, &Flags::default()).unwrap();
}

#[test]
fn flags_beat_variables_beat_files_beat_defaults() {
    let mut flags = Flags::default();
    flags.set("--model", "endpoints.{endpoint}.model", Some("from-flag"));
    let merged = merge_with(
        "endpoint = \"big\"\n[endpoints.big]\nbase_url = \"http://f/v1\"\nmodel = \"from-file\"\n[run]\nmax_steps = 3",
        &[("TOOLHOLD_BASE_URL", "http://v/v1"), ("TOOLHOLD_RUN__MAX_STEPS", "5")],
        &flags,
    )
    .unwrap();
    assert_eq!(
        merged.leaves["endpoints.big.model"].0.as_str(),
        Some("from-flag")
    );
    assert_eq!(
        merged.leaves["endpoints.default.base_url"].0.as_str(),
        Some("http://v/v1")
    );
    assert_eq!(
        merged.leaves["endpoints.big.base_url"].0.as_str(),
        Some("http://f/v1")
    );
    assert_eq!(merged.leaves["run.max_steps"].0.as_integer(), Some(5));
    assert_eq!(
        merged.origin("run.max_steps"),
        "variable TOOLHOLD_RUN__MAX_STEPS"
    );
    assert_eq!(merged.origin("run.max_tokens"), "default");
}

/// The short address is the default endpoint's alone. The short model is the run's, unless it stands beside the
/// address; it is left out where there is no such endpoint.
#[test]
fn the_short_address_is_the_default_endpoints_and_the_model_beside_it_too() {
    let text = "[endpoints.big]\nbase_url = \"http://f/v1\"\nmodel = \"f\"\n[pools.both]\nmembers = [\"big\"]";
    let of = |name: Option<&str>, variable: &str, has_address: bool| {
        let mut flags = Flags::default();
        flags.set("--endpoint", "endpoint", name.map(str::to_owned));
        let mut variables = vec![("TOOLHOLD_ENDPOINT", variable), ("TOOLHOLD_MODEL", "v")];
        variables.extend(has_address.then_some(("TOOLHOLD_BASE_URL", "http://v/v1")));
        let merged = merge_with(text, &variables, &flags).unwrap();
        let leaf = |key: &str| {
            let (value, _) = merged.leaves.get(key)?;
            value.as_str().map(str::to_owned)
        };
        assert_eq!(leaf("endpoints.nope.model"), None);
        (leaf("endpoints.big.base_url"), leaf("endpoints.big.model"))
    };
    let pair = |a: &str, b: &str| (Some(a.to_owned()), Some(b.to_owned()));
    for (name, variable, expected) in [
        (None, "big", pair("http://f/v1", "v")),
        (Some("big"), "default", pair("http://f/v1", "v")),
        (Some("default"), "big", pair("http://f/v1", "f")),
        (None, "both", pair("http://f/v1", "f")),
        (None, "nope", pair("http://f/v1", "f")),
    ] {
        assert_eq!(of(name, variable, false), expected, "{name:?} {variable}");
        let unmoved = pair("http://f/v1", "f");
        assert_eq!(of(name, variable, true), unmoved, "{name:?} {variable}");
    }
    let mut flags = Flags::default();
    flags.set("--endpoint", "endpoint", Some("nope"));
    flags.set("--model", "endpoints.{endpoint}.model", Some("m"));
    let error = merge_with(text, &[], &flags).unwrap_err().to_string();
    assert!(error.contains("nope is no endpoint"), "{error}");
}

/// The leaves of an endpoint as text, with their origins.
fn leaf(merged: &Merged, key: &str) -> (String, String) {
    let (value, origin) = &merged.leaves[key];
    (value.to_string(), origin.clone())
}

#[test]
fn a_preset_stands_in_for_what_an_endpoint_does_not_set() {
    let text = "[endpoints.default]\nbase_url = \"http://d/v1\"\nextra = { min_p = 0.1 }\n\
                [endpoints.groq]\nmodel = \"m\"\n\
                [endpoints.ollama]\nbase_url = \"http://o/v1\"\nmodel = \"n\"";
    let merged = merge_with(text, &[], &Flags::default()).unwrap();
    let of = |key: &str| leaf(&merged, key).0;
    assert_eq!(
        leaf(&merged, "endpoints.groq.base_url"),
        (
            "\"https://api.groq.com/openai/v1\"".into(),
            "preset groq".into()
        )
    );
    assert_eq!(of("endpoints.groq.api_key_env"), "\"GROQ_API_KEY\"");
    // What the default endpoint's server understands, another need not.
    assert_eq!(of("endpoints.groq.extra"), "{}");
    // One with an address of its own is as it was before there were presets.
    assert_eq!(of("endpoints.ollama.base_url"), "\"http://o/v1\"");
    assert_eq!(of("endpoints.ollama.api_key_env"), "\"TOOLHOLD_API_KEY\"");
    assert_eq!(of("endpoints.ollama.extra"), "{ min_p = 0.1 }");
    assert!(checked(&merged).is_ok());
}

#[test]
fn a_preset_is_named_together_with_its_model() {
    let url = ("TOOLHOLD_BASE_URL", "http://v/v1");
    let model = ("TOOLHOLD_MODEL", "openai:gpt-x");
    let given = |model: &str| {
        let mut flags = Flags::default();
        flags.set(MODEL_FLAG, "endpoint", Some("openai"));
        flags.set(MODEL_FLAG, "endpoints.openai.model", Some(model));
        flags
    };
    let none = Flags::default;
    for (variables, flags, endpoint, name, address) in [
        // The address of the variable is that of another endpoint, and the key must not go there.
        (
            vec![url],
            given("gpt-y"),
            "openai",
            "gpt-y",
            "https://api.openai.com/v1",
        ),
        (
            vec![model],
            none(),
            "openai",
            "gpt-x",
            "https://api.openai.com/v1",
        ),
        // At an address of its own, a model may have any name.
        (
            vec![url, model],
            none(),
            "default",
            "openai:gpt-x",
            "http://v/v1",
        ),
        (
            vec![model, ("TOOLHOLD_ENDPOINT", "default")],
            none(),
            "default",
            "openai:gpt-x",
            "http://127.0.0.1:8000/v1",
        ),
        (
            vec![("TOOLHOLD_ENDPOINT", "groq")],
            none(),
            "groq",
            "",
            "https://api.groq.com/openai/v1",
        ),
    ] {
        let merged = merge_with("", &variables, &flags).unwrap();
        let text = |key: &str| merged.text(key).unwrap().to_owned();
        assert_eq!(text("endpoint"), endpoint, "{variables:?}");
        assert_eq!(
            text(&format!("endpoints.{endpoint}.model")),
            name,
            "{variables:?}"
        );
        assert_eq!(
            text(&format!("endpoints.{endpoint}.base_url")),
            address,
            "{variables:?}"
        );
        assert!(checked(&merged).is_ok());
    }
}

/// The key of a preset is for the address of the preset.
#[test]
fn a_preset_at_another_address_has_nothing_of_the_preset() {
    let url = "http://v/v1";
    let by_flag = |flag: &str, key: &str, value: &str| {
        let mut flags = Flags::default();
        flags.set(flag, key, Some(value));
        flags
    };
    let chosen = [
        ("", vec![], by_flag("--endpoint", "endpoint", "openai")),
        ("", vec![("TOOLHOLD_ENDPOINT", "openai")], Flags::default()),
        ("endpoint = \"openai\"", vec![], Flags::default()),
        (
            "endpoint = \"openai\"\n[endpoints.openai]\nmodel = \"m\"",
            vec![],
            Flags::default(),
        ),
    ];
    let addresses = ["TOOLHOLD_ENDPOINTS__OPENAI__BASE_URL", "--base-url"];
    for (file, variables, flags) in chosen {
        for address in addresses {
            let (mut variables, mut flags) = (variables.clone(), flags.clone());
            if address.starts_with('-') {
                flags.set(address, "endpoints.{endpoint}.base_url", Some(url));
            } else {
                variables.push((address, url));
            }
            let merged = merge_with(file, &variables, &flags).unwrap();
            let at = format!("{file} {variables:?} {flags:?}");
            assert_eq!(merged.text("endpoint"), Some("openai"), "{at}");
            assert_eq!(merged.text("endpoints.openai.base_url"), Some(url), "{at}");
            let key = merged.text("endpoints.openai.api_key_env");
            assert_eq!(key, Some("TOOLHOLD_API_KEY"), "{at}");
            let contract = merged.text("endpoints.openai.contract");
            assert_eq!(contract, merged.text("endpoints.default.contract"), "{at}");
            assert!(checked(&merged).is_ok(), "{at}");
        }
        // The short variable is the address of another endpoint.
        for address in [None, Some(("TOOLHOLD_BASE_URL", url))] {
            let variables: Vec<_> = variables.iter().copied().chain(address).collect();
            let merged = merge_with(file, &variables, &flags).unwrap();
            let key = merged.text("endpoints.openai.api_key_env");
            assert_eq!(key, Some("OPENAI_API_KEY"), "{file} {variables:?}");
            let own = merged.text("endpoints.openai.base_url");
            assert_eq!(
                own,
                Some("https://api.openai.com/v1"),
                "{file} {variables:?}"
            );
        }
    }
}

#[test]
fn a_wrong_key_is_named_with_its_place_and_a_suggestion() {
    let error = merge_with("[run]\nmax_step = 3", &[], &Flags::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("run.max_step") && error.contains("did you mean \"run.max_steps\"?"),
        "{error}"
    );
    assert!(error.starts_with("file "), "{error}");
    for table in ["limits", "ceiling"] {
        let text = format!("[{table}]\nhandles = 3");
        let error = merge_with(&text, &[], &Flags::default()).unwrap_err();
        let advice = "[module.NAME.limits] sets \"handles\" for one module";
        assert!(error.to_string().contains(advice), "{error}");
    }
    for (text, new) in [
        ("[modules]\napproval = \"never\"", "modules.pinning"),
        ("[approval]\nplans = true", "decisions.plans"),
        (
            "[agents.a.approval]\nplans = true",
            "agents.a.decisions.plans",
        ),
    ] {
        let error = merge_with(text, &[], &Flags::default()).unwrap_err();
        let advice = format!("it is called {new:?}");
        assert!(error.to_string().contains(&advice), "{error}");
    }
    for text in [
        "[endpoints.default]\nbreaker_rest_ms = 5",
        "[pools.p]\nmax_backoff_ms = 5",
        "[agents.a.run]\nresult_cache_ms = 5",
        "[compiler]\nown_process = true",
    ] {
        let error = merge_with(text, &[], &Flags::default()).unwrap_err();
        assert!(error.to_string().contains("its value is fixed"), "{error}");
    }
    merge_with("[module.m.limits]\nhandles = 3", &[], &Flags::default()).unwrap();
    let error = merge_with("", &[("TOOLHOLD_RUN__NONSENSE", "1")], &Flags::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("variable TOOLHOLD_RUN__NONSENSE"),
        "{error}"
    );
}

#[test]
fn values_of_a_found_file_have_it_as_their_origin() {
    let found = Merged {
        leaves: BTreeMap::from([
            (
                "mcp.a.command".into(),
                (Value::from("x"), "file toolhold.toml".into()),
            ),
            (
                "mcp.a.env".into(),
                (Value::from("x"), "file /home/me/config.toml".into()),
            ),
            (
                "mcp.ab.url".into(),
                (Value::from("x"), "file /home/me/config.toml".into()),
            ),
        ]),
        order: Vec::new(),
        is_named: false,
        ignored: Vec::new(),
        unknown: Vec::new(),
        given: Given::new(),
        withheld: Vec::new(),
    };
    assert!(found.is_found("mcp.a") && found.is_found("mcp.a.command"));
    assert!(!found.is_found("mcp.ab") && !found.is_found("mcp.a.env"));
    let named = Merged {
        is_named: true,
        ..found
    };
    assert!(!named.is_found("mcp.a"));
}

#[test]
fn servers_take_their_keys_and_nothing_else() {
    let merged = merge_with(
        "[mcp.weather]\ncommand = [\"a\"]\nenv = { A = \"b\", C = \"d\" }\ntools = []",
        &[],
        &Flags::default(),
    )
    .unwrap();
    assert!(merged.leaves["mcp.weather.env"].0.is_table());
    assert!(merge_with("[mcp.weather]\ncomand = [\"a\"]", &[], &Flags::default()).is_err());
}

#[test]
fn modules_take_grants_and_limits_and_nothing_else() {
    merge_with(
        "[module.files]\ndirectories = [{ host = \"a\", guest = \"/a\" }]\nenvironment = { A = \"b\" }\nlimits = { fuel = 1 }",
        &[],
        &Flags::default(),
    )
    .unwrap();
    assert!(merge_with("[module.files]\ndirectory = []", &[], &Flags::default()).is_err());
    assert!(merge_with("[module.files.limits]\nfule = 1", &[], &Flags::default()).is_err());
}

/// An unknown key is refused, though it holds nothing: it was meant to hold something.
#[test]
fn an_unknown_key_is_an_error_though_it_is_empty() {
    for (text, key) in [
        ("[nonsense]", "nonsense"),
        ("nonsense = []", "nonsense"),
        ("[[nonsense]]", "nonsense"),
        ("[nonsense.deeper]", "nonsense.deeper"),
        ("[run.nonsense]", "run.nonsense"),
        ("[module.files]\nkey_values = {}", "module.files.key_values"),
        ("[module.files.limit]", "module.files.limit"),
        ("[module.files.limits.fuels]", "module.files.limits.fuels"),
        ("[mcp.weather.envs]", "mcp.weather.envs"),
        ("[shields.mails.setting]", "shields.mails.setting"),
        ("[endpoints.big.extras]", "endpoints.big.extras"),
        ("[pools.both.members.deeper]", "pools.both.members.deeper"),
        ("[router.class]", "router.class"),
        ("[router.classes.hard.words]", "router.classes.hard.words"),
        ("[agents.one.runs]", "agents.one.runs"),
        ("[agents.one.run.nonsense]", "agents.one.run.nonsense"),
        (
            "[agents.one.shields.mails.blocks]",
            "agents.one.shields.mails.blocks",
        ),
    ] {
        let merged = merge_with(text, &[], &Flags::default());
        match merged.unwrap_err() {
            ConfigError::UnknownKey { key: found, .. } => assert_eq!(found, key, "{text}"),
            error => panic!("{text}: {error}"),
        }
    }
    let variables = [("TOOLHOLD_NONSENSE", "{}")];
    assert!(merge_with("", &variables, &Flags::default()).is_err());
}

/// A file that was found may have a key of any length, which is compared with none and named by its beginning.
#[test]
fn a_key_of_any_length_is_refused_in_a_short_message() {
    let long = "x".repeat(1 << 20);
    for text in [
        format!("{long} = 1"),
        format!("[run]\n{long} = 1"),
        format!("[module.m]\n{long} = 1"),
        format!("[module.{long}.limits]\nfuels = 1"),
        format!("[agents.{long}.approval]\nalways = []"),
    ] {
        let error = merge_with(&text, &[], &Flags::default()).unwrap_err();
        let told = error.to_string();
        assert!(told.len() < 2_000, "{} bytes", told.len());
        assert!(told.contains("xxx…\""), "{told}");
    }
}

/// A set value counts as set even if it equals the default.
#[test]
fn a_default_token_limit_is_known_as_the_default() {
    for (text, assumed) in [("", Some(1_024)), ("[run]\nmax_tokens = 1024", None)] {
        let merged = merge_with(text, &[], &Flags::default()).unwrap();
        let settings = checked(&merged).unwrap().settings();
        assert_eq!(
            (settings.max_tokens, settings.assumed_max_tokens),
            (1_024, assumed),
            "{text}"
        );
    }
}

/// A table with only comments is not a table, unless its name alone has a meaning.
#[test]
fn an_empty_table_of_a_known_name_says_no_more_than_its_name() {
    let read =
        |text: &str| merge_with(text, &[], &Flags::default()).and_then(|merged| checked(&merged));
    for text in [
        "[run]",
        "[module]",
        "[module.files]",
        "[module.files.limits]",
        "[endpoints.default]",
        "[endpoints.default.extra]",
        "[pools]",
        "[router.classes]",
        "[shields]",
    ] {
        let settings = merge_with(text, &[], &Flags::default()).unwrap().settings();
        let nothing = merge_with("", &[], &Flags::default()).unwrap().settings();
        assert_eq!(settings.len(), nothing.len(), "{text}");
        read(text).unwrap();
    }
    for text in [
        "[agents.one]",
        "[agents.one.run]",
        "[agents.one.grants]",
        "[agents.one.grants.files]",
        "[agents.one.shields]",
    ] {
        let config = read(text).unwrap();
        assert!(config.agent_tables().contains_key("one"), "{text}");
    }
    for (text, says) in [
        ("[shields.mails]", "kind"),
        ("[agents.one.shields.mails]", "kind"),
        ("[mcp.weather]", "give either `command` or `url`"),
        ("[pools.both]", "members"),
        ("[endpoints.big]", "base_url"),
        ("[run.max_steps]", "run.max_steps"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    // What another layer fills in is not shown as empty besides.
    let mut flags = Flags::default();
    flags.set("--block", "shields.mails.kind", Some("pii"));
    let merged = merge_with("[shields.mails]", &[], &flags).unwrap();
    assert!(!merged.leaves.contains_key("shields.mails"));
}

/// The file that the rows of the table in `docs/configuration.md` are about.
fn documented<'t>(text: &'t str, language: &str) -> &'t str {
    let section = text
        .split("\n### Which address, which key\n")
        .nth(1)
        .unwrap();
    let block = section.split(&format!("```{language}\n")).nth(1).unwrap();
    block.split("```").next().unwrap()
}

/// Each row of the table in `docs/configuration.md`: what is given, and which endpoint, address and key that means.
#[test]
fn the_documented_addresses_go_with_the_documented_keys() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        endpoint: crate::commands::endpoint::EndpointArgs,
    }
    let text = include_str!("../../../../../docs/configuration.md");
    let file = documented(text, "toml");
    let section = text
        .split("\n### Which address, which key\n")
        .nth(1)
        .unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let mut seen = 0;
    for row in rows {
        seen += 1;
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [given, endpoint, address, key] = cells[..] else {
            panic!("{row}");
        };
        let (mut variables, mut arguments) = (Vec::new(), vec!["toolhold"]);
        for word in given.replace('`', "").split_whitespace() {
            match word
                .split_once('=')
                .filter(|_| word.starts_with("TOOLHOLD_"))
            {
                Some((name, value)) => variables.push((name.to_owned(), value.to_owned())),
                None => arguments.push(Box::leak(word.to_owned().into_boxed_str())),
            }
        }
        let line = <Line as clap::Parser>::try_parse_from(&arguments).unwrap();
        let mut flags = Flags::default();
        line.endpoint.put(&mut flags);
        let variables: Vec<_> = variables
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let merged = merge_with(file, &variables, &flags).unwrap();
        let table = format!("endpoints.{}", endpoint.trim_matches('`'));
        assert_eq!(
            merged
                .text("endpoint")
                .map(|own| format!("endpoints.{own}")),
            Some(table.clone()),
            "{row}"
        );
        let own = merged.text(&format!("{table}.base_url"));
        assert_eq!(own, Some(address.trim_matches('`')), "{row}");
        let sent = merged.text(&format!("{table}.api_key_env")).unwrap();
        let withheld = merged.withheld.iter().find(|it| it.table == table);
        match (key.strip_prefix("error: `"), withheld) {
            (Some(rest), Some(withheld)) => {
                assert_eq!(sent, "", "{row}");
                let name = rest.split('`').next().unwrap();
                assert_eq!(withheld.variables, [name], "{row}");
            }
            (None, None) => assert_eq!(sent, key.trim_matches('`'), "{row}"),
            other => panic!("{row}: {other:?}"),
        }
    }
    assert!(seen >= 15, "{seen}");
}

/// A key stays behind where another layer replaces the address; the layer that names both takes both.
#[test]
fn a_key_stays_behind_where_another_layer_replaces_its_address() {
    let endpoint = "[endpoints.big]\nbase_url = \"http://f/v1\"\napi_key_env = \"K\"\n";
    let server = "[mcp.s]\nurl = \"https://f/\"\ntoken_env = \"K\"\n";
    let program = "[mcp.s]\ncommand = [\"f\"]\nsecret_env = [\"K\"]\n";
    let collector = "[telemetry]\nendpoint = \"http://f\"\nheaders_env = \"K\"\n";
    let default = "[endpoints.default]\nbase_url = \"http://f/v1\"\napi_key_env = \"K\"\n";
    let spare = "[endpoints.default]\napi_key_env = \"K\"\nbase_url = \"http://f/v1\"\n[endpoints.spare]\nmodel = \"m\"\n";
    for (file, variables, table) in [
        (
            endpoint,
            vec![("TOOLHOLD_ENDPOINTS__BIG__BASE_URL", "http://v/v1")],
            "endpoints.big",
        ),
        (
            default,
            vec![("TOOLHOLD_BASE_URL", "http://v/v1")],
            "endpoints.default",
        ),
        (
            server,
            vec![("TOOLHOLD_MCP__S__URL", "https://v/")],
            "mcp.s",
        ),
        (program, vec![("TOOLHOLD_MCP__S__COMMAND", "v")], "mcp.s"),
        (
            collector,
            vec![("TOOLHOLD_TELEMETRY__ENDPOINT", "http://v")],
            "telemetry",
        ),
        // What is inherited of an endpoint at another address.
        (
            spare,
            vec![("TOOLHOLD_ENDPOINTS__SPARE__BASE_URL", "http://v/v1")],
            "endpoints.spare",
        ),
        // The key of the variables is for the address of the variables.
        (
            "[endpoints.big]\nbase_url = \"http://f/v1\"\nmodel = \"m\"",
            vec![
                ("TOOLHOLD_BASE_URL", "http://v/v1"),
                ("TOOLHOLD_API_KEY", "k"),
            ],
            "endpoints.big",
        ),
    ] {
        let merged = merge_with(file, &variables, &Flags::default()).unwrap();
        let withheld: Vec<_> = merged.withheld.iter().map(|it| it.table.as_str()).collect();
        assert_eq!(withheld, [table], "{file} {variables:?}");
        let error = merged.withheld[0].error().to_string();
        assert!(error.contains("not configured with the address"), "{error}");
        let merged = merge_with(file, &[], &Flags::default()).unwrap();
        assert!(merged.withheld.is_empty(), "{file}");
    }
    for (file, variables) in [
        // The same address is no other one.
        (
            endpoint,
            vec![("TOOLHOLD_ENDPOINTS__BIG__BASE_URL", "http://f/v1/")],
        ),
        (
            endpoint,
            vec![
                ("TOOLHOLD_ENDPOINTS__BIG__BASE_URL", "http://v/v1"),
                ("TOOLHOLD_ENDPOINTS__BIG__API_KEY_ENV", "V"),
            ],
        ),
        // A key without an address is for the one that is given.
        (
            "[endpoints.default]\napi_key_env = \"K\"",
            vec![("TOOLHOLD_BASE_URL", "http://v/v1")],
        ),
        (
            "",
            vec![
                ("TOOLHOLD_BASE_URL", "http://v/v1"),
                ("TOOLHOLD_API_KEY", "k"),
            ],
        ),
        // One file gave both.
        (
            "[endpoints.default]\nbase_url = \"http://d/v1\"\n[endpoints.spare]\nbase_url = \"http://s/v1\"",
            vec![("TOOLHOLD_API_KEY", "k")],
        ),
    ] {
        let merged = merge_with(file, &variables, &Flags::default()).unwrap();
        assert!(
            merged.withheld.is_empty(),
            "{file} {variables:?}: {:?}",
            merged.withheld
        );
    }
}
