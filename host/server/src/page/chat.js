// Sessions: conversations with an agent, each turn of which is a run.

import { begin, get, post, remove, watch } from "./api.js";
import { DecisionForm } from "./decision.js";
import { action, dialog, empty, failed, fill, h, problem, prose, setProse, setText } from "./dom.js";
import { duration, ending, oneLine, when } from "./format.js";
import { preview, shown } from "./json.js";
import { agentSelect } from "./runs.js";
import { speaks, spoken } from "./spoken.js";
import { Trace } from "./trace.js";

/** Turns that are loaded at once; those before them when asked for. */
const TURNS = 20;

export function chatPage({ parameters: [id], signal }) {
  const sessions = h("div", { class: "sessions-list" });
  const side = h("aside", { class: "sessions", "aria-label": "Sessions" },
    h("div", { class: "page-head" }, h("h1", {}, "Chat")), sessions);
  const look = async () => {
    try {
      const found = await get("/v1/sessions?limit=100", { signal });
      fill(sessions, found.sessions.length ? found.sessions.map((session) => h("a", {
        class: "session", href: `#/chat/${session.id}`, "aria-current": session.id === id ? "page" : null,
      }, h("span", { class: "session-title" }, prose(session.title || "Untitled")), h("span", { class: "dim" }, `${session.agent} · ${when(session.created_ms)}`)))
        : h("p", { class: "dim pad" }, "No sessions yet."));
    } catch (error) {
      if (!signal.aborted) fill(sessions, failed(error, look));
    }
  };
  look();
  const agent = agentSelect(signal);
  sessions.before(h("div", { class: "buttons new-session" }, agent, action("New chat", () => {
    location.hash = "#/chat/new";
  }, { class: "primary" })));
  const isNew = id === "new";
  const room = id ? new Conversation(isNew ? null : id, signal, () => agent.value).element
    : empty("A conversation with an agent", "Choose an agent and begin one, or go on with one of those you had.");
  return h("div", { class: `chat ${id ? "has-session" : ""}` }, side, h("section", { class: "conversation", "aria-label": "Conversation" }, room));
}

class Conversation {
  /** Without an id it begins with what is said first, with the agent that `agent()` names. */
  constructor(id, signal, agent) {
    this.id = id;
    this.signal = signal;
    this.chosen = agent;
    this.turns = h("div", { class: "turns", role: "log", "aria-label": "Turns" });
    this.agent = h("span", { class: "tag" });
    this.title = h("h2", {}, "…");
    this.message = h("textarea", { rows: 2, "aria-label": "Message", placeholder: "Say something…" });
    this.message.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.sendButton.click();
      }
    });
    this.sendButton = action("Send", () => this.send(), { class: "primary" });
    this.stopButton = action("Stop", () => post(`/v1/runs/${this.current}/cancel`), { class: "danger" });
    this.stopButton.hidden = true;
    this.composer = h("form", { class: "composer", "data-problems": true, onsubmit: (event) => event.preventDefault() },
      this.message, h("div", { class: "buttons" }, h("span", { class: "grow hint" }, "Enter sends, Shift+Enter begins a line"), this.stopButton, this.sendButton));
    this.element = h("div", { class: "room" },
      h("div", { class: "room-head", "data-problems": true }, h("a", { class: "back", href: "#/chat" }, "Sessions"), this.title, this.agent, h("span", { class: "grow" }),
        id ? action("Delete", () => this.delete()) : null),
      this.turns, this.composer);
    if (id) this.load();
    else this.begin();
  }

  begin() {
    setText(this.title, "New chat");
    this.agent.hidden = true;
    fill(this.turns, h("p", { class: "dim pad" }, "Say what you want; the agent has its tools at hand."));
    queueMicrotask(() => this.message.focus({ preventScroll: true }));
  }

  async load() {
    try {
      const session = await get(`/v1/sessions/${this.id}?limit=${TURNS}`, { signal: this.signal });
      const [first] = session.turns;
      setProse(this.title, session.title || (first?.turn === 0 && oneLine(first.task, 60)) || (first ? "Chat" : "New chat"));
      setText(this.agent, session.agent);
      fill(this.turns, this.older(session));
      for (const turn of session.turns) this.turns.append(this.turn(turn.id, turn.state !== "done").element);
      this.toEnd(true);
      this.message.focus({ preventScroll: true });
    } catch (error) {
      if (!this.signal.aborted) fill(this.turns, failed(error, () => this.load()));
    }
  }

  /** The button that loads the turns before the first of `page`. Turns are numbered from 0. */
  older(page) {
    const left = page.turns[0]?.turn ?? 0;
    if (left <= 0) return [];
    return [action(`${left} turns before`, async (button) => {
      const before = await get(`/v1/sessions/${this.id}?limit=${TURNS}&before=${page.turns[0].id}`, { signal: this.signal });
      const elements = before.turns.map((turn) => this.turn(turn.id).element);
      button.replaceWith(...this.older(before), ...elements);
    })];
  }

  turn(run, isLive = false) {
    const turn = new Turn(run);
    if (isLive) this.busy(run);
    turn.follow(this.signal, () => this.toEnd()).finally(() => {
      if (this.current === run) this.busy(null);
    });
    return turn;
  }

  busy(run) {
    this.current = run;
    this.sendButton.hidden = run !== null;
    this.stopButton.hidden = run === null;
  }

  async send() {
    const said = this.message.value.trim();
    if (!said) return;
    if (!this.id) {
      const session = await post("/v1/sessions", { agent: this.chosen() || undefined, title: oneLine(said, 80) });
      await begin(`/v1/sessions/${session.id}/turns`, { messages: [{ role: "user", content: said }] });
      location.hash = `#/chat/${session.id}`;
      return;
    }
    const run = await begin(`/v1/sessions/${this.id}/turns`, { messages: [{ role: "user", content: said }] });
    this.message.value = "";
    this.turns.querySelector(":scope > .pad")?.remove();
    this.turns.append(this.turn(run, true).element);
    this.toEnd(true);
  }

  async delete() {
    const sure = await dialog("Delete this session?", (close) => h("div", {}, h("p", {}, "Its turns and their records are deleted with it."),
      h("div", { class: "buttons" }, h("span", { class: "grow" }), h("button", { type: "button", onclick: () => close(false) }, "Keep it"),
        h("button", { type: "button", class: "danger", onclick: () => close(true) }, "Delete"))));
    if (!sure) return;
    await remove(`/v1/sessions/${this.id}`);
    location.hash = "#/chat";
  }

  /** Follows what is written, unless somebody reads further up. */
  toEnd(always) {
    const { turns } = this;
    const distance = turns.scrollHeight - turns.scrollTop - turns.clientHeight;
    if (always || distance < 160) turns.scrollTop = turns.scrollHeight;
  }
}

