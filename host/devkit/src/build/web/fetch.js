// `fetch` over `wasi:http`. The host sends a request only to an origin that was granted.

import { Fields, OutgoingBody, OutgoingRequest, RequestOptions, httpErrorCode } from "wasi:http/types@9.2.11";
import { handle } from "wasi:http/outgoing-handler@9.2.11";
import { now, resolution, subscribeDuration } from "wasi:clocks/monotonic-clock@9.2.11";
import { poll } from "wasi:io/poll@9.2.11";

/** Most bytes of a response's body. */
const MOST = 16 << 20;
/** Bytes of a body that are asked for at a time. */
const READ = 64 << 10;
/**
 * Requests at a time, sent and not read to the end: fewer than the 8 that the host allows a call by default
 * (`http_concurrent`).
 */
const AT_ONCE = 6;
/** How many nanoseconds later than the module the host ends a request, so that the module's own words come first. */
const HOST_SLACK = 50e6;
/** Methods whose requests may be sent again (RFC 9110, 9.2.2). */
const REPEATABLE = new Set(["GET", "HEAD", "OPTIONS", "PUT", "DELETE"]);
const METHODS = new Set(["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"]);

const dispose = (resource) => resource[Symbol.dispose]();

/** How many requests have no response yet, and what sends those that wait for their turn. */
let sent = 0;
const queue = [];
/** Responses that hold their request, because nothing has read them: each reads its body into memory. */
const unread = [];
/** What waits for a time: `pollable`, `until`, and `ring` for when it has come. No call waits for them alone. */
const timers = new Set();

/** Sends what waits as far as there is room, for which the oldest responses are read. */
function sendQueued() {
  while (queue.length > 0 && sent < AT_ONCE) {
    while (unread.length > 0 && sent + unread.length >= AT_ONCE) unread[0]();
    // What was read may have been ended by its time, and what waited with it.
    queue.shift()?.();
  }
}

/** Rings a timer whose time has come; the first time. */
function ring(timer) {
  if (!timers.delete(timer)) return;
  dispose(timer.pollable);
  timer.ring();
}

/**
 * Waits for this pollable, where there is one, for an answer or for a timer; says whether it is this pollable. Answers
 * are taken before timers ring, because an answer that is there came in time.
 */
function waitFor(pollable) {
  const own = pollable === undefined ? [] : [pollable];
  const answers = [...waiting];
  const rung = [...timers];
  const ready = new Set(poll([...own, ...[...answers, ...rung].map(({ pollable }) => pollable)]));
  answers.forEach((entry, index) => {
    // An answer before it may have ended it.
    if (!ready.has(own.length + index) || !waiting.includes(entry)) return;
    waiting.splice(waiting.indexOf(entry), 1);
    dispose(entry.pollable);
    entry.ready();
  });
  rung.forEach((timer, index) => {
    if (ready.has(own.length + answers.length + index)) ring(timer);
  });
  return own.length > 0 && ready.has(0);
}

waitForOne = () => waitFor();

const named = (name, message) => Object.assign(new Error(message), { name });

/** Ends requests, when `abort` of its controller is called or when its time is over. */
class AbortSignal {
  #abort = new Set();
  aborted = false;
  reason = undefined;
  onabort = null;
  /** The time of `timeout`, in words. */
  #time;
  /** What ends it: the timer of `timeout`, or those of the signals of `any`. */
  #timers = [];

  static abort(reason) {
    const signal = new AbortSignal();
    AbortSignal.end(signal, reason);
    return signal;
  }

  static timeout(milliseconds) {
    if (!isBuilt) throw new TypeError("AbortSignal.timeout works within a call; the top level of a module runs during its build");
    const time = Number(milliseconds);
    if (!(time >= 0 && time <= Number.MAX_SAFE_INTEGER / 1e6)) throw new TypeError("AbortSignal.timeout takes milliseconds");
    const signal = new AbortSignal();
    signal.#time = `${Math.floor(time)} ms`;
    const wait = Math.floor(time) * 1e6;
    const timer = {
      pollable: subscribeDuration(wait),
      until: Number(now()) + wait,
      ring: () => AbortSignal.end(signal, named("TimeoutError", `the ${signal.#time} of this signal are over`)),
    };
    timers.add(timer);
    signal.#timers.push(timer);
    return signal;
  }

