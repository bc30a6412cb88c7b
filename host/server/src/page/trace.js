// A run as its events tell it: steps, calls, sub-agents. Nothing here knows of the screen.

/** A run, or a sub-agent of one. */
export class Trace {
  constructor() {
    this.begun = null;
    this.done = null;
    this.beganAt = null;
    this.lastAt = null;
    /** By number, in their order. */
    this.steps = new Map();
    /** By id, in the order in which they were asked for. */
    this.calls = new Map();
    this.tokens = 0;
    this.total = null;
    this.lastBody = null;
    /** Whether texts were taken out of the record. */
    this.lacksTexts = false;
    /** The default output path of each tool's results. */
    this.outputPaths = new Map();
  }

  /** What a person is waited for. */
  get pending() {
    const own = [...this.calls.values()].filter((call) => call.state === "approval");
    return own.concat([...this.calls.values()].flatMap((call) => call.sub?.pending ?? []));
  }

  /** What the user said last: in a session the turns before come first. */
  get asked() {
    const texts = (this.begun?.request?.context ?? []).filter((message) =>
      message.type === "text" && message.role === "user");
    return texts.at(-1)?.text ?? this.begun?.task ?? "";
  }

  step(number) {
    let step = this.steps.get(number);
    if (!step) {
      step = { number, models: [], text: "", reasoning: "", toolCalls: [], plan: [], calls: [], notes: [], councils: [], tokens: null, completion: null, body: null, budget: null };
      this.steps.set(number, step);
    }
    return step;
  }

  call(id, step, from = {}) {
    let call = this.calls.get(id);
    if (!call) {
      call = { id, step, tool: "", arguments: undefined, state: "planned", beganAt: null, endedAt: null, waits: [], notes: [], written: [], printed: [] };
      this.calls.set(id, call);
      this.step(step).calls.push(id);
    }
    for (const [name, own] of [["tool", "tool"], ["arguments", "arguments"], ["reason", "reason"], ["instance", "instance"], ["output_path", "outputPath"]]) {
      if (from[name] !== undefined) call[own] = from[name];
    }
    call.outputPath ??= this.outputPaths.get(call.tool);
    return call;
  }

  /** Takes the next event, which happened `at` (milliseconds). */
  take(event, at) {
    const before = this.lastAt ?? at;
    this.beganAt ??= at;
    this.lastAt = at;
    HANDLERS[event.event]?.call(this, event, at, before);
    if (event.removed && !this.lacksTexts) {
      this.lacksTexts = true;
      this.note(event, "record", "texts that were deleted or forgotten after the run are no longer in its record, nor are messages of requests");
    }
  }

  endModels(at) {
    for (const step of this.steps.values()) {
      for (const model of step.models) model.endedAt ??= at;
    }
  }

  /** Nothing goes on any longer, in sub-agents neither. */
  settle(at) {
    this.endModels(at);
    for (const call of this.calls.values()) {
      call.sub?.settle(at);
      if (!["running", "approval", "waits"].includes(call.state)) continue;
      call.state = "stopped";
      if (call.beganAt !== null) call.endedAt ??= at;
      for (const wait of call.waits) wait.endedAt ??= at;
    }
  }

  note(event, kind, text, tone = "info") {
    this.step(event.step ?? this.lastStep).notes.push({ kind, text, tone });
  }

  get lastStep() {
    return [...this.steps.keys()].at(-1) ?? 0;
  }
}

