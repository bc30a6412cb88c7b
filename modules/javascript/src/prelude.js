// What the code finds beside the language. One function, so that nothing here is a global by accident;
// `host` is what Rust lends: print, files. Returns what Rust asks for at the end of a run.
(function (host) {
  "use strict";
  const FILE = "<code>";
  const MAX_DEPTH = 50;
  const MAX_SHOWN = 100;
  const { stringify } = JSON;

  // --- values -------------------------------------------------------------------------------------

  // What JSON has no type for, as text; undefined if JSON can hold it.
  function asText(value) {
    switch (typeof value) {
      case "bigint": return String(value);
      case "number": return Number.isFinite(value) ? undefined : String(value);
      case "symbol": return String(value);
      case "function": return `[${isClass(value) ? "class" : "Function"}: ${value.name || "anonymous"}]`;
      case "object": break;
      default: return undefined;
    }
    if (value === null) return undefined;
    if (value instanceof Date) return isNaN(value) ? "Invalid Date" : value.toISOString();
    if (value instanceof RegExp) return String(value);
    if (value instanceof Error) return `${value.name}: ${value.message}`;
    if (value instanceof Promise) return "[Promise]";
    if (value instanceof WeakMap || value instanceof WeakSet || value instanceof WeakRef) return `[${value.constructor.name}]`;
    return undefined;
  }

  function isClass(value) {
    return /^class\b/.test(Function.prototype.toString.call(value));
  }

  // Collections as the lists and pairs they are.
  function opened(value) {
    if (value instanceof Map) {
      const keys = [...value.keys()];
      return keys.every((key) => typeof key === "string") ? Object.fromEntries(value) : [...value];
    }
    if (value instanceof Set) return [...value];
    if (value instanceof ArrayBuffer) return [...new Uint8Array(value)];
    if (ArrayBuffer.isView(value)) return value instanceof DataView ? opened(value.buffer) : [...value];
    if (value instanceof Number || value instanceof String || value instanceof Boolean) return value.valueOf();
    if (typeof value.toJSON === "function") return value.toJSON();
    return value;
  }

  // `value` as JSON can hold it. `above` are the objects that it is inside of.
  function plain(value, depth = MAX_DEPTH, above = []) {
    const text = asText(value);
    if (text !== undefined) {
      return typeof value === "bigint" && Number.isSafeInteger(Number(value)) ? Number(value) : text;
    }
    if (typeof value !== "object" || value === null) return typeof value === "string" ? value.toWellFormed() : (value ?? null);
    if (above.includes(value)) return "[Circular]";
    if (depth === 0) return Array.isArray(value) ? "[Array]" : "[Object]";
    const inner = [...above, value];
    const open = opened(value);
    if (open !== value) return plain(open, depth - 1, inner);
    if (Array.isArray(value)) return Array.from(value, (item) => plain(item, depth - 1, inner));
    const object = {};
    for (const key of Object.keys(value)) {
      if (value[key] !== undefined) object[key] = plain(value[key], depth - 1, inner);
    }
    return object;
  }

  // A value as a person prints it: one line, collections cut.
  function inspect(value, depth = 5, above = []) {
    if (typeof value === "string") return stringify(value);
    const text = asText(value);
    if (text !== undefined) return typeof value === "bigint" ? `${text}n` : text;
    if (typeof value !== "object" || value === null) return String(value);
    if (above.includes(value)) return "[Circular]";
    const list = Array.isArray(value) || ArrayBuffer.isView(value) || value instanceof Set;
    if (depth === 0) return list ? "[Array]" : "[Object]";
    const show = (item) => inspect(item, depth - 1, [...above, value]);
    const name = value.constructor?.name ?? "";
    const label = name === "Object" || name === "Array" ? "" : `${name} `;
    if (list) return `${label}[${some(value, show)}]`;
    if (value instanceof Map) return `${label}{${some(value, ([key, item]) => `${show(key)} => ${show(item)}`)}}`;
    const keys = Object.keys(value);
    return keys.length ? `${label}{ ${some(keys, (key) => `${key}: ${show(value[key])}`)} }` : `${label}{}`;
  }

  function some(items, show) {
    const all = [...items];
    const shown = all.slice(0, MAX_SHOWN).map(show);
    if (all.length > MAX_SHOWN) shown.push(`… ${all.length - MAX_SHOWN} more`);
    return shown.join(", ");
  }

  // --- console ------------------------------------------------------------------------------------

  function format(values) {
    if (typeof values[0] !== "string" || values.length === 1) return values.map(word).join(" ");
    let next = 1;
    const first = values[0].replace(/%[sdifjoO%]/g, (spec) => {
      if (spec === "%%") return "%";
      if (next >= values.length) return spec;
      const value = values[next++];
      if (spec === "%s") return word(value);
      if (spec === "%d" || spec === "%f") return String(Number(value));
      if (spec === "%i") return String(parseInt(value));
      return inspect(value);
    });
    return [first, ...values.slice(next).map(word)].join(" ");
  }

  function word(value) {
    if (value instanceof Error) return explain(value);
    return typeof value === "string" ? value : inspect(value);
  }

  const print = (...values) => host.print(format(values));
  globalThis.console = {
    log: print, info: print, debug: print, warn: print, error: print, trace: print, dir: (value) => print(value),
    table: (rows) => (typeof rows === "object" && rows !== null ? Object.values(rows).forEach((row) => print(row)) : print(rows)),
    assert: (truth, ...values) => truth || print("Assertion failed:", ...values),
    group: print, groupEnd() {}, time() {}, timeEnd() {}, count() {},
  };
  globalThis.print = print;

  // --- timers: in the order of their time, without waiting ------------------------------------------

  let timers = [];
  let clock = 0;
  let lastTimer = 0;

  function schedule(callback, delay, repeat, args) {
    if (typeof callback !== "function") throw new TypeError("a timer needs a function");
    const wait = Math.max(0, Number(delay) || 0);
    timers.push({ id: ++lastTimer, at: clock + wait, every: repeat ? Math.max(1, wait) : 0, callback, args });
    return lastTimer;
  }

  const cancel = (id) => { timers = timers.filter((timer) => timer.id !== id); };
  globalThis.setTimeout = (callback, delay, ...args) => schedule(callback, delay, false, args);
  globalThis.setInterval = (callback, delay, ...args) => schedule(callback, delay, true, args);
  globalThis.setImmediate = (callback, ...args) => schedule(callback, 0, false, args);
  globalThis.clearTimeout = globalThis.clearInterval = globalThis.clearImmediate = cancel;

  // Fires the next timer; false if there is none.
  function tick() {
    if (timers.length === 0) return false;
    const next = timers.reduce((a, b) => (b.at < a.at ? b : a));
    clock = next.at;
    if (next.every) next.at += next.every;
    else cancel(next.id);
    next.callback(...next.args);
    return true;
  }

  // --- texts and files ------------------------------------------------------------------------------

  globalThis.structuredClone ??= (value) => clone(value, new Map());
  function clone(value, seen) {
    if (typeof value === "function" || typeof value === "symbol") throw new TypeError(`${asText(value)} could not be cloned`);
    if (typeof value !== "object" || value === null) return value;
    if (seen.has(value)) return seen.get(value);
    if (value instanceof Date) return new Date(value);
    if (value instanceof RegExp) return new RegExp(value);
    if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return value.slice();
    const copy = value instanceof Map ? new Map() : value instanceof Set ? new Set() : Array.isArray(value) ? [] : {};
    seen.set(value, copy);
    if (value instanceof Map) for (const [key, item] of value) copy.set(clone(key, seen), clone(item, seen));
    else if (value instanceof Set) for (const item of value) copy.add(clone(item, seen));
    else for (const key of Object.keys(value)) copy[key] = clone(value[key], seen);
    return copy;
  }

  globalThis.TextEncoder = class TextEncoder {
    encode(text = "") { return host.encode(String(text)); }
  };
  globalThis.TextDecoder = class TextDecoder {
    decode(bytes = new Uint8Array()) { return host.decode([...asBytes(bytes)]); }
  };

  function asBytes(data) {
    if (data instanceof Uint8Array) return data;
    if (data instanceof ArrayBuffer) return new Uint8Array(data);
    if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    throw new TypeError(`a file holds a string or bytes, not ${inspect(data, 1)}; JSON.stringify makes a string`);
  }

  const readBytes = (path) => host.read(String(path));
  const readFile = (path) => host.readText(String(path));
  const write = (path, data, append) => (typeof data === "string"
    ? host.writeText(String(path), data, append)
    : host.writeBytes(String(path), [...asBytes(data)], append));
  const writeFile = (path, data) => write(path, data, false);
  const appendFile = (path, data) => write(path, data, true);
  const removeFile = (path) => host.remove(String(path));
  const listFiles = () => host.list();
  Object.assign(globalThis, { readFile, readBytes, writeFile, appendFile, removeFile, listFiles });

  // Much code that models write begins with `require("fs")`.
  const fs = {
    readFileSync: (path, options) => ((options?.encoding ?? options) ? readFile(path) : readBytes(path)),
    writeFileSync: writeFile,
    appendFileSync: appendFile,
    unlinkSync: removeFile,
    existsSync: (path) => host.exists(String(path)),
    readdirSync: listFiles,
    mkdirSync() {},
  };
  fs.promises = Object.fromEntries(
    ["readFile", "writeFile", "appendFile", "unlink", "readdir", "mkdir"]
      .map((name) => [name, async (...args) => fs[`${name}Sync`](...args)]),
  );
  globalThis.require = (name) => {
    const known = { fs, "fs/promises": fs.promises };
    const found = known[String(name).replace(/^node:/, "")];
    if (found) return found;
    throw new Error(`cannot require ${inspect(name)}: only "fs" is here, there are no packages; write what you need in the code`);
  };

  // --- errors ---------------------------------------------------------------------------------------

  // An error with the places in the code that it came through. The other frames are ours.
  function explain(error, depth = 3) {
    if (!(error instanceof Error)) return `Uncaught ${inspect(error)}`;
    const frames = String(error.stack ?? "").split("\n").filter((line) => line.includes(FILE)).slice(0, 12);
    let text = [`${error.name}: ${error.message}`, ...frames].join("\n");
    if (error instanceof AggregateError && depth) {
      text += error.errors.slice(0, 5).map((inner) => `\n[errors] ${explain(inner, depth - 1)}`).join("");
    }
    if (error.cause !== undefined && depth) text += `\n[cause] ${explain(error.cause, depth - 1)}`;
    return text;
  }

  return {
    tick,
    explain: (error) => { try { return explain(error); } catch { return "an error that cannot be shown"; } },
    plain: (value) => stringify(plain(value)),
  };
})