class Turn {
  constructor(run) {
    this.run = run;
    this.trace = new Trace();
    this.said = h("div", { class: "bubble" }, "…");
    this.calls = h("ul", { class: "turn-calls" });
    this.questions = h("div", {});
    this.answer = h("div", { class: "turn-answer" });
    this.foot = h("a", { class: "turn-foot", href: `#/runs/${run}` }, "the run");
    this.element = h("article", { class: "turn" }, this.said, this.calls, this.questions, this.answer, this.foot);
    this.chips = new Map();
  }

  async follow(signal, onChange) {
    let isDirty = false;
    const paint = () => {
      if (!isDirty) return;
      isDirty = false;
      this.update();
      onChange();
    };
    try {
      for await (const event of watch(this.run, signal)) {
        this.trace.take(event, event.at_ms);
        if (isDirty) continue;
        isDirty = true;
        requestAnimationFrame(paint);
        setTimeout(paint, 200);
      }
      paint();
    } catch (error) {
      if (!signal.aborted) problem(this.answer, error);
    }
  }

  update() {
    const { trace } = this;
    setProse(this.said, trace.asked);
    for (const call of trace.calls.values()) {
      let chip = this.chips.get(call.id);
      if (!chip) {
        chip = h("li", {}, h("span", { class: "call-tool" }, call.tool), h("span", { class: "call-brief" }));
        this.chips.set(call.id, chip);
        this.calls.append(chip);
      }
      chip.className = `chip chip-${call.state}`;
      const result = call.error ? call.error.message : call.output === undefined ? "" : preview(call.output, 60);
      setText(chip.lastChild, `${preview(call.filled ?? call.arguments, 60)}${result ? `  →  ${result}` : ""}`);
    }
    const waiting = trace.pending;
    const key = waiting.map((call) => call.id).join();
    if (key !== this.waited) {
      this.waited = key;
      fill(this.questions, waiting.map((call) => new DecisionForm({
        run: this.run, call: call.id, tool: call.tool, instance: call.instance,
        arguments: call.pending.arguments, digest: call.pending.digest, annotations: call.pending.annotations,
        agents: call.pending.agents, callers: call.pending.callers, why: call.pending.why,
      }).element));
    }
    this.showAnswer();
  }

  showAnswer() {
    const { done, begun } = this.trace;
    if (done) {
      if (this.isAnswered) return;
      this.isAnswered = true;
      const { output } = done;
      fill(this.answer, output === null ? h("p", { class: "problem" }, done.error?.message ?? `Stopped: ${ending(done.reason)}.`)
        : typeof output === "string" ? h("div", { class: "prose" }, prose(output)) : shown(output));
      setText(this.foot, `${duration(done.duration_ms)} · ${done.tokens} tokens · the run`);
      return;
    }
    const step = [...this.trace.steps.values()].at(-1);
    const said = speaks(begun) ? spoken(step?.text ?? "") : "";
    this.writing ??= h("div", { class: "prose writing" });
    if (!this.writing.isConnected) fill(this.answer, this.writing);
    setProse(this.writing, said);
  }
}