const HANDLERS = {
  run(event) {
    this.begun = event;
    this.outputPaths = new Map((event.tools ?? []).filter((tool) => tool.output_path).map((tool) => [tool.name, tool.output_path]));
  },
  request(event, at) {
    const step = this.step(event.step);
    step.models.push({ beganAt: at, firstAt: null, endedAt: null, failed: null });
    step.text = step.reasoning = "";
    step.toolCalls = [];
    step.body = whole(this.lastBody, event);
    this.lastBody = step.body;
  },
  delta(event, at) {
    const step = this.step(event.step);
    const model = step.models.at(-1);
    if (model) model.firstAt ??= at;
    if (event.content !== undefined) step.text += event.content;
    else if (event.reasoning !== undefined) step.reasoning += event.reasoning;
    else if (event.tool_call) {
      const piece = event.tool_call;
      const call = (step.toolCalls[piece.index] ??= { name: "", arguments: "" });
      if (piece.name) call.name = piece.name;
      call.arguments += piece.arguments;
    }
  },
  reply(event, at) {
    const step = this.step(event.step);
    const model = step.models.at(-1);
    if (model) {
      model.endedAt = at;
      // A record has no pieces, which are shown with the reply.
      const first = event.completion.time_to_first_token;
      if (first) model.firstAt = Math.min(model.firstAt ?? at, model.beganAt + first.secs * 1000 + first.nanos / 1e6);
    }
    step.completion = event.completion;
    step.text = event.completion.content ?? step.text;
    step.reasoning = event.completion.reasoning ?? step.reasoning;
  },
  model_failed(event, at) {
    const model = this.step(event.step).models.at(-1);
    if (model) {
      model.endedAt = at;
      model.failed = event.failure.message;
    }
    this.note(event, "model", event.failure.message, "bad");
  },
  plan(event) {
    const step = this.step(event.step);
    step.plan = event.calls;
    for (const call of event.calls) if (call.id) this.call(call.id, event.step, call);
  },
  council(event) {
    this.step(event.step).councils.push(event);
  },
  meta(event) {
    this.note(event, "version", `version ${plain(event.meta.version)}`);
  },
  tool_waits(event) {
    this.call(event.call.id, event.step, event.call).state = "waits";
  },
  approval(event, at) {
    const call = this.call(event.pending.call.id, event.step, event.pending.call);
    call.state = "approval";
    call.pending = event.pending;
    // A run that another process goes on with asks again.
    if (!call.waits.length || call.waits.at(-1).endedAt !== null) call.waits.push({ beganAt: at, endedAt: null });
  },
  decided(event, at) {
    const call = this.call(event.id, event.step);
    const wait = call.waits.at(-1);
    if (wait) wait.endedAt ??= at;
    call.decision = event;
    call.state = "planned";
  },
  tool_start(event, at) {
    const call = this.call(event.id, event.step, event);
    call.filled = event.filled;
    call.state = "running";
    call.beganAt = at;
    // A resumed run makes again what its process did not end.
    call.endedAt = null;
    call.sub = null;
  },
  tool_result(event, at) {
    const call = this.call(event.id, event.step, { tool: event.tool });
    call.beganAt ??= at;
    call.endedAt = at;
    call.sub?.settle(at);
    call.output = event.output;
    call.error = event.error;
    call.state = event.error ? "failed" : "done";
    call.usage = event.usage;
    call.written = event.written ?? [];
    call.printed = event.printed ?? [];
    call.byHost = event.by_host;
    call.cached = event.cached;
  },
  sub(event, at) {
    const call = this.calls.get(event.call) ?? this.call(event.call, this.lastStep);
    call.sub ??= new Trace();
    call.sub.take(event.what, at);
  },
  tokens(event) {
    const step = this.step(event.step);
    step.tokens = event;
    this.tokens = event.total;
  },
  budget(event) {
    this.step(event.step).budget = event;
  },
  repaired(event) {
    const what = event.repairs.map((repair) => plain(repair.kind) + (repair.at ? ` at ${repair.at}` : "") + (repair.change ? ` (${repair.change.from} → ${repair.change.to})` : "")).join(", ");
    this.note(event, "repaired", `${event.tool ? `${event.tool}: ` : ""}${what}`, "warn");
  },
  unusable_reply(event) {
    const what = event.calls_made
      ? "the rest of the reply could not be used"
      : "the reply could not be used, asking again";
    this.note(event, "notice", event.reason ? `${what}: ${event.reason}` : what, "warn");
  },
  notice(event) {
    this.note(event, "notice", event.message, "warn");
  },
  request_fetched(event) {
    this.note(event, "fetch", event.error
      ? `not fetched after ${event.duration_ms} ms: ${event.error}`
      : `fetched ${event.address} (${event.bytes} bytes, ${event.duration_ms} ms, sha256:${event.digest})`,
      event.error ? "warn" : undefined);
  },
  tool_retry(event) {
    this.note(event, "retry", `${event.tool}: attempt ${event.attempt} failed for now (${event.error}), again in ${event.wait_ms} ms`, "warn");
  },
  job(event) {
    const far = event.total ? `, ${event.done} of ${event.total}` : event.done ? `, ${event.done} so far` : "";
    this.note(event, "job", `${event.tool}: continues as a job${far}`);
  },
  fallback(event) {
    this.note(event, "fallback", `${event.tool ?? "replies"}: ${STAGES[event.stage]?.(event) ?? plain(event.stage)}`,
      event.stage === "succeeded" ? "good" : "warn");
  },
  routing(event) {
    const rest = Object.entries(event).filter(([name]) => !OWN.has(name));
    const said = rest.map(([name, value]) => `${plain(name)} ${typeof value === "object" ? JSON.stringify(value) : value}`);
    const isBad = ["retry", "gave_up", "opened", "member_failed", "degraded", "other_revision", "images_left_out"].includes(event.decision);
    this.note(event, "routing", `${plain(event.decision)}: ${said.join(", ")}`, isBad ? "warn" : "info");
  },
  shield(event) {
    if (event.verdict === "pass") return;
    const of = event.tool ? `${event.place} of ${event.tool}` : event.place;
    this.note(event, "shield", `${event.shield} said ${plain(event.verdict)} to the ${plain(of)}${event.reason ? `: ${event.reason}` : ""}`,
      event.verdict === "redact" ? "warn" : "bad");
  },
  screened(event) {
    const of = event.call === undefined ? plain(event.place) : `arguments of ${this.calls.get(event.call)?.tool ?? event.call}`;
    if (event.screened === "blocked") this.note(event, "blocked", `${of} by ${event.shield}: ${event.reason}`, "bad");
    else if (event.screened === "redacted") this.note(event, "redacted", `the ${of}`, "warn");
  },
  hidden(event) {
    const counts = Object.entries(event.counts).map(([kind, many]) => `${many} × ${plain(kind)}`);
    if (counts.length) this.note(event, "hidden", `from the model: ${counts.join(", ")}`);
  },
  summarized(event) {
    this.note(event, "summarized", `${event.turns} turns, ${event.tokens_before} → ${event.tokens_after} tokens`);
  },
  conversation_summarized(event) {
    this.note(event, "summarized", `${event.messages} messages of the conversation, ${event.tokens_before} → ${event.tokens_after} tokens`);
  },
  resumed(event, at, before) {
    this.endModels(before);
    this.note(event, "resumed", "another process goes on with the run", "warn");
    for (const note of event.notes ?? []) this.note(event, "resumed", note, "warn");
  },
  done(event, at) {
    this.done = event;
    this.endedAt = at;
    this.tokens = event.tokens;
    this.settle(at);
  },
};

