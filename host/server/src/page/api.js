// The API of this server. Events are read from a fetched stream, because an EventSource cannot send a key.

import { parse, stringify } from "./exact.js";

const KEY = "toolhold.key";

let askForKey = null;
let asking = null;

/** Who is asked for a key when the server wants one: resolves when there is one. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

export function hasKey() {
  return sessionStorage.getItem(KEY) !== null;
}

export function setKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

/** An answer that is none: `status` is 0 if there was no answer at all. */
export class ApiError extends Error {
  constructor(status, message, kind) {
    super(message);
    this.status = status;
    this.kind = kind;
  }
}

export const get = (path, options) => json("GET", path, undefined, options);
export const post = (path, body, options) => json("POST", path, body, options);
export const put = (path, body) => json("PUT", path, body);
export const remove = (path) => json("DELETE", path);

/** Sends the bytes of a file as they are. */
export const upload = (path, file) => json("POST", path, file);

async function json(method, path, body, options) {
  const response = await request(method, path, body, options);
  const text = await response.text();
  return text ? parse(text) : null;
}

async function request(method, path, body, { signal, headers, quiet } = {}) {
  for (;;) {
    const used = sessionStorage.getItem(KEY);
    const own = { accept: "application/json", ...headers };
    if (used) own.authorization = `Bearer ${used}`;
    const isFile = body instanceof Blob;
    if (body !== undefined) own["content-type"] = isFile ? body.type || "application/octet-stream" : "application/json";
    let response;
    try {
      response = await fetch(path, { method, headers: own, signal, body: body === undefined || isFile ? body : stringify(body) });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ApiError(0, "The server cannot be reached.");
    }
    if (response.ok) return response;
    const error = await fault(response);
    if (response.status !== 401 || !askForKey || quiet) throw error;
    // Somebody else may have entered another one meanwhile.
    if (sessionStorage.getItem(KEY) === used) {
      asking ??= askForKey(error, used !== null).finally(() => (asking = null));
      if (!(await asking)) throw error;
    }
  }
}

async function fault(response) {
  try {
    const { error } = await response.json();
    return new ApiError(response.status, error.message, error.type);
  } catch {
    return new ApiError(response.status, `The server answered ${response.status}.`);
  }
}

/** Begins a run: `{run, events}`, where `events` are read by `watch` from the beginning. */
export async function begin(path, body) {
  const abort = new AbortController();
  const response = await request("POST", path, { ...body, stream: true },
    { signal: abort.signal, headers: { accept: "text/event-stream", "idempotency-key": crypto.randomUUID?.() ?? String(Math.random()) } });
  // The run goes on without this connection; the view of the run watches it by its id.
  for await (const event of events(response.body)) {
    abort.abort();
    if (event.event === "error") throw new ApiError(500, parse(event.data).error.message);
    return parse(event.data).run;
  }
  throw new ApiError(0, "The run ended before it began.");
}

/** All events of a run, from the first on, until it is over. Connects again where it was. */
export async function* watch(run, signal, onState = () => {}) {
  let last = null;
  let pause = 250;
  for (;;) {
    try {
      const headers = { accept: "text/event-stream", ...(last === null ? {} : { "last-event-id": String(last) }) };
      const response = await request("GET", `/v1/runs/${run}/events`, undefined, { signal, headers });
      if (response.status === 204) return;
      onState("live");
      for await (const event of events(response.body)) {
        if (event.event === "error") throw new ApiError(500, parse(event.data).error.message);
        const read = parse(event.data);
        // A piece of a sub-agent's reply has no id: the one before it still holds.
        last = event.id ?? last;
        pause = 250;
        yield read;
        if (read.event === "done") return;
      }
    } catch (error) {
      if (signal?.aborted) return;
      const isFinal = error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429;
      if (isFinal) throw error;
    }
    onState("lost");
    await new Promise((resolve) => setTimeout(resolve, pause));
    if (signal?.aborted) return;
    pause = Math.min(pause * 2, 10_000);
  }
}

/** Server-sent events of a body. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      let end;
      while ((end = text.indexOf("\n\n")) >= 0) {
        const event = { event: "message", data: "" };
        for (const line of text.slice(0, end).split("\n")) {
          const colon = line.indexOf(":");
          if (colon <= 0) continue;
          const field = line.slice(0, colon);
          const content = line.slice(colon + 1).replace(/^ /, "");
          if (field === "data") event.data += event.data ? `\n${content}` : content;
          else if (field === "event") event.event = content;
          else if (field === "id") event.id = content;
        }
        text = text.slice(end + 2);
        if (event.data) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
