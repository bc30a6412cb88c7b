use super::files::ConfigFiles;
use super::flags::Flags;
use super::layers;
use super::secrets::StoredSecrets;
use std::io::Write as _;
use toolhold_runtime::config::{Configuration, EndpointTable};

/// Endpoints a, b and c.
const ENDPOINTS: &str = r#"
[endpoints.a]
base_url = "http://a/v1"
model = "m"
[endpoints.b]
base_url = "http://b/v1"
model = "m"
[endpoints.c]
base_url = "http://c/v1"
model = "m"
"#;

pub(super) fn load(text: &str) -> Result<Configuration, String> {
    load_with(text, &Flags::default())
}

fn load_with(text: &str, flags: &Flags) -> Result<Configuration, String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{text}\n{ENDPOINTS}").unwrap();
    let files = ConfigFiles::read(Some(file.path())).map_err(|error| error.to_string())?;
    let merged = layers::merge(&files, flags, std::iter::empty());
    let config = merged.and_then(|merged| {
        super::configuration(
            &merged,
            &ConfigFiles::default(),
            &StoredSecrets::default(),
            merged.table(),
            "",
        )
    });
    config.map_err(|error| error.to_string())
}

fn names<'a>(endpoints: Vec<(&'a str, &EndpointTable)>) -> Vec<&'a str> {
    endpoints.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_pool_in_a_pool_stands_for_its_members() {
    let config = load(
        r#"
        endpoint = "all"
        [pools.two]
        members = ["c", "a"]
        [pools.all]
        members = ["b", "two"]
        overload = ["fewer-tokens", "smaller-model"]
        smaller = "default"
        "#,
    )
    .unwrap();
    let routes = config.routes();
    assert_eq!(names(routes.members("all")), ["b", "c", "a"]);
    assert_eq!(
        names(routes.endpoints_of("all")),
        ["b", "c", "a", "default"]
    );
    assert_eq!(names(routes.reached("a")), ["a"]);
}

#[test]
fn a_router_reaches_its_classes_and_its_own_model() {
    let config = load(
        r#"
        endpoint = "router"
        [router]
        model = "c"
        default = "hard"
        [router.classes.hard]
        description = "all else"
        to = "a"
        [router.classes.easy]
        description = "little things"
        to = "b"
        keywords = ["add"]
        "#,
    )
    .unwrap();
    let routes = config.routes();
    assert_eq!(names(routes.endpoints_of("router")), ["b", "a"]);
    assert_eq!(names(routes.reached("router")), ["b", "a", "c"]);
    // "easy" comes before "hard".
    assert_eq!(routes.router.policy().default, 1);
}

#[test]
fn impossible_setting_is_named_with_its_key_and_remedy() {
    let router = "[router]\ndefault = \"x\"\n[router.classes.x]\nto = \"a\"\n";
    for (text, key, reason) in [
        (
            "endpoint = \"nobody\"",
            "\"endpoint\"",
            "there is no [endpoints.nobody]",
        ),
        ("[pools.p]\nmembers = []", "pools.p.members", "at least one"),
        (
            "[pools.p]\nmembers = [\"a\", \"d\"]",
            "pools.p.members",
            "there are a, b, c, default, p",
        ),
        (
            "[pools.p]\nmembers = [\"a\", \"a\"]",
            "pools.p.members",
            "\"a\" twice",
        ),
        (
            "[pools.p]\nmembers = [\"a\", \"q\"]\n[pools.q]\nmembers = [\"b\", \"a\"]",
            "pools.p.members",
            "\"a\" twice",
        ),
        ("[pools.p]\nmembers = [\"p\"]", "pools.p.members", "p → p"),
        (
            "[pools.p]\nmembers = [\"q\"]\n[pools.q]\nmembers = [\"a\", \"p\"]",
            "pools.p.members",
            "p → q → p",
        ),
        (
            "[pools.p]\nmembers = [\"a\"]\noverload = [\"smaller-model\"]\nsmaller = \"q\"\n[pools.q]\nmembers = [\"p\"]",
            "pools.p.members",
            "p → q → p",
        ),
        (
            "[pools.p]\nmembers = [\"a\"]\nsmaller = \"b\"",
            "pools.p.smaller",
            "only if `overload`",
        ),
        (
            "[pools.p]\nmembers = [\"a\"]\noverload = [\"smaller-model\"]",
            "pools.p.overload",
            "needs `smaller`",
        ),
        (
            "[pools.p]\nmembers = [\"a\"]\noverload = [\"less\"]",
            "pools.p.overload",
            "unknown value",
        ),
        (
            "[pools.p]\nmembers = [\"a\"]\nattempts = 0",
            "pools.p.attempts",
            "at least 1",
        ),
        (
            "[pools.p]\nmembers = [\"a\"]\nfewer_tokens = 0",
            "pools.p.fewer_tokens",
            "at least 1",
        ),
        (
            "[pools.p]\nmember = [\"a\"]",
            "pools.p.member",
            "has no meaning",
        ),
        (
            "[pools.a]\nmembers = [\"b\"]",
            "pools.a",
            "name of an endpoint too",
        ),
        (
            "[pools.p]\nmembers = [\"default\"]",
            "endpoints.default.model",
            "member of the pool p",
        ),
        (
            "[endpoints.default]\nweight = 0",
            "endpoints.default.weight",
            "at least 1",
        ),
        (
            "[endpoints.default]\nattempts = 0",
            "endpoints.default.attempts",
            "at least 1",
        ),
        (
            "[endpoints.d]\nbase_url = \"http://d/v1\"\nmodel = \"m\"\ncontract = \"tools\"\n[endpoints.s]\nbase_url = \"http://s/v1\"\nmodel = \"m\"\ncontract = \"schema\"\n[pools.p]\nmembers = [\"s\", \"d\"]",
            "pools.p.members",
            "s has the contract \"schema\" and d \"tools\"",
        ),
        ("[router]\nmodel = \"a\"", "router.model", "has no classes"),
        (
            &router.replace("default = \"x\"", "default = \"y\""),
            "router.default",
            "must be one of the classes: x",
        ),
        (
            &router.replace("\"a\"", "\"d\""),
            "router.classes.x.to",
            "there is no [endpoints.d]",
        ),
        (
            &router.replace("[router]", "[router]\nmodel = \"a\""),
            "router.classes.x.description",
            "decides by",
        ),
        (
            &router.replace("[router]", "[router]\ntimeout_ms = 0"),
            "router.timeout_ms",
            "at least 1",
        ),
        (
            &format!("{router}keywords = [\" \"]"),
            "router.classes.x.keywords",
            "empty word",
        ),
        (
            &format!("{router}min_chars = 3\nmax_chars = 2"),
            "router.classes.x.min_chars",
            "more than max_chars",
        ),
        (
            &format!("{router}[pools.router]\nmembers = [\"a\"]"),
            "pools.router",
            "the router's own name",
        ),
    ] {
        let error = load(text).unwrap_err();
        assert!(
            error.contains(key) && error.contains(reason),
            "{text}\n{error}"
        );
    }
}

