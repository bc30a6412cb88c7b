// A call that waits for a person: exactly what would be run, and the four things that can be said of it.

import { get, post } from "./api.js";
import { action, empty, exact, failed, fill, h, noProblem, problem } from "./dom.js";
import { parse, stringify } from "./exact.js";
import { shown } from "./json.js";

export class DecisionForm {
  constructor(waiting) {
    this.waiting = waiting;
    this.more = h("div", { class: "approval-more" });
    this.element = h("section", { class: "approval", "aria-label": `Decision about ${waiting.tool}`, "data-problems": true, "data-call": waiting.call },
      h("div", { class: "approval-head" },
        h("strong", {}, waiting.tool), waiting.instance ? h("span", { class: "tag" }, waiting.instance) : null,
        waiting.agents?.length ? h("span", { class: "tag" }, `sub-agent ${waiting.agents.join(" > ")}`) : null,
        waiting.callers?.length ? h("span", { class: "tag" }, `called by ${waiting.callers.at(-1)}`) : null,
        waiting.why ? h("span", { class: "tag" }, `because ${waiting.why}`) : null,
        hints(waiting.annotations), h("span", { class: "grow" }), h("span", { class: "dim" }, "waits for your decision")),
      shown(waiting.arguments),
      h("div", { class: "buttons" },
        action("Approve", () => this.say({ verdict: "approve" }), { class: "primary" }),
        this.opens("Edit…", () => this.edit("arguments")),
        this.opens("Replace…", () => this.edit("result")),
        this.opens("Refuse…", () => this.refuse())),
      this.more);
  }

  opens(label, make) {
    return h("button", { type: "button", onclick: () => {
      noProblem(this.element);
      fill(this.more, make());
      this.more.querySelector("textarea")?.focus();
    } }, label);
  }

  /** JSON that is checked while it is written. */
  edit(what) {
    const isArguments = what === "arguments";
    const given = exact(stringify(isArguments ? this.waiting.arguments : null, 2));
    const fault = h("p", { class: "field-fault", role: "status" });
    const area = h("textarea", { class: "code", rows: Math.min(16, given.split("\n").length + 1), spellcheck: "false", "aria-label": isArguments ? "Arguments" : "Result" });
    area.value = given;
    const read = () => {
      try {
        const value = parse(area.value);
        if (isArguments && (value === null || typeof value !== "object" || Array.isArray(value))) throw new Error("Arguments are an object: { … }");
        fault.textContent = "";
        send.disabled = false;
        return value;
      } catch (error) {
        fault.textContent = error.message;
        send.disabled = true;
        return undefined;
      }
    };
    const send = action(isArguments ? "Run with these" : "Take this as the result", async () => {
      const value = read();
      if (value !== undefined) await this.say(isArguments ? { verdict: "edit", arguments: value } : { verdict: "replace", result: value });
    }, { class: "primary" });
    area.addEventListener("input", read);
    return h("div", { class: "edit" },
      h("p", { class: "dim" }, isArguments ? "The call is made with these arguments instead." : "The call is not made; the model is given this as its result."),
      area, fault, h("div", { class: "buttons" }, send, this.cancel()));
  }

  refuse() {
    const reason = h("textarea", { rows: 2, "aria-label": "Reason", placeholder: "Why not, for the model to read" });
    const send = action("Refuse the call", () => this.say({ verdict: "refuse", ...(reason.value.trim() ? { reason: reason.value.trim() } : {}) }), { class: "danger" });
    return h("div", { class: "edit" }, reason, h("div", { class: "buttons" }, send, this.cancel()));
  }

  cancel() {
    return h("button", { type: "button", onclick: () => fill(this.more) }, "Cancel");
  }

  async say(decision) {
    const { run, call, digest } = this.waiting;
    try {
      await post(`/v1/approvals/${run}/${encodeURIComponent(call)}`, { digest, ...decision });
    } catch (error) {
      problem(this.element.firstChild, error);
      return;
    }
    const said = { approve: "Approved", edit: "Runs with other arguments", replace: "Replaced", refuse: "Refused" };
    fill(this.element, h("p", { class: "dim", role: "status" }, `${this.waiting.tool}: ${said[decision.verdict]}.`));
    dispatchEvent(new CustomEvent("toolhold-decided"));
  }
}

function hints(annotations) {
  const known = [["destructive", "may destroy"], ["open_world", "reaches outside"], ["read_only", "only reads"], ["idempotent", "may be repeated"]];
  return known.filter(([name]) => annotations?.[name] === true).map(([, label]) => h("span", { class: "tag" }, label));
}

/** All calls that wait, from all pages of the list: those that are decided, and not read by their runs yet, are among them. */
async function waitingCalls(signal) {
  const all = [];
  let after = "";
  do {
    const page = await get(`/v1/approvals?limit=1000${after}`, { signal });
    all.push(...page.calls);
    after = page.next ? `&after=${encodeURIComponent(page.next)}` : "";
  } while (after);
  return all;
}

/** The page of all calls that wait. */
export function decisionsPage({ signal }) {
  const list = h("div", { class: "stack" });
  const known = new Map();
  const look = async () => {
    try {
      const open = (await waitingCalls(signal)).filter((it) => !it.is_decided);
      const key = (it) => `${it.run} ${it.call} ${it.digest}`;
      const keys = new Set(open.map(key));
      for (const [old, element] of known) {
        if (keys.has(old)) continue;
        element.remove();
        known.delete(old);
      }
      if (!open.length) {
        fill(list, empty("Nothing waits for you", "Calls that need a person's decision appear here, with exactly the arguments they would run with."));
        return;
      }
      if (!known.size) fill(list);
      for (const it of open) {
        if (known.has(key(it))) continue;
        const element = h("div", { class: "panel" }, h("p", { class: "panel-note" }, "asked for in ", h("a", { href: `#/runs/${it.run}` }, "this run")),
          new DecisionForm(it).element);
        known.set(key(it), element);
        list.append(element);
      }
    } catch (error) {
      if (!signal.aborted && !known.size) fill(list, failed(error, look));
    }
  };
  look();
  const timer = setInterval(look, 3_000);
  const soon = () => look();
  addEventListener("toolhold-decided", soon);
  signal.addEventListener("abort", () => {
    clearInterval(timer);
    removeEventListener("toolhold-decided", soon);
  });
  return h("div", {}, h("div", { class: "page-head" }, h("h1", {}, "Decisions")), list);
}
