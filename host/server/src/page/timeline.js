// A run on the axis of time: the model's replies, tools in parallel lanes, waits, and what sub-agents did.

import { exact, fill, h, setText } from "./dom.js";
import { duration } from "./format.js";

const MAX_DEPTH = 8;
/** Between two paints of a run that goes on. */
const PACE = 120;

export class Timeline {
  /** `onPick(call)` is called with the selected call. */
  constructor(onPick) {
    this.onPick = onPick;
    this.axis = h("div", { class: "tl-axis", "aria-hidden": "true" });
    this.rows = h("div", { class: "tl-rows" });
    this.element = h("section", { class: "panel timeline", "aria-label": "Timeline" },
      h("div", { class: "panel-head" }, h("h2", {}, "Timeline"), legend()),
      h("div", { class: "tl" }, this.rows, this.axis));
    this.lanes = new Map();
    this.bars = new Map();
    this.painted = 0;
  }

  paint(trace, now) {
    if (!trace.done && performance.now() - this.painted < PACE) return;
    this.painted = performance.now();
    const end = Math.max(trace.done ? trace.endedAt : now, trace.beganAt + 1);
    const scale = { from: trace.beganAt ?? end - 1, to: end, length: end - (trace.beganAt ?? end - 1) || 1 };
    const lanes = lanesOf(trace, end, 0, "");
    const seen = new Set();
    for (const lane of lanes) {
      const row = this.lane(lane);
      for (const bar of lane.bars) {
        seen.add(bar.key);
        this.bar(row, bar, scale);
      }
    }
    for (const [key, element] of this.bars) {
      if (seen.has(key)) continue;
      element.remove();
      this.bars.delete(key);
    }
    const keys = lanes.map((lane) => lane.key);
    for (const [key, row] of this.lanes) {
      if (keys.includes(key)) continue;
      row.element.remove();
      this.lanes.delete(key);
    }
    keys.forEach((key, index) => {
      const { element } = this.lanes.get(key);
      if (this.rows.children[index] !== element) this.rows.insertBefore(element, this.rows.children[index] ?? null);
    });
    fill(this.axis, ticks(scale.length).map((ms) => {
      const tick = h("span", { class: "tl-tick" }, ms === 0 ? "0" : duration(ms));
      tick.style.left = `${(100 * ms) / scale.length}%`;
      return tick;
    }));
  }

  lane({ key, label, depth }) {
    let row = this.lanes.get(key);
    if (!row) {
      const track = h("div", { class: "tl-track" });
      const element = h("div", { class: "tl-row" }, h("span", { class: "tl-label", title: label }, label), track);
      element.dataset.depth = depth;
      row = { element, track };
      this.lanes.set(key, row);
    }
    return row;
  }

  bar(row, bar, { from, to, length }) {
    let element = this.bars.get(bar.key);
    if (!element) {
      element = h("button", { type: "button", onclick: () => this.onPick(element.picks) }, h("span", {}));
      this.bars.set(bar.key, element);
    }
    element.picks = bar.picks;
    if (element.parentElement !== row.track) row.track.append(element);
    const took = (bar.endedAt ?? to) - bar.beganAt;
    const text = exact(`${bar.label}, ${duration(bar.took ?? took)}${bar.more ? `, ${bar.more}` : ""}`);
    if (element.title !== text) {
      element.title = text;
      element.setAttribute("aria-label", text);
    }
    element.className = `tl-bar tl-${bar.kind}${bar.endedAt === null ? " tl-live" : ""}`;
    setText(element.firstChild, bar.label);
    const left = (100 * (bar.beganAt - from)) / length;
    element.style.left = `${left}%`;
    element.style.width = `${Math.max(0, Math.min((100 * took) / length, 100 - left))}%`;
    element.style.setProperty("--first", bar.firstAt ? `${(100 * (bar.firstAt - bar.beganAt)) / Math.max(took, 1)}%` : "0%");
  }
}

function legend() {
  const kinds = [["first", "to first token"], ["model", "model"], ["tool", "tool"], ["wait", "waits for a person"], ["bad", "failed"]];
  return h("ul", { class: "legend" }, kinds.map(([kind, label]) =>
    h("li", {}, h("i", { class: `swatch tl-${kind}`, "aria-hidden": "true" }), label)));
}

/** The rows of a run: the model's, then as many as tools ran at the same time, each with its sub-agents'. */
function lanesOf(trace, end, depth, prefix) {
  if (depth > MAX_DEPTH) return [];
  const model = { key: `${prefix}model`, label: depth ? "model" : "Model", depth, bars: [] };
  for (const step of trace.steps.values()) {
    step.models.forEach((span, index) => model.bars.push({
      key: `${prefix}m${step.number}.${index}`,
      label: `step ${step.number}`,
      kind: span.failed ? "bad" : "model",
      more: step.tokens?.completion === undefined ? null : `${step.tokens.completion} tokens`,
      beganAt: span.beganAt, firstAt: span.firstAt ?? span.endedAt ?? end, endedAt: span.endedAt, picks: { step: step.number },
    }));
  }
  const lanes = model.bars.length ? [model] : [];
  const tools = [];
  for (const call of trace.calls.values()) {
    const spans = call.waits.map((wait, index) => ({
      key: `${prefix}w${call.id}.${index}`, label: `${call.tool} waits`, kind: "wait",
      beganAt: wait.beganAt, endedAt: wait.endedAt, picks: { call: call.id },
    }));
    if (call.beganAt !== null) {
      spans.push({
        key: `${prefix}c${call.id}`, label: call.tool, kind: call.state === "failed" ? "bad" : "tool",
        took: call.usage && call.endedAt !== null ? call.usage.duration_us / 1000 : null,
        beganAt: call.beganAt, endedAt: call.endedAt, picks: { call: call.id },
      });
    }
    if (!spans.length) continue;
    const begins = spans[0].beganAt;
    let lane = tools.find((candidate) => candidate.until <= begins && !call.sub && !candidate.inner.length);
    if (!lane) {
      lane = { key: `${prefix}t${tools.length}`, label: depth ? "tools" : "Tools", depth, bars: [], inner: [], until: 0 };
      tools.push(lane);
    }
    lane.bars.push(...spans);
    lane.until = spans.at(-1).endedAt ?? Infinity;
    if (call.sub) {
      lane.label = call.tool;
      lane.inner.push(...lanesOf(call.sub, end, depth + 1, `${prefix}${call.id}/`));
    }
  }
  tools.forEach((lane, index) => {
    if (index > 0 && lane.label.toLowerCase() === "tools") lane.label = "";
    lanes.push(lane, ...lane.inner);
  });
  return lanes;
}

/** Three to six round numbers from 0 to `length` milliseconds, with room for the last one's text. */
export function ticks(length) {
  const rough = length / 6;
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough) ?? power;
  const found = [];
  for (let ms = 0; ms <= length * 0.85 && found.length < 12; ms += step) found.push(ms);
  return found;
}
