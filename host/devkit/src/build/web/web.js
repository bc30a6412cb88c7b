// What every module in JavaScript has besides the language: `console`, and promises that settle within a call.
//
// The engine never runs its own queue of promises during a call, so this is another `Promise`, whose queue
// `settled` runs. The build compiles `async` functions to generators over it.

import { getStderr } from "wasi:cli/stderr@9.2.11";

const EnginePromise = globalThis.Promise;

const jobs = [];
/** What the host is asked about when no job is left: `pollable`, and `ready` to go on with. */
const waiting = [];
let isCalled = false;
let isScheduled = false;
/** Whether the top level has run, which it does during the build. */
let isBuilt = false;
/** Rejected promises that nothing handles yet, with their reasons; no more than a person reads. */
const unhandled = new Map();
const MOST_UNHANDLED = 20;

function enqueue(job) {
  jobs.push(job);
  // During the build the engine runs its own queue.
  if (isCalled || isScheduled) return;
  isScheduled = true;
  EnginePromise.resolve().then(() => {
    isScheduled = false;
    runJobs();
  });
}

function runJobs() {
  while (jobs.length > 0) {
    // Taken out before they run: each may add others without end.
    for (const job of jobs.splice(0)) {
      try {
        job();
      } catch (error) {
        console.error(error);
      }
    }
  }
}

globalThis.queueMicrotask = (job) => {
  if (typeof job !== "function") throw new TypeError("queueMicrotask takes a function");
  enqueue(job);
};

