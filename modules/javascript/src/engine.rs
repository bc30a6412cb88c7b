//! Runs code in QuickJS to its end: the script, the promises it left, its timers.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use rquickjs::context::EvalOptions;
use rquickjs::function::Func;
use rquickjs::{
    Context, Ctx, FromJs, Function, Object, Promise, Runtime, TypedArray, Value as JsValue,
};
use toolhold_guest::{Error, Value, json};

use crate::files;
use crate::transcript::Transcript;

/// The name that errors show for the code.
const FILE: &str = "<code>";
/// Of the C stack, of which there is more (`.cargo/config.toml`), because some of
/// what QuickJS does takes more of the host's stack than of this one. Two thousand calls deep.
const STACK: usize = 512 << 10;
/// A result beyond this is data to be reduced in the code, not to be read.
const MAX_RESULT_BYTES: usize = 64_000;
const MAX_ERROR_CHARACTERS: usize = 4_000;

/// What was printed and the result; an error has the class `correctable` and names the line.
pub fn run(code: &str, input: &Value, root: Option<&Path>) -> Result<(String, Value), Error> {
    let transcript = Rc::new(RefCell::new(Transcript::default()));
    let rejections = Rc::new(RefCell::new(Vec::new()));
    let result = engine(&rejections).and_then(|(_runtime, context)| {
        context.with(|ctx| {
            let prelude = prelude(&ctx, &transcript, root)?;
            finished(&ctx, &prelude, code, input, &rejections)
        })
    });
    let stdout = transcript.borrow().text();
    match result {
        Ok(result) => Ok((stdout, result)),
        Err(Failure(message)) => {
            let error = Error::correctable(cut(message));
            Err(if stdout.is_empty() {
                error
            } else {
                error.with_data(json!({ "stdout": stdout }))
            })
        }
    }
}

/// Why the code did not come to its end, in words for the model.
struct Failure(String);

impl From<rquickjs::Error> for Failure {
    fn from(error: rquickjs::Error) -> Self {
        Self(format!("the interpreter failed: {error}"))
    }
}

/// Rejected promises that nobody has handled so far, as they will be shown.
type Rejections = Rc<RefCell<Vec<String>>>;

fn engine(rejections: &Rejections) -> Result<(Runtime, Context), Failure> {
    let runtime = Runtime::new()?;
    // No limit of memory: QuickJS cannot count here what it allocates. Where the host's limit is met,
    // an allocation fails, which is an exception.
    runtime.set_max_stack_size(STACK);
    let rejections = rejections.clone();
    runtime.set_host_promise_rejection_tracker(Some(Box::new(
        move |_ctx: Ctx<'_>, _promise, reason: JsValue<'_>, handled| {
            let shown = shown(&reason);
            let mut pending = rejections.borrow_mut();
            if !handled {
                pending.push(shown);
            } else if let Some(at) = pending.iter().position(|other| *other == shown) {
                pending.remove(at);
            }
        },
    )));
    let context = Context::full(&runtime)?;
    Ok((runtime, context))
}

fn shown(reason: &JsValue<'_>) -> String {
    reason.as_exception().map_or_else(
        || format!("{reason:?}"),
        |error| {
            format!(
                "{}\n{}",
                error.message().unwrap_or_default(),
                error.stack().unwrap_or_default()
            )
        },
    )
}

/// Evaluates the prelude with what it may use of ours.
fn prelude<'js>(
    ctx: &Ctx<'js>,
    transcript: &Rc<RefCell<Transcript>>,
    root: Option<&Path>,
) -> Result<Object<'js>, Failure> {
    let host = Object::new(ctx.clone())?;
    let transcript = transcript.clone();
    host.set(
        "print",
        Func::from(move |text: String| transcript.borrow_mut().line(&text)),
    )?;
    host.set(
        "encode",
        Func::from(|ctx: Ctx<'js>, text: String| TypedArray::<u8>::new(ctx, text)),
    )?;
    host.set(
        "decode",
        Func::from(|bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned()),
    )?;
    files::lend(&host, root)?;
    let mut options = EvalOptions::default();
    options.filename = Some("prelude.js".to_owned());
    let make: Function = ctx.eval_with_options(include_str!("prelude.js"), options)?;
    Ok(make.call((host,))?)
}