const OWN = new Set(["event", "run", "seq", "at_ms", "seal", "removed", "decision", "step"]);

const STAGES = {
  begun: (it) => `failed ${it.failures} times in a row, first with: ${it.first_error}`,
  skipped: (it) => `${it.candidate} is not asked: ${it.reason}`,
  asked: (it) => `${it.candidate} is asked instead (attempt ${it.attempt})`,
  failed: (it) => `attempt ${it.attempt} of ${it.candidate} failed: ${it.reason}`,
  succeeded: (it) => `${it.candidate} managed it`,
  exhausted: (it) => `no other model managed it; the first error was: ${it.first_error}`,
};

function plain(value) {
  return typeof value === "string" ? value.replaceAll("_", " ") : JSON.stringify(value);
}

/** A Request's body with what it shares with the one before it. */
function whole(before, { same, body }) {
  if (!same || !before) return body;
  const shared = Object.fromEntries((same.fields ?? []).map((name) => [name, before[name]]));
  const messages = [...(before.messages ?? []).slice(0, same.messages), ...(body.messages ?? [])];
  return { ...shared, ...body, ...(messages.length ? { messages } : {}) };
}

/** The names of a path: `†state.a[2].b` is state, a, 2, b. */
function names(path) {
  return path.replace(/^†/, "").split(/[.[\]]+/).filter((name) => name !== "");
}

/** Every path that a text of references names. */
export function paths(text) {
  return [...String(text).matchAll(/†[^\s†|&]+/g)].map(([path]) => path);
}

function references(value, found = [], depth = 0) {
  if (depth > 64) return found;
  if (typeof value === "string") {
    if (value.startsWith("†") && !value.startsWith("††")) found.push(...paths(value));
  } else if (value && typeof value === "object") {
    for (const inner of Object.values(value)) references(inner, found, depth + 1);
  }
  return found;
}

/** Who passes data to whom: `{nodes, edges}`; data that no call writes is a node of its own. */
export function flow(trace) {
  const calls = [...trace.calls.values()];
  const writers = calls.flatMap((call) =>
    [...new Set([...paths(call.outputPath ?? ""), ...call.written.map((path) => `†${path.replace(/^†/, "")}`)])]
      .map((path) => ({ call, path, names: names(path) })));
  const nodes = calls.map((call) => ({ key: call.id, call, step: call.step }));
  const edges = [];
  const known = new Set();
  const data = new Map();
  const put = (from, to, path) => {
    const key = `${from} ${to}`;
    if (from === to || known.has(key)) return;
    known.add(key);
    edges.push({ from, to, path });
  };
  for (const reader of calls) {
    for (const path of new Set(references(reader.arguments))) {
      const wanted = names(path);
      const found = writers.filter((writer) => writer.call !== reader && overlap(writer.names, wanted));
      for (const writer of found) put(writer.call.id, reader.id, path);
      if (!found.length) {
        const key = `data ${path}`;
        if (!data.has(key)) data.set(key, { key, path, step: reader.step });
        put(key, reader.id, path);
      }
    }
  }
  return { nodes: [...data.values(), ...nodes], edges };
}

function overlap(one, other) {
  const length = Math.min(one.length, other.length);
  return one.slice(0, length).every((name, index) => name === other[index]);
}
