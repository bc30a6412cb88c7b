//! Which benches have a yardstick. The names are criterion's: group, function, parameter.

pub struct Ratio {
    pub name: &'static str,
    /// Name of the bench; unique in the workspace.
    pub bench: &'static str,
    /// Names of the measurement and of the yardstick that divides it.
    pub of: &'static str,
    pub to: &'static str,
    /// Factor on the accepted ratio up to which the guard passes. Noise moves the ratios of short times most.
    pub bound: f64,
}

/// Both sides take milliseconds and do nearly the same.
const ALIKE: f64 = 1.25;
/// The two sides do different things, which a cache or a clock may favour differently.
const UNLIKE: f64 = 1.6;
/// One side takes next to nothing.
const TINY: f64 = 3.0;

pub const RATIOS: [Ratio; 14] = [
    ratio(
        "calculator, beside bare wasmtime",
        "calls",
        ["call/toolhold/calculator", "call/bare/calculator"],
        ALIKE,
    ),
    ratio(
        "text, beside bare wasmtime",
        "calls",
        ["call/toolhold/text", "call/bare/text"],
        ALIKE,
    ),
    ratio(
        "python, beside bare wasmtime",
        "calls",
        ["call/toolhold/python", "call/bare/python"],
        ALIKE,
    ),
    ratio(
        "a typed call, beside bare wasmtime",
        "calls",
        ["typed/toolhold", "typed/bare"],
        ALIKE,
    ),
    ratio(
        "loading text from the cache, beside compiling it",
        "calls",
        ["load/cached/text", "load/compiled/text"],
        UNLIKE,
    ),
    ratio(
        "a step of the machine, beside reading its tools",
        "steps",
        ["machine/step, 20 tools", YARDSTICK],
        UNLIKE,
    ),
    ratio(
        "a run of 10 steps, beside reading its tools",
        "steps",
        ["driver/run of 10 steps, 20 tools", YARDSTICK],
        UNLIKE,
    ),
    ratio(
        "200 layers of calls, beside one layer",
        "schedule",
        [
            "schedule/200 calls, by call/200 layers",
            "schedule/200 calls, by call/1 layers",
        ],
        UNLIKE,
    ),
    ratio(
        "items in one Request, beside a Request for each",
        "batch",
        [
            "batch/200 items/in one request",
            "batch/200 items/a request for each",
        ],
        UNLIKE,
    ),
    ratio(
        "a schema with 100 instances, beside a plain one",
        "schema",
        [
            "compose/200 tools/wired, 100 instances",
            "compose/200 tools/plain",
        ],
        UNLIKE,
    ),
    ratio(
        "the model client, beside a bare HTTP client",
        "model",
        ["model_call/client", "model_call/bare_http_client"],
        UNLIKE,
    ),
    ratio(
        "client, pool and router, beside a bare HTTP client",
        "model",
        [
            "model_call/router_pool_and_all",
            "model_call/bare_http_client",
        ],
        UNLIKE,
    ),
    ratio(
        "reading a result by the index, beside its definition",
        "data",
        [
            "data/read a result's field among 10000 writes/index",
            "data/read a result's field among 10000 writes/definition",
        ],
        TINY,
    ),
    ratio(
        "reading a list's element by the index, likewise",
        "data",
        [
            "data/read an element of a pushed list among 10000 writes/index",
            "data/read an element of a pushed list among 10000 writes/definition",
        ],
        TINY,
    ),
];

const YARDSTICK: &str = "yardstick/JSON of 20 tools";

const fn ratio(
    name: &'static str,
    bench: &'static str,
    [of, to]: [&'static str; 2],
    bound: f64,
) -> Ratio {
    Ratio {
        name,
        bench,
        of,
        to,
        bound,
    }
}