/// Runs the code, then everything it left to be run, and returns its result.
fn finished<'js>(
    ctx: &Ctx<'js>,
    prelude: &Object<'js>,
    code: &str,
    input: &Value,
    rejections: &Rejections,
) -> Result<Value, Failure> {
    ctx.globals()
        .set("input", ctx.json_parse(input.to_string())?)?;
    let caught = || explain(ctx, prelude, code);

    let script = evaluate(ctx, code).map_err(|_| caught())?;
    settle(ctx, prelude).map_err(|_| caught())?;
    let completion: Object = outcome(&script)
        .map_err(|_| caught())?
        .ok_or_else(waiting)?;
    let mut value: JsValue = completion.get("value")?;
    // `main()` as the last line: its promise is not what anybody wants to see.
    if let Some(promise) = value.as_promise() {
        value = outcome(promise)
            .map_err(|_| caught())?
            .ok_or_else(waiting)?;
    }
    if let Some(rejection) = rejections.borrow().first() {
        return Err(Failure(format!(
            "a promise was rejected and nobody caught it: {rejection}"
        )));
    }
    if value.is_undefined() {
        value = ctx.eval("typeof result === 'undefined' ? undefined : result")?;
    }
    let plain: Function = prelude.get("plain")?;
    let text: String = plain.call((value,)).map_err(|_| caught())?;
    if text.len() > MAX_RESULT_BYTES {
        return Err(Failure(format!(
            "the result has {} bytes of JSON, at most {MAX_RESULT_BYTES} are returned: return a part \
             or a summary of it",
            text.len()
        )));
    }
    text.parse()
        .map_err(|error| Failure(format!("the result is no JSON: {error}")))
}

/// Evaluates the script; its promise comes with an object that holds the completion value.
fn evaluate<'js>(ctx: &Ctx<'js>, code: &str) -> rquickjs::Result<Promise<'js>> {
    let script = |source: &str| {
        let mut options = EvalOptions::default();
        options.strict = false;
        options.promise = true;
        options.filename = Some(FILE.to_owned());
        ctx.eval_with_options(source, options)
    };
    let error = match script(code) {
        Err(rquickjs::Error::Exception) => ctx.catch(),
        other => return other,
    };
    // Models end programs with `return`, which is no fault of theirs worth a round trip.
    if error
        .as_exception()
        .and_then(rquickjs::Exception::message)
        .is_some_and(|message| message.contains("return not in a function"))
    {
        return script(&format!("(async () => {{{code}\n}})()"));
    }
    Err(ctx.throw(error))
}

/// Runs promise jobs and timers until there is neither.
fn settle<'js>(ctx: &Ctx<'js>, prelude: &Object<'js>) -> rquickjs::Result<()> {
    let tick: Function = prelude.get("tick")?;
    loop {
        while ctx.execute_pending_job() {}
        if ctx.has_exception() {
            return Err(rquickjs::Error::Exception);
        }
        if !tick.call(())? {
            return Ok(());
        }
    }
}

/// What a promise came to; nothing if it is still waiting.
fn outcome<'js, T: FromJs<'js>>(promise: &Promise<'js>) -> rquickjs::Result<Option<T>> {
    promise.result().transpose()
}

fn waiting() -> Failure {
    Failure(
        "the code waits for a promise that nothing will settle: there is no network and no input \
         here, only what the code itself resolves"
            .to_owned(),
    )
}

/// The pending exception with the lines of the code it came through, and what it may mean here.
fn explain<'js>(ctx: &Ctx<'js>, prelude: &Object<'js>, code: &str) -> Failure {
    let error = ctx.catch();
    let text = prelude
        .get("explain")
        .and_then(|explain: Function| explain.call((error,)));
    let mut text: String = text.unwrap_or_else(|_| "an error that cannot be shown".to_owned());
    if let Some(line) = line(&text).and_then(|line| code.lines().nth(line.checked_sub(1)?)) {
        let shown: String = line.trim().chars().take(200).collect();
        text = format!("{text}\nthe line: {shown}");
    }
    if text.starts_with("SyntaxError")
        && code
            .lines()
            .any(|line| line.trim_start().starts_with("import "))
    {
        text.push_str("\nthere are no packages to import here: write what you need in the code");
    }
    Failure(text)
}

/// The line of the first frame, `    at f (<code>:3:5)`.
fn line(text: &str) -> Option<usize> {
    let (_, rest) = text.split_once(FILE)?;
    let digits: String = rest
        .strip_prefix(':')?
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

fn cut(message: String) -> String {
    if message.chars().count() <= MAX_ERROR_CHARACTERS {
        return message;
    }
    let head: String = message.chars().take(MAX_ERROR_CHARACTERS).collect();
    format!("{head}\n[…]")
}
