//! Names of OpenTelemetry's semantic conventions for GenAI, and our own beside them.
//!
//! The conventions are in development and change, so their version is pinned: 1.43.0, the last version of the general
//! conventions that lists them. `gen_ai.invoke_agent.duration` and `gen_ai.execute_tool.duration` come from the GenAI
//! conventions, which continue in a repository of their own.

pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.43.0";
pub const SCOPE: &str = "toolhold";

pub const OPERATION: &str = "gen_ai.operation.name";
pub const INVOKE_AGENT: &str = "invoke_agent";
pub const CHAT: &str = "chat";
pub const EXECUTE_TOOL: &str = "execute_tool";

pub const PROVIDER: &str = "gen_ai.provider.name";
/// The protocol of all our endpoints, whatever their vendor.
pub const OPENAI: &str = "openai";

pub const AGENT_NAME: &str = "gen_ai.agent.name";
pub const CONVERSATION: &str = "gen_ai.conversation.id";
pub const ERROR_TYPE: &str = "error.type";

pub const REQUEST_MODEL: &str = "gen_ai.request.model";
pub const MAX_TOKENS: &str = "gen_ai.request.max_tokens";
pub const TEMPERATURE: &str = "gen_ai.request.temperature";
pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
/// The revision of what answered, of an endpoint that tells one.
pub const FINGERPRINT: &str = "openai.response.system_fingerprint";
pub const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
pub const FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub const CACHED_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
pub const TOKEN_TYPE: &str = "gen_ai.token.type";
pub const INPUT: &str = "input";
pub const OUTPUT: &str = "output";

pub const TOOL_NAME: &str = "gen_ai.tool.name";
pub const TOOL_CALL: &str = "gen_ai.tool.call.id";
pub const TOOL_TYPE: &str = "gen_ai.tool.type";
pub const FUNCTION: &str = "function";

/// Only with `telemetry.capture_content`.
pub const INPUT_MESSAGES: &str = "gen_ai.input.messages";
pub const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
pub const TOOL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
pub const TOOL_RESULT: &str = "gen_ai.tool.call.result";

/// Our own names, for what the conventions do not name.
pub const RUN: &str = "toolhold.run.id";
pub const STEPS: &str = "toolhold.run.steps";
pub const STOP_REASON: &str = "toolhold.run.stop_reason";
pub const FUEL: &str = "toolhold.tool.fuel";
pub const MEMORY: &str = "toolhold.tool.memory";
pub const MODULE: &str = "toolhold.tool.module.digest";
/// Whether a call was given the result of an earlier one.
pub const CACHED: &str = "toolhold.tool.cached";
pub const ENDPOINT: &str = "toolhold.endpoint";
pub const ATTEMPT: &str = "toolhold.attempt";
/// `cut_off`, `filtered`, `only_thought`, `empty`, `unreadable`, `no_completion`, `broken_off`, `arguments` or
/// `unknown_tool`.
pub const REPLY_FAULT: &str = "toolhold.reply.fault";
/// `hit` or `miss`.
pub const CACHE_RESULT: &str = "toolhold.module.cache.result";
/// `running` or `waiting`.
pub const CALL_STATE: &str = "toolhold.sandbox.call.state";
/// Kind of the slots of the pool: `core_instances`, `component_instances`, `memories`, `tables` or `stacks`.
pub const POOL_RESOURCE: &str = "toolhold.sandbox.pool.resource";
pub const WAIT_MS: &str = "toolhold.wait_ms";
/// `start`, `takeover`, `recovery` or `asked`.
pub const RESUME_CAUSE: &str = "toolhold.resume.cause";
/// `shutdown`, `takeover` or `failure`.
pub const LEAVE_CAUSE: &str = "toolhold.leave.cause";
/// `full` or `late`.
pub const QUEUE_REFUSAL: &str = "toolhold.queue.refusal";
/// `ready` or `waiting`.
pub const AGENT_STATE: &str = "toolhold.agent.state";
/// `ready`, `disabled` or `failed`.
pub const MODULE_STATE: &str = "toolhold.module.state";
/// `applied`, `held_back` or `refused`.
pub const RELOAD_RESULT: &str = "toolhold.reload.result";
/// `read_only` or `unreachable`.
pub const OUTAGE: &str = "toolhold.outage";
/// `refused` or `lost`.
pub const AUDIT_FAILURE: &str = "toolhold.audit.failure";
/// `state` or `cache`.
pub const FOLDER: &str = "toolhold.folder";
pub const VERSION: &str = "version";

pub const HTTP_METHOD: &str = "http.request.method";
pub const HTTP_STATUS: &str = "http.response.status_code";
pub const HTTP_ROUTE: &str = "http.route";

/// Boundaries that the conventions recommend. Those of times go on until they are longer than the time-outs that bound
/// what is measured, also where an operator makes these a few times longer.
pub const TOKEN_BOUNDARIES: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
pub const SECOND_BOUNDARIES: [f64; 20] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84,
    327.68, 655.36, 1_310.72, 2_621.44, 5_242.88,
];
pub const FIRST_CHUNK_BOUNDARIES: [f64; 21] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    30.0, 60.0, 120.0, 300.0, 600.0,
];
pub const CHUNK_BOUNDARIES: [f64; 18] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 10.0, 30.0, 60.0,
    120.0, 300.0,
];
/// A call in the sandbox takes microseconds, one over the network minutes.
pub const TOOL_BOUNDARIES: [f64; 16] = [
    0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0, 300.0,
    600.0,
];
/// A page takes milliseconds; the answer of a run takes as long as the run. Each route, method and status has all of
/// them, so they are fewer than the conventions have.
pub const HTTP_BOUNDARIES: [f64; 11] = [
    0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0, 1_200.0, 3_600.0,
];
pub const BYTE_BOUNDARIES: [f64; 9] = [
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
    134_217_728.0,
    268_435_456.0,
    1_073_741_824.0,
];
