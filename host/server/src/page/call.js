// One call: its head in a line, and when it is opened all that is known of it.

import { DecisionForm } from "./decision.js";
import { fill, fold, h, setText } from "./dom.js";
import { bytes, cost, count, duration, share, short } from "./format.js";
import { preview, shown, text } from "./json.js";
import { limitsOf } from "./modules.js";

const STATES = {
  planned: "planned", waits: "waits for data", approval: "waits for a decision", running: "running",
  done: "done", failed: "failed", stopped: "stopped",
};

export class CallView {
  /** `inner()` makes the view of a sub-agent: it is given, so that a run can be inside a call. */
  constructor(run, call, inner) {
    this.run = run;
    this.call = call;
    this.inner = inner;
    this.head = {
      state: h("span", { class: "call-state" }), tool: h("span", { class: "call-tool" }),
      brief: h("span", { class: "call-brief" }), used: h("span", { class: "call-used" }),
    };
    this.body = h("div", { class: "call-body" });
    this.question = h("div", {});
    this.sub = h("div", { class: "call-sub" });
    this.details = h("details", { class: "call", ontoggle: () => this.update() },
      h("summary", {}, this.head.state, this.head.tool, this.head.brief, this.head.used), this.body);
    this.element = h("div", { class: "call-box", id: `call-${call.id}` }, this.details, this.question, this.sub);
    this.bodyOf = "";
    this.update();
  }

  update() {
    const { call } = this;
    this.details.dataset.state = call.state;
    setText(this.head.state, STATES[call.state] ?? call.state);
    setText(this.head.tool, call.tool);
    const given = preview(call.filled ?? call.arguments);
    const result = call.error ? call.error.message : call.output === undefined ? "" : preview(call.output, 80);
    setText(this.head.brief, result ? `${given}  →  ${result}` : given);
    setText(this.head.used, call.cached ? "cached" : call.usage ? duration(call.usage.duration_us / 1000) : "");
    const stamp = `${call.state} ${call.written.length} ${Boolean(call.decision)} ${Boolean(call.filled)}`;
    if (this.details.open && stamp !== this.bodyOf) {
      this.bodyOf = stamp;
      fill(this.body, this.parts());
    }
    const isAsked = call.state === "approval";
    this.details.hidden = isAsked;
    if (isAsked && !this.question.firstChild) {
      this.form = new DecisionForm({
        run: this.run, call: call.id, tool: call.tool, instance: call.instance,
        arguments: call.pending.arguments, digest: call.pending.digest, annotations: call.pending.annotations,
        agents: call.pending.agents, callers: call.pending.callers, why: call.pending.why,
      });
      this.question.append(this.form.element);
    } else if (!isAsked && this.question.firstChild) fill(this.question);
    if (call.sub) {
      this.subView ??= this.inner(call.sub);
      if (!this.subView.element.parentElement) this.sub.append(this.subView.element);
      this.subView.update();
    }
  }

  parts() {
    const { call } = this;
    const part = (title, ...content) => h("div", { class: "part" }, h("h4", {}, title), content);
    return [
      call.reason ? h("p", { class: "reason" }, `“${call.reason}”`) : null,
      call.filled === undefined ? part("Arguments", shown(call.arguments ?? {})) : [
        part("Arguments", shown(call.filled)),
        fold("as the model wrote them", () => shown(call.arguments ?? {})),
      ],
      call.decision ? part("Decision", h("p", {}, decided(call.decision)), call.decision.arguments ? shown(call.decision.arguments) : null) : null,
      call.error ? part(`Error · ${call.error.kind}`, text(call.error.message)) : null,
      call.output === undefined ? null : part("Result", shown(call.output)),
      call.printed.length ? part("Printed", text(call.printed.join("\n"))) : null,
      this.usage(),
    ];
  }

  usage() {
    const { call } = this;
    const { usage } = call;
    const facts = [];
    const fact = (name, value) => facts.push(h("div", { class: "fact" }, h("dt", {}, name), h("dd", {}, value)));
    if (usage) {
      if (call.byHost) fact("By", "the host itself");
      if (call.cached) fact("Cached", `result of ${call.cached.call}, ${duration(call.cached.age_ms)} old`);
      const limits = limitsOf(call.tool);
      const meter = (name, used, limit, unit) => fact(name, limit
        ? [`${unit(used)} of ${unit(limit)}`, bar(used / limit, `${share(used, limit)} of the limit`)] : unit(used));
      meter("Time", usage.duration_us / 1000, limits?.timeout_ms, duration);
      if (usage.fuel) meter("Fuel", usage.fuel, limits?.fuel, short);
      if (usage.memory_bytes) meter("Memory", usage.memory_bytes, limits?.memory_bytes, bytes);
      if (usage.tokens) fact("Tokens", count(usage.tokens));
      if (usage.calls) fact("Calls inside", count(usage.calls));
      if (usage.cost_nano) fact("Cost", cost(usage.cost_nano));
    }
    if (call.instance) fact("Instance", call.instance);
    if (call.outputPath) fact("Writes to", call.outputPath);
    else if (call.written.length) fact("Written to", call.written.join(", "));
    fact("Call", h("code", {}, call.id));
    return h("dl", { class: "facts" }, facts);
  }
}

function bar(part, label) {
  const meter = h("span", { class: "meter", role: "img", "aria-label": label, title: label }, h("i", {}));
  meter.firstChild.style.width = `${Math.min(100, Math.max(100 * part, 0.5))}%`;
  return meter;
}

function decided(decision) {
  const said = { approve: "Approved", edit: "Run with other arguments", replace: "Not run; this result was given instead", refuse: "Refused" };
  const by = decision.by ? ` by ${decision.by}` : "";
  return `${said[decision.verdict] ?? decision.verdict}${by}${decision.reason ? `: ${decision.reason}` : ""}`;
}