  static any(signals) {
    const signal = new AbortSignal();
    for (const one of signals) {
      signal.#timers.push(...one.#timers);
      const end = () => {
        signal.#time ??= one.#time;
        AbortSignal.end(signal, one.reason);
      };
      if (one.aborted) end();
      else one.addEventListener("abort", end);
    }
    return signal;
  }

  /** Ends what listens to a signal; the first time. */
  static end(signal, reason = named("AbortError", "the request was aborted")) {
    if (signal.aborted) return;
    signal.aborted = true;
    signal.reason = reason;
    const event = { type: "abort", target: signal };
    for (const act of [signal.onabort, ...signal.#abort]) {
      try {
        act?.call(signal, event);
      } catch (error) {
        console.error(error);
      }
    }
    signal.#abort.clear();
  }

  /** Why a request ends: the reason, or where that is a time, words and a class of the request. */
  static failure(signal, method, url) {
    if (signal.#time === undefined || signal.reason?.name !== "TimeoutError") return signal.reason;
    const error = brokeOff(method, url, `it took longer than the ${signal.#time} that the module gave it`);
    return Object.assign(error, { name: "TimeoutError" });
  }

  /** Whether it is over by now: its time may have come while nothing waited for it. */
  static isOver(signal) {
    for (const timer of signal.#timers) {
      if (timers.has(timer) && timer.pollable.ready()) ring(timer);
    }
    return signal.aborted;
  }

  /** The nanoseconds that are left, or somewhat more: a module's clock has steps. Nothing where it has no time. */
  static left(signal) {
    if (signal.#timers.length === 0) return undefined;
    const until = Math.min(...signal.#timers.map(({ until }) => until));
    return Math.max(0, until - Number(now()) + Number(resolution()));
  }

  addEventListener(type, act) {
    if (type === "abort" && typeof act === "function" && !this.aborted) this.#abort.add(act);
  }

  removeEventListener(type, act) {
    if (type === "abort") this.#abort.delete(act);
  }

  throwIfAborted() {
    if (this.aborted) throw this.reason;
  }
}

class AbortController {
  signal = new AbortSignal();

  abort(reason) {
    AbortSignal.end(this.signal, reason);
  }
}

/** A failure of a request, as `fetch` has it. Where nothing catches it, the call fails with this class and message. */
function failure(errorClass, message, Type = TypeError) {
  const error = new Type(message);
  error.class = errorClass;
  TOOL_ERRORS.set(error, { class: errorClass, message });
  return error;
}

class Headers {
  #entries = [];

  constructor(from = []) {
    if (typeof from?.[Symbol.iterator] === "function") {
      for (const [name, value] of from) this.append(name, value);
    } else {
      for (const name of Object.keys(from ?? {})) this.append(name, from[name]);
    }
  }

  append(name, value) {
    this.#entries.push([header(name), `${value}`.trim()]);
  }

  delete(name) {
    name = header(name);
    this.#entries = this.#entries.filter(([found]) => found !== name);
  }

  get(name) {
    name = header(name);
    const values = this.#entries.filter(([found]) => found === name).map(([, value]) => value);
    return values.length === 0 ? null : values.join(", ");
  }

  getSetCookie() {
    return this.#entries.filter(([name]) => name === "set-cookie").map(([, value]) => value);
  }

  has(name) {
    return this.get(name) !== null;
  }

  set(name, value) {
    this.delete(name);
    this.append(name, value);
  }

  forEach(act, self) {
    for (const [name, value] of this) act.call(self, value, name, this);
  }

  *entries() {
    for (const name of this.keys()) {
      if (name === "set-cookie") {
        for (const value of this.getSetCookie()) yield [name, value];
      } else {
        yield [name, this.get(name)];
      }
    }
  }

  *values() {
    for (const name of this.keys()) yield this.get(name);
  }

  keys() {
    return [...new Set(this.#entries.map(([name]) => name))].sort().values();
  }

  [Symbol.iterator]() {
    return this.entries();
  }
}

function header(name) {
  name = `${name}`;
  if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name)) {
    throw new TypeError(`${JSON.stringify(name)} is not a header's name`);
  }
  return name.toLowerCase();
}

class Response {
  #read;
  #cancel = () => {};
  #isUsed = false;

  constructor(body = null, { status = 200, statusText = "", headers } = {}) {
    this.status = status;
    this.statusText = statusText;
    this.headers = new Headers(headers);
    this.url = "";
    this.#read = () => bodyBytes(body).bytes?.slice() ?? new Uint8Array();
  }

  /** What a server answered; `read` reads its body, and `cancel` gives it up. */
  static received(status, headers, url, read, cancel) {
    const response = new Response(null, { status, headers });
    response.url = url;
    response.#read = read;
    response.#cancel = cancel ?? response.#cancel;
    return response;
  }

  /** No stream: all that it can do is to give up the rest. */
  get body() {
    return {
      cancel: () =>
        Promise.try(() => {
          if (this.#isUsed) throw new TypeError("the body was read already");
          this.#isUsed = true;
          this.#cancel();
        }),
    };
  }

  get ok() {
    return this.status >= 200 && this.status < 300;
  }

  get bodyUsed() {
    return this.#isUsed;
  }

  bytes() {
    return Promise.try(() => {
      if (this.#isUsed) throw new TypeError("the body was read already");
      this.#isUsed = true;
      return this.#read();
    });
  }

  arrayBuffer() {
    return this.bytes().then((bytes) => bytes.buffer);
  }

  text() {
    return this.bytes().then(textOf);
  }

  json() {
    return this.text().then((text) => {
      try {
        return JSON.parse(text);
      } catch (error) {
        throw failure("fatal", `what ${this.url || "it"} answered is not JSON: ${error.message}`, SyntaxError);
      }
    });
  }
}

/** UTF-8 as text; what is not UTF-8 becomes U+FFFD. */
function textOf(bytes) {
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) bytes = bytes.subarray(3);
  // In parts, because what decodes one takes many times its size.
  const parts = [];
  for (let at = 0, end; at < bytes.length; at = end) {
    end = partEnd(bytes, at + 8192);
    const part = bytes.subarray(at, end);
    const latin = String.fromCharCode.apply(null, part);
    if (!/[^\0-\x7f]/.test(latin)) {
      parts.push(latin);
      continue;
    }
    try {
      parts.push(decodeURIComponent(escape(latin)));
    } catch {
      parts.push(lossy(part));
    }
  }
  return parts.join("");
}

/** The end of a part at `end` or before it, where no character is cut. */
function partEnd(bytes, end) {
  if (end >= bytes.length) return bytes.length;
  for (let back = 1; back <= 3; back++) {
    const byte = bytes[end - back];
    if (byte < 0x80) break;
    if (byte >= 0xc0) {
      const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
      return back < length ? end - back : end;
    }
  }
  return end;
}

/** The decoder of the Encoding Standard, for bytes that are not all UTF-8. */
function lossy(bytes) {
  const characters = [];
  let [needed, seen, code, lower, upper] = [0, 0, 0, 0x80, 0xbf];
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at];
    if (needed > 0) {
      if (byte < lower || byte > upper) {
        characters.push("\ufffd");
        [needed, seen, lower, upper] = [0, 0, 0x80, 0xbf];
        at -= 1;
        continue;
      }
      [lower, upper] = [0x80, 0xbf];
      code = (code << 6) | (byte & 63);
      seen += 1;
      if (seen === needed) {
        characters.push(String.fromCodePoint(code));
        [needed, seen] = [0, 0];
      }
    } else if (byte < 0x80) {
      characters.push(String.fromCharCode(byte));
    } else if (byte >= 0xc2 && byte <= 0xdf) {
      [needed, code] = [1, byte & 31];
    } else if (byte >= 0xe0 && byte <= 0xef) {
      [needed, code] = [2, byte & 15];
      if (byte === 0xe0) lower = 0xa0;
      if (byte === 0xed) upper = 0x9f;
    } else if (byte >= 0xf0 && byte <= 0xf4) {
      [needed, code] = [3, byte & 7];
      if (byte === 0xf0) lower = 0x90;
      if (byte === 0xf4) upper = 0x8f;
    } else {
      characters.push("\ufffd");
    }
  }
  if (needed > 0) characters.push("\ufffd");
  return characters.join("");
}

/** A body as bytes, and the type that goes with it. */
function bodyBytes(body) {
  if (body === null || body === undefined) return {};
  if (typeof body === "string") return { bytes: utf8(body), type: "text/plain;charset=UTF-8" };
  if (body instanceof ArrayBuffer) return { bytes: new Uint8Array(body) };
  if (ArrayBuffer.isView(body)) return { bytes: new Uint8Array(body.buffer, body.byteOffset, body.byteLength) };
  throw new TypeError("a body is a string, an ArrayBuffer or a view of one; write JSON with JSON.stringify");
}

/** The parts of a URL as `wasi:http` takes them. */
function target(url) {
  const [, scheme, authority, path] = /^(https?):\/\/([^/?#]+)([^#]*)/i.exec(url) ?? [];
  if (authority === undefined || authority.includes("@")) {
    throw failure("correctable", `${JSON.stringify(url)} is no absolute URL of http or https`);
  }
  const written = path.toWellFormed().replace(/[^!-~]|["<>\\^`{|}]/gu, encodeURIComponent);
  return { scheme: scheme.toUpperCase(), authority, path: written.startsWith("/") ? written : `/${written}` };
}

/** What to say of an error of `wasi:http`, and whose move it is (docs/modules.md, "HTTP"). */
function failed(method, url, code) {
  const what = `${method} ${url}`;
  const name = `${code?.tag}`;
  const origin = /^[^/]*\/\/[^/?#]*/.exec(url)[0];
  switch (name) {
    case "HTTP-request-denied":
      return failure(
        "fatal",
        `${what} was not granted to this module, or redirects to what was not; an operator can: toolhold modules ` +
          `grant MODULE --with-http ${origin} (toolhold modules call names what was refused)`,
      );
    case "destination-IP-prohibited":
      return failure(
        "fatal",
        `${url} is on a private network, or redirects to one, which the grant does not include; an operator can: ` +
          `toolhold modules grant MODULE --with-http ${origin} --private`,
      );
    case "DNS-error":
    case "destination-not-found":
    case "HTTP-request-URI-invalid":
    case "HTTP-request-URI-too-long":
    case "HTTP-request-method-invalid":
      return failure("correctable", `${url} cannot be reached: ${name}`);
    case "loop-detected":
      return failure(
        "correctable",
        `${url} redirects more often than the grant allows; ask for the address that it leads to`,
      );
    case "connection-limit-reached":
      return failure(
        "fatal",
        `${what} was not sent: this call reached its limit of requests (\`http_requests\`) or of requests at once ` +
          "(`http_concurrent`)",
      );
    case "HTTP-request-body-size":
      return failure(
        "fatal",
        `${what} was not sent: its body is more than this call may send (\`http_request_bytes\`), or has another ` +
          "length than its header says",
      );
    case "HTTP-response-body-size":
      return failure("fatal", `what ${url} answered is more than this call may receive (\`http_response_bytes\`)`);
    case "DNS-timeout":
    case "destination-unavailable":
    case "connection-refused":
    case "connection-timeout":
      return failure("retryable", `${url} did not answer: ${name}`);
    case "connection-terminated":
    case "connection-read-timeout":
    case "connection-write-timeout":
    case "HTTP-response-incomplete":
    case "HTTP-response-timeout":
      return brokeOff(method, url, name);
    default:
      return failure("fatal", `${what} failed: ${typeof code?.val === "string" ? code.val : name}`);
  }
}

/** The server had the request, or a part of it. */
function brokeOff(method, url, why) {
  if (REPEATABLE.has(method)) return failure("retryable", `${method} ${url} broke off: ${why}`);
  return failure(
    "fatal",
    `${method} ${url} broke off: ${why}. The server may have carried it out: look before it is sent again`,
  );
}

function fetch(input, init) {
  if (!isBuilt) throw new TypeError("fetch works within a call; the top level of a module runs during its build");
  return new Promise((resolve, reject) => {
    init ??= {};
    if ((init.redirect ?? "follow") !== "follow") {
      throw new TypeError("fetch follows redirects as far as the module's grant says; `redirect` cannot change it");
    }
    const signal = init.signal ?? undefined;
    if (signal !== undefined && !(signal instanceof AbortSignal)) throw new TypeError("`signal` is an AbortSignal");
    const url = `${input}`;
    const { scheme, authority, path } = target(url);
    const method = `${init.method ?? "GET"}`.toUpperCase();
    const headers = new Headers(init.headers);
    const { bytes, type } = bodyBytes(init.body);
    if (bytes !== undefined) {
      if (method === "GET" || method === "HEAD") throw new TypeError(`${method} has no body`);
      if (type !== undefined && !headers.has("content-type")) headers.set("content-type", type);
      // Without it the body is sent in chunks, which some servers do not read.
      headers.set("content-length", bytes.length);
    }
    if (signal?.aborted) throw AbortSignal.failure(signal, method, url);
    let entry;
    const abort = () => {
      if (queue.includes(start)) {
        queue.splice(queue.indexOf(start), 1);
      } else if (entry !== undefined) {
        waiting.splice(waiting.indexOf(entry), 1);
        dispose(entry.pollable);
        dispose(entry.pending);
        entry = undefined;
        sent -= 1;
      }
      reject(AbortSignal.failure(signal, method, url));
      // Not before the signal's other listeners have run: each ends a request that would be sent.
      enqueue(sendQueued);
    };
    const ready = (pending) => {
      sent -= 1;
      signal?.removeEventListener("abort", abort);
      const answer = pending.get();
      dispose(pending);
      if (answer?.tag !== "ok") reject(failure("fatal", `${method} ${url}: the host gave no response`));
      else if (answer.val.tag === "ok") resolve(received(method, url, answer.val.val, signal));
      // The host ends what waits for it, a little later than its time.
      else if (signal && AbortSignal.isOver(signal)) reject(AbortSignal.failure(signal, method, url));
      else reject(failed(method, url, answer.val.val));
      enqueue(sendQueued);
    };
    const start = () => {
      try {
        if (signal && AbortSignal.isOver(signal)) throw AbortSignal.failure(signal, method, url);
        const time = signal && AbortSignal.left(signal);
        const pending = send(method, url, { scheme, authority, path, headers, bytes, time });
        entry = { pollable: pending.subscribe(), pending, ready: () => ready(pending) };
        waiting.push(entry);
        sent += 1;
      } catch (error) {
        signal?.removeEventListener("abort", abort);
        reject(error);
      }
    };
    queue.push(start);
    signal?.addEventListener("abort", abort);
    sendQueued();
  });
}

/** The host counts a request as open until the last of these resources is gone, also where one of them fails. */
function send(method, url, { scheme, authority, path, headers, bytes, time }) {
  let fields;
  try {
    fields = Fields.fromList([...headers].map(([name, value]) => [name, utf8(value)]));
  } catch (error) {
    throw failure("correctable", `a header of ${method} ${url} cannot be sent: ${error.payload?.tag}`);
  }
  const request = new OutgoingRequest(fields);
  let body;
  try {
    request.setMethod(METHODS.has(method) ? { tag: method.toLowerCase() } : { tag: "other", val: method });
    request.setScheme({ tag: scheme });
    request.setAuthority(authority);
    request.setPathWithQuery(path);
    if (bytes !== undefined) body = request.body();
  } catch {
    dispose(request);
    throw failure("correctable", `${method} ${url} is no request that can be sent`);
  }
  let pending;
  try {
    pending = handle(request, optionsOf(time));
  } catch (error) {
    if (body !== undefined) dispose(body);
    throw failed(method, url, error.payload);
  }
  if (body !== undefined) write(body, bytes);
  return pending;
}

/** The time until the head of the response: while it sends a body, a module waits for nothing but the host. */
function optionsOf(time) {
  if (time === undefined) return null;
  const options = new RequestOptions();
  options.setFirstByteTimeout(Math.min(time + HOST_SLACK, Number.MAX_SAFE_INTEGER));
  return options;
}

/** Why a body was refused comes in the response's place. */
function write(body, bytes) {
  let stream;
  let isWhole = false;
  try {
    stream = body.write();
    for (let at = 0; at < bytes.length; at += WRITE) {
      stream.blockingWriteAndFlush(bytes.subarray(at, at + WRITE));
    }
    isWhole = true;
  } catch (error) {
    const ended = error.payload?.val;
    if (ended !== undefined) dispose(ended);
  }
  if (stream !== undefined) dispose(stream);
  if (!isWhole) {
    dispose(body);
    return;
  }
  try {
    OutgoingBody.finish(body, null);
  } catch {
    // As above.
  }
}

function received(method, url, incoming, signal) {
  const fields = incoming.headers();
  const headers = fields.entries().map(([name, value]) => [name, textOf(value)]);
  dispose(fields);
  const status = incoming.status();
  if (method === "HEAD" || status === 204 || status === 304) {
    dispose(incoming);
    return Response.received(status, headers, url, () => new Uint8Array());
  }
  let result;
  /** Ends the response; the first time. */
  const end = (act) => {
    if (result !== undefined) return;
    result = {};
    unread.splice(unread.indexOf(load), 1);
    signal?.removeEventListener("abort", abort);
    try {
      result = { bytes: act() };
    } catch (error) {
      result = { error };
    }
  };
  const load = () => end(() => bodyOf(method, url, incoming, signal));
  const cancel = () => end(() => dispose(incoming));
  const abort = () =>
    end(() => {
      dispose(incoming);
      throw AbortSignal.failure(signal, method, url);
    });
  unread.push(load);
  signal?.addEventListener("abort", abort);
  const read = () => {
    load();
    const { bytes, error } = result;
    result = {};
    if (error !== undefined) throw error;
    return bytes;
  };
  return Response.received(status, headers, url, read, cancel);
}

/** The whole body. The host counts the request as open until the last of these resources is gone. */
function bodyOf(method, url, incoming, signal) {
  const chunks = [];
  let size = 0;
  const open = [incoming];
  try {
    const body = incoming.consume();
    open.unshift(body);
    const stream = body.stream();
    open.unshift(stream);
    let readable;
    for (;;) {
      // Nothing else runs meanwhile, and other requests have their times too.
      if (readable === undefined && (signal !== undefined || timers.size > 0)) {
        readable = stream.subscribe();
        open.unshift(readable);
      }
      if (readable !== undefined) {
        const isReady = waitFor(readable);
        if (signal?.aborted) throw AbortSignal.failure(signal, method, url);
        if (!isReady) continue;
      }
      let chunk;
      try {
        chunk = readable !== undefined ? stream.read(READ) : stream.blockingRead(READ);
      } catch (error) {
        if (error.payload?.tag === "closed") break;
        throw bodyFailed(method, url, error);
      }
      size += chunk.length;
      if (size > MOST) {
        throw failure("fatal", `the body of ${url} has more than the ${MOST >> 20} MiB that a module reads`);
      }
      chunks.push(chunk);
    }
  } finally {
    // Children before their parents.
    open.forEach(dispose);
  }
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const [index, chunk] of chunks.entries()) {
    bytes.set(chunk, at);
    at += chunk.length;
    chunks[index] = undefined;
  }
  return bytes;
}

/** What ended a body before its end. */
function bodyFailed(method, url, error) {
  const ended = error.payload?.val;
  if (ended === undefined) return brokeOff(method, url, `${error}`);
  try {
    const code = httpErrorCode(ended);
    return code ? failed(method, url, code) : brokeOff(method, url, ended.toDebugString());
  } finally {
    dispose(ended);
  }
}

Object.assign(globalThis, { AbortController, AbortSignal, fetch, Headers, Response });