#[test]
fn settings_of_one_endpoint_are_refused_for_a_pool() {
    let mut flags = Flags::default();
    flags.set("--endpoint", "endpoint", Some("p"));
    flags.set("--model", "endpoints.{endpoint}.model", Some("other"));
    let error = load_with("[pools.p]\nmembers = [\"a\"]", &flags).unwrap_err();
    assert!(
        error.contains("flag --model") && error.contains("p is a pool"),
        "{error}"
    );
}

#[test]
fn an_endpoint_has_its_own_window_and_weight_and_the_defaults_of_the_rest() {
    let config = load("[endpoints.default]\nwindow = 8000\nweight = 7\nattempts = 2").unwrap();
    let a = &config.routes().endpoints["a"];
    assert_eq!((a.policy().window, a.weight), (None, 1));
    assert_eq!(a.retry().attempts, 2);
}

/// `max_cost` needs to know what every reply costs; what to set is named by the endpoint it is set at.
#[test]
fn an_endpoint_without_a_price_is_named() {
    const POOL: &str = "endpoint = \"all\"\n[run]\ncurrency = \"EUR\"\nmax_cost = 1\n\
                        [pools.all]\nmembers = [\"p\", \"q\"]\n";
    const PRICE: &str = "price_per_million = { prompt = 1, completion = 1 }\n";
    let endpoint = |name: &str, price: &str| {
        format!("[endpoints.{name}]\nbase_url = \"http://x/v1\"\nmodel = \"m\"\n{price}")
    };
    let (p, q) = (endpoint("p", PRICE), endpoint("q", PRICE));
    let guard = "[shields.g]\nkind = \"model\"\nendpoint = \"a\"\n";
    let router = "[router]\nmodel = \"b\"\ndefault = \"x\"\n[router.classes.x]\ndescription = \"x\"\nto = \"all\"\n";
    for (text, expect) in [
        (format!("{POOL}{p}{q}"), None),
        (
            format!("{POOL}{p}{}", endpoint("q", "")),
            Some("set endpoints.q.price_per_million or endpoints.q.gpu_hour"),
        ),
        (
            format!("{POOL}{}{}", endpoint("p", ""), endpoint("q", "")),
            Some("endpoints.p.gpu_hour, endpoints.q.price_per_million"),
        ),
        (
            format!("{POOL}{p}{}", endpoint("q", "gpu_hour = 2\n")),
            Some("p, q have different prices"),
        ),
        (
            format!("{POOL}{p}{q}{guard}"),
            Some("set endpoints.a.price_per_million"),
        ),
        (
            format!("{POOL}{p}{q}{router}").replace("\"all\"\n[run]", "\"router\"\n[run]"),
            Some("set endpoints.b.price_per_million"),
        ),
    ] {
        match (load(&text), expect) {
            (Ok(_), None) => {}
            (Err(error), Some(part)) => assert!(
                error.contains("run.max_cost") && error.contains(part),
                "{error}"
            ),
            (loaded, expect) => panic!("{expect:?}: {:?}\n{text}", loaded.err()),
        }
    }
}

#[test]
fn hedging_is_off_unless_it_is_set() {
    let config = load("[pools.two]\nmembers = [\"a\", \"b\"]\n").unwrap();
    let routes = config.routes();
    assert_eq!(routes.endpoints["a"].hedge_after(), None);
    assert_eq!(routes.pools["two"].policy().hedge_after, None);
    let config = load(
        "[endpoints.default]\nhedge_after_ms = 700\n[pools.two]\nmembers = [\"a\", \"b\"]\nhedge_after_ms = 90\n",
    )
    .unwrap();
    let routes = config.routes();
    let ms = |n| Some(std::time::Duration::from_millis(n));
    assert_eq!(routes.endpoints["a"].hedge_after(), ms(700));
    assert_eq!(routes.pools["two"].policy().hedge_after, ms(90));
}
