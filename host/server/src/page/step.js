// One step of a run: what the model was asked and wrote, how the advisors voted, the calls, and what was remarked.

import { CallView } from "./call.js";
import { fill, fold, h, setProse, setText } from "./dom.js";
import { parse } from "./exact.js";
import { cost, count, duration } from "./format.js";
import { shown, text } from "./json.js";

export class StepView {
  constructor(run, trace, step, inner) {
    Object.assign(this, { run, trace, step, inner });
    this.title = h("h3", {});
    this.facts = h("span", { class: "step-facts" });
    this.notes = h("ul", { class: "notes" });
    this.votes = h("div", {});
    this.live = h("pre", { class: "text written", "aria-label": "What the model writes" });
    this.reply = h("div", { class: "step-folds" });
    this.calls = h("div", { class: "calls" });
    this.views = new Map();
    this.element = h("section", { class: "step", id: inner.isSub ? null : `step-${step.number}`, "aria-label": `Step ${step.number}` },
      h("div", { class: "step-head" }, this.title, this.facts),
      this.live, this.votes, this.calls, this.notes, this.reply);
    this.noted = this.voted = 0;
    this.stamp = "";
    this.update();
  }

  update() {
    const { step } = this;
    const model = step.models.at(-1);
    const isWriting = model && model.endedAt === null;
    const written = step.text || step.toolCalls.map((call) => `${call?.name ?? ""} ${call?.arguments ?? ""}`).join("\n") || step.reasoning;
    this.live.hidden = !isWriting;
    if (isWriting) {
      const atEnd = this.live.scrollHeight - this.live.scrollTop - this.live.clientHeight < 24;
      setProse(this.live, written || "…");
      if (atEnd) this.live.scrollTop = this.live.scrollHeight;
    }
    // The calls of a saved plan belong to no request to a model.
    setText(this.title, model ? `Step ${step.number}` : "Calls");
    const said = facts(step, model);
    if (said.join() !== this.said) {
      this.said = said.join();
      fill(this.facts, said.map((fact) => h("span", {}, fact)));
    }
    for (const id of step.calls) {
      const call = this.trace.calls.get(id);
      let view = this.views.get(id);
      if (!view) {
        view = new CallView(this.run, call, this.inner);
        this.views.set(id, view);
        this.calls.append(view.element);
      } else view.update();
    }
    for (; this.noted < step.notes.length; this.noted++) {
      const note = step.notes[this.noted];
      this.notes.append(h("li", { class: `note note-${note.tone}` }, h("span", { class: "note-kind" }, note.kind), h("span", {}, note.text)));
    }
    for (; this.voted < step.councils.length; this.voted++) this.votes.append(council(step.councils[this.voted], step.notes));
    const stamp = `${isWriting} ${step.models.length}`;
    if (stamp !== this.stamp) {
      this.stamp = stamp;
      fill(this.reply, this.folds(isWriting));
    }
  }

  folds(isWriting) {
    const { step } = this;
    return [
      !isWriting && step.text ? fold("Reply", () => reply(step.text)) : null,
      !isWriting && step.reasoning ? fold("Reasoning", () => text(step.reasoning)) : null,
      step.body ? fold("Request", () => [
        h("div", { class: "messages" }, (step.body.messages ?? []).map((message) =>
          h("div", { class: "message" }, h("span", { class: "tag" }, message.role),
            typeof message.content === "string" ? text(message.content) : shown(message.content ?? message.tool_calls ?? null)))),
        fold("All of the body", () => shown(step.body)),
      ]) : null,
    ];
  }
}

function reply(content) {
  try {
    return shown(parse(content));
  } catch {
    return text(content);
  }
}

function facts(step, model) {
  const { tokens, budget } = step;
  const found = [];
  if (model?.endedAt) found.push(duration(tokens?.duration_ms ?? model.endedAt - model.beganAt));
  else if (model) found.push("writing");
  if (tokens?.first_token_ms !== undefined) found.push(`first token ${duration(tokens.first_token_ms)}`);
  if (tokens?.prompt !== undefined) found.push(`${count(tokens.prompt)} in`);
  if (tokens?.completion !== undefined) {
    found.push(`${count(tokens.completion)} out`);
    const writing = tokens.duration_ms - (tokens.first_token_ms ?? 0);
    if (tokens.completion > 1 && writing > 0) found.push(`${Math.round((1000 * tokens.completion) / writing)} tokens/s`);
  }
  if (tokens?.cost_nano !== undefined) found.push(`cost ${cost(tokens.cost_nano)}`);
  if (budget?.window) found.push(`window ${count(budget.window)}`);
  return found;
}

/** The votes as bars around 0, with who gave them. */
function council({ council, tallies, dissent, held }, notes) {
  // It is a notice as well.
  const isNoted = notes.some((note) => note.text === dissent?.sentence);
  const tables = (tallies ?? []).map((tally) => {
    const most = Math.max(1e-9, ...tally.standings.map((standing) => Math.abs(standing.sum)));
    return h("table", { class: "votes" },
      h("caption", {}, `Votes${tally.instance ? ` for ${tally.instance}` : ""}: ${outcome(tally.outcome)}`),
      h("tbody", {}, tally.standings.map((standing) => {
        const meter = h("span", { class: `vote-bar ${standing.sum < 0 ? "against" : ""}` }, h("i", {}));
        meter.firstChild.style.width = `${(100 * Math.abs(standing.sum)) / most}%`;
        return h("tr", {}, h("th", { scope: "row" }, standing.tool), h("td", {}, meter), h("td", { class: "num" }, votes(standing.sum)),
          h("td", { class: "ballots" }, standing.ballots.map((ballot) => h("span", { class: "tag" }, `${ballot.advisor} ${ballot.weight}`))));
      })));
  });
  const opinions = council.opinions.length ? fold(`${council.opinions.length} opinions`, () => council.opinions.map((opinion) =>
    h("div", { class: "part" }, h("h4", {}, opinion.instance ? `${opinion.advisor} · ${opinion.instance}` : opinion.advisor), shown(opinion.fields)))) : null;
  return h("div", { class: "council" }, tables,
    dissent && !isNoted ? h("p", { class: "note note-warn" }, h("span", { class: "note-kind" }, "dissent"), h("span", {}, dissent.sentence)) : null,
    held ? h("p", { class: "note note-warn" }, h("span", { class: "note-kind" }, "held"), h("span", {}, "The model is told the sums, and chooses again.")) : null,
    (council.faults ?? []).map((fault) => h("p", { class: "note note-warn" }, h("span", { class: "note-kind" }, fault.advisor ?? "advisor"), h("span", {}, fault.reason))),
    opinions);
}

function votes(sum) {
  return String(Math.round(100 * sum) / 100);
}

function outcome(it) {
  if (it.result === "winner") return `${it.tool} (${votes(it.sum)})`;
  if (it.result === "tie") return `tie of ${it.tools.join(", ")}`;
  return "undecided";
}
