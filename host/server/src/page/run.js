// One run, live or past.

import { get, post, watch } from "./api.js";
import { action, exact, failed, fill, h, setProse, setText } from "./dom.js";
import { cost, count, duration, endedWell, ending, time } from "./format.js";
import { Graph } from "./graph.js";
import { shown, text } from "./json.js";
import { loadLimits } from "./modules.js";
import { speaks, spoken } from "./spoken.js";
import { StepView } from "./step.js";
import { Timeline } from "./timeline.js";
import { Trace } from "./trace.js";

export function runPage({ parameters: [id], signal }) {
  const view = new RunView(id);
  loadLimits(signal).finally(() => view.follow(signal));
  return view.element;
}

class RunView {
  constructor(id) {
    this.id = id;
    this.trace = new Trace();
    const pick = (it) => this.pick(it);
    this.timeline = new Timeline(pick);
    this.graph = new Graph(pick);
    this.steps = new StepsView(id, this.trace, false);
    this.title = h("h1", { class: "run-title" }, "…");
    this.state = h("span", { class: "pill" });
    this.facts = h("dl", { class: "facts run-facts" });
    this.tools = h("div", { class: "buttons" });
    this.answer = h("section", { class: "panel answer", "aria-label": "Answer", hidden: true });
    this.trouble = h("div", {});
    this.lost = h("p", { class: "lost", role: "status", hidden: true }, "The connection is lost; trying again…");
    this.cancel = action("Stop", async () => {
      await post(`/v1/runs/${id}/cancel`);
    });
    this.resume = action("Go on", async () => {
      await post(`/v1/runs/${id}/resume`);
      this.resume.hidden = true;
    });
    this.element = h("article", { class: "run", "aria-busy": "true" },
      h("div", { class: "page-head", "data-problems": true }, h("a", { class: "back", href: "#/runs" }, "Runs"), this.title, this.state, h("span", { class: "grow" }), this.tools),
      this.facts, this.lost, this.trouble, this.answer, this.timeline.element, this.graph.element, this.steps.element);
    this.isDirty = false;
    this.skew = 0;
    this.cancel.hidden = this.resume.hidden = true;
    this.tools.append(this.resume, this.cancel);
  }

  async follow(signal) {
    // A run whose process ended waits until somebody goes on with it.
    get(`/v1/runs/${this.id}`, { signal }).then((run) => (this.resume.hidden = run.state !== "parked"), () => {});
    const tick = setInterval(() => {
      if (this.trace.begun && !this.trace.done) this.soon();
    }, 250);
    try {
      for await (const event of watch(this.id, signal, (state) => (this.lost.hidden = state === "live"))) {
        // The server's clock may be ahead of the browser's.
        this.skew = Math.max(this.skew, event.at_ms - Date.now());
        this.trace.take(event, event.at_ms);
        this.soon();
      }
      this.lost.hidden = true;
    } catch (error) {
      if (!signal.aborted) fill(this.trouble, failed(error));
    } finally {
      clearInterval(tick);
      this.element.setAttribute("aria-busy", "false");
    }
  }

  soon() {
    if (this.isDirty) return;
    this.isDirty = true;
    // Not requestAnimationFrame alone: it does not fire in hidden tabs.
    const paint = () => {
      if (!this.isDirty) return;
      this.isDirty = false;
      this.update();
    };
    requestAnimationFrame(paint);
    setTimeout(paint, 200);
  }

  update() {
    const { trace } = this;
    if (!trace.begun) return;
    const { begun, done } = trace;
    setProse(this.title, trace.asked || "A plan");
    const title = exact(`${trace.asked.slice(0, 60) || "Run"} · Toolhold`);
    if (document.title !== title) document.title = title;
    const waits = trace.pending.length > 0;
    const state = done ? ending(done.reason) : waits ? "waits for a decision" : "running";
    setText(this.state, state);
    this.state.className = `pill ${done ? (endedWell(done.reason) ? "good" : "bad") : waits ? "warn" : "live"}`;
    const now = Math.max(Date.now() + this.skew, trace.lastAt);
    const facts = [
      ["Model", begun.model], ["Began", time(trace.beganAt)],
      ["Took", duration(done ? done.duration_ms : now - trace.beganAt)],
      ["Steps", count(done?.steps ?? [...trace.steps.values()].filter((step) => step.models.length).length)],
      ["Calls", count(done?.calls ?? trace.calls.size)], ["Tokens", count(trace.tokens)],
      done?.cost_nano === undefined ? null : ["Cost", cost(done.cost_nano)], ["Tools", count(begun.tools.length)],
    ];
    const stamp = facts.join();
    if (stamp !== this.stamp) {
      this.stamp = stamp;
      fill(this.facts, facts.filter(Boolean).map(([name, value]) => h("div", { class: "fact" }, h("dt", {}, name), h("dd", {}, value))));
    }
    this.cancel.hidden = Boolean(done);
    if (done) this.resume.hidden = true;
    this.showAnswer();
    this.timeline.paint(trace, now);
    this.graph.paint(trace);
    this.steps.update();
  }

  showAnswer() {
    const { done } = this.trace;
    if (done && !this.isAnswered) {
      this.isAnswered = true;
      this.answer.hidden = false;
      const hasOutput = done.output !== null;
      fill(this.answer, h("div", { class: "panel-head" }, h("h2", {}, hasOutput ? "Answer" : "No answer")),
        hasOutput ? (typeof done.output === "string" ? text(done.output) : shown(done.output)) : null,
        done.error ? h("p", { class: "problem" }, done.error.message) : null,
        !hasOutput && !done.error ? h("p", {}, `The run was stopped: ${ending(done.reason)}.`) : null);
    } else if (!done && speaks(this.trace.begun)) {
      const step = [...this.trace.steps.values()].at(-1);
      const said = step?.models.at(-1)?.endedAt === null ? spoken(step.text) : "";
      this.answer.hidden = !said;
      if (!said) return;
      this.writing ??= h("pre", { class: "text" });
      if (!this.writing.isConnected) fill(this.answer, h("div", { class: "panel-head" }, h("h2", {}, "Answer"), h("span", { class: "pill live" }, "being written")), this.writing);
      setProse(this.writing, said);
    }
  }

  pick({ step, call }) {
    const found = document.getElementById(call === undefined ? `step-${step}` : `call-${call}`);
    if (!found) return;
    const details = found.querySelector(":scope > details");
    if (details && call !== undefined) details.open = true;
    const target = found.querySelector("summary, button") ?? found;
    target.scrollIntoView({ block: "center", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    target.focus({ preventScroll: true });
    found.classList.add("picked");
    setTimeout(() => found.classList.remove("picked"), 1_500);
  }
}

/** The steps of a run or, inside a call, of a sub-agent. */
export class StepsView {
  constructor(run, trace, isSub) {
    Object.assign(this, { run, trace, isSub });
    this.views = new Map();
    this.element = h("div", { class: isSub ? "steps sub" : "steps", "aria-label": isSub ? "Sub-agent" : "Steps", role: "group" });
  }

  update() {
    const inner = Object.assign((sub) => new StepsView(this.run, sub, true), { isSub: this.isSub });
    for (const [number, step] of this.trace.steps) {
      const view = this.views.get(number);
      if (view) view.update();
      else {
        const made = new StepView(this.run, this.trace, step, inner);
        this.views.set(number, made);
        this.element.append(made.element);
      }
    }
  }
}