function capability(type) {
  if (type === Promise) return Promise.withResolvers();
  const made = {};
  made.promise = new type((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}

class Promise {
  #state = "pending";
  #value;
  #reactions = [];

  constructor(executor) {
    if (typeof executor !== "function") throw new TypeError("Promise takes a function");
    let isDecided = false;
    const once = (act) => (value) => {
      if (isDecided) return;
      isDecided = true;
      act(value);
    };
    const settle = (state, value) => {
      this.#state = state;
      this.#value = value;
      if (state === "rejected" && this.#reactions.length === 0 && unhandled.size < MOST_UNHANDLED) {
        unhandled.set(this, value);
      }
      for (const reaction of this.#reactions) enqueue(() => reaction(state, value));
      this.#reactions = [];
    };
    const reject = (reason) => settle("rejected", reason);
    const resolve = (value) => {
      if (value === this) return reject(new TypeError("a promise cannot resolve to itself"));
      if (value === null || (typeof value !== "object" && typeof value !== "function")) {
        return settle("fulfilled", value);
      }
      let then;
      try {
        then = value.then;
      } catch (error) {
        return reject(error);
      }
      if (typeof then !== "function") return settle("fulfilled", value);
      let isCalledBack = false;
      const back = (act) => (result) => {
        if (isCalledBack) return;
        isCalledBack = true;
        act(result);
      };
      enqueue(() => {
        try {
          then.call(value, back(resolve), back(reject));
        } catch (error) {
          back(reject)(error);
        }
      });
    };
    try {
      executor(once(resolve), once(reject));
    } catch (error) {
      once(reject)(error);
    }
  }

  then(onFulfilled, onRejected) {
    const { promise, resolve, reject } = capability(this.constructor?.[Symbol.species] ?? Promise);
    const reaction = (state, value) => {
      const handler = state === "fulfilled" ? onFulfilled : onRejected;
      if (typeof handler !== "function") return state === "fulfilled" ? resolve(value) : reject(value);
      try {
        resolve(handler(value));
      } catch (error) {
        reject(error);
      }
    };
    unhandled.delete(this);
    if (this.#state === "pending") this.#reactions.push(reaction);
    else enqueue(() => reaction(this.#state, this.#value));
    return promise;
  }

  catch(onRejected) {
    return this.then(undefined, onRejected);
  }

  finally(act) {
    if (typeof act !== "function") return this.then(act, act);
    const type = this.constructor ?? Promise;
    return this.then(
      (value) => type.resolve(act()).then(() => value),
      (reason) =>
        type.resolve(act()).then(() => {
          throw reason;
        }),
    );
  }

  get [Symbol.toStringTag]() {
    return "Promise";
  }

  static get [Symbol.species]() {
    return this;
  }

  static withResolvers() {
    const made = {};
    made.promise = new this((resolve, reject) => Object.assign(made, { resolve, reject }));
    return made;
  }

  static resolve(value) {
    if (value instanceof Promise && value.constructor === this) return value;
    return new this((resolve) => resolve(value));
  }

  static reject(reason) {
    return new this((_, reject) => reject(reason));
  }

  static try(act, ...values) {
    return new this((resolve) => resolve(act(...values)));
  }

  static all(promises) {
    return Promise.#gather.call(this, promises, (place) => [place]);
  }

  static allSettled(promises) {
    return Promise.#gather.call(this, promises, (place) => [
      (value) => place({ status: "fulfilled", value }),
      (reason) => place({ status: "rejected", reason }),
    ]);
  }

  static any(promises) {
    return Promise.#gather.call(this, promises, (place, resolve) => [resolve, place], (reasons, _, reject) => {
      reject(new AggregateError(reasons, "all promises were rejected"));
    });
  }

  static race(promises) {
    return new this((resolve, reject) => {
      for (const promise of promises) this.resolve(promise).then(resolve, reject);
    });
  }

  /** `handlers` says what fills a promise's place in the list, and `finish` what is done with the full list. */
  static #gather(promises, handlers, finish = (places, resolve) => resolve(places)) {
    return new this((resolve, reject) => {
      const places = [];
      let count = 0;
      let open = 1;
      const close = () => {
        open -= 1;
        if (open === 0) finish(places, resolve, reject);
      };
      for (const promise of promises) {
        const index = count;
        count += 1;
        open += 1;
        const place = (value) => {
          places[index] = value;
          close();
        };
        const [onValue, onReason] = handlers(place, resolve);
        this.resolve(promise).then(onValue, onReason ?? reject);
      }
      close();
    });
  }
}
globalThis.Promise = Promise;

/**
 * The result of a call: if it is a promise, what it settles to. Requests that were not awaited are waited for too, or
 * they would end with the call, perhaps before they were sent.
 */
function settled(result) {
  try {
    return awaited(result);
  } finally {
    while (jobs.length > 0 || waiting.length > 0) {
      runJobs();
      if (waiting.length > 0) waitForOne();
    }
    for (const reason of unhandled.values()) console.error("a rejected promise was not awaited:", reason);
    unhandled.clear();
  }
}

function awaited(result) {
  if (typeof result?.then !== "function") return result;
  let state;
  let value;
  Promise.resolve(result).then(
    (found) => ([state, value] = ["fulfilled", found]),
    (reason) => ([state, value] = ["rejected", reason]),
  );
  for (;;) {
    runJobs();
    if (state === "fulfilled") return value;
    if (state === "rejected") throw value;
    if (waiting.length === 0) {
      const message =
        "the call waits for a promise that nothing settles (and a module with an `await` outside of functions " +
        "cannot use `await` within them)";
      const error = new Error(message);
      error.class = "fatal";
      TOOL_ERRORS.set(error, { class: "fatal", message });
      throw error;
    }
    waitForOne();
  }
}

let waitForOne = () => {};

/** An export of the module, in which a function may return a promise. */
function exported(value) {
  if (typeof value === "function") {
    // A class stands for a resource of the world.
    if (/^class\b/.test(Function.prototype.toString.call(value))) return value;
    return (...values) => {
      isCalled = true;
      try {
        return settled(value(...values));
      } catch (error) {
        throw asToolError(error);
      }
    };
  }
  if (value === null || typeof value !== "object") return value;
  // Over an empty object, because a frozen one must answer with its own functions.
  return new Proxy({}, { get: (_, name) => exported(value[name]) });
}

/** Errors for which the contract of tools has a form: what is thrown where nothing catches them. */
const TOOL_ERRORS = new WeakMap();
let asToolError = (error) => error;

/** The bytes of a text. */
function utf8(text) {
  const bytes = new Uint8Array(text.length * 3);
  let at = 0;
  for (const character of text) {
    let code = character.codePointAt(0);
    if (code >= 0xd800 && code < 0xe000) code = 0xfffd;
    if (code < 0x80) {
      bytes[at++] = code;
    } else if (code < 0x800) {
      bytes[at++] = 0xc0 | (code >> 6);
      bytes[at++] = 0x80 | (code & 63);
    } else if (code < 0x10000) {
      bytes[at++] = 0xe0 | (code >> 12);
      bytes[at++] = 0x80 | ((code >> 6) & 63);
      bytes[at++] = 0x80 | (code & 63);
    } else {
      bytes[at++] = 0xf0 | (code >> 18);
      bytes[at++] = 0x80 | ((code >> 12) & 63);
      bytes[at++] = 0x80 | ((code >> 6) & 63);
      bytes[at++] = 0x80 | (code & 63);
    }
  }
  return bytes.slice(0, at);
}

/** As a person reads it: texts as they are, errors with their stack, the rest as JSON. */
function shown(value) {
  if (typeof value === "string") return value;
  if (value instanceof Error) return `${value}\n${value.stack ?? ""}`.trimEnd();
  if (value !== null && typeof value === "object") {
    try {
      return JSON.stringify(value) ?? String(value);
    } catch {
      // A circle, or a BigInt.
    }
  }
  return String(value);
}

/** Most bytes that the host takes at a time. */
const WRITE = 4096;
let stderr;

function print(...values) {
  // The top level runs while the component is built, when there is no host.
  if (!isCalled) return;
  const bytes = utf8(`${values.map(shown).join(" ")}\n`);
  try {
    stderr ??= getStderr();
    for (let at = 0; at < bytes.length; at += WRITE) {
      stderr.blockingWriteAndFlush(bytes.subarray(at, at + WRITE));
    }
  } catch {
    // It is closed: a module goes on without it.
  }
}

globalThis.console = {
  log: print,
  info: print,
  debug: print,
  warn: print,
  error: print,
};
