// All runs, the newest first, and a new one.

import { begin, get } from "./api.js";
import { action, empty, failed, fill, h, prose } from "./dom.js";
import { count, duration, endedWell, ending, oneLine, time, when } from "./format.js";

const PAGE = 50;

export function runsPage({ signal }) {
  const list = h("div", { class: "rows" });
  const more = h("div", { class: "buttons" });
  let older = [];
  let newest = [];
  const draw = () => {
    const all = [...newest, ...older];
    if (!all.length) fill(list, empty("No runs yet", "Give an agent a task above, or POST one to /v1/agent."));
    else fill(list, all.map(row));
    const isFull = (older.length || newest.length) >= PAGE;
    fill(more, isFull ? action("Older runs", async () => {
      const { runs } = await get(`/v1/runs?limit=${PAGE}&before=${all.at(-1).id}`, { signal });
      older = [...older, ...runs];
      draw();
      if (runs.length < PAGE) fill(more);
    }) : null);
  };
  let drawn = "";
  const look = async () => {
    try {
      const { runs } = await get(`/v1/runs?limit=${PAGE}`, { signal });
      const text = JSON.stringify(runs);
      // What is drawn anew loses the focus.
      if (text === drawn) return;
      drawn = text;
      const known = new Set(older.map((run) => run.id));
      // A run that was on the first page and is not any longer has not gone.
      const left = newest.filter((run) => !runs.some((now) => now.id === run.id) && older.length && !known.has(run.id));
      older = [...left, ...older];
      newest = runs;
      const held = document.activeElement?.getAttribute?.("href");
      draw();
      if (held) list.querySelector(`a[href="${CSS.escape(held)}"]`)?.focus();
    } catch (error) {
      if (!signal.aborted && !drawn) fill(list, failed(error, look));
    }
  };
  fill(list, h("p", { class: "dim pad" }, "Loading…"));
  look();
  const timer = setInterval(() => document.hidden || look(), 4_000);
  signal.addEventListener("abort", () => clearInterval(timer));
  return h("div", {}, h("div", { class: "page-head" }, h("h1", {}, "Runs")), newRun(signal), list, more);
}

function row(run) {
  const tone = run.state === "done" ? (endedWell(run.reason) ? "good" : "bad") : { waiting: "warn", parked: "dim" }[run.state] ?? "live";
  const said = run.state === "done" ? ending(run.reason) : { waiting: "waits for a decision", parked: "parked" }[run.state] ?? run.state;
  const facts = [run.calls === undefined ? null : `${count(run.calls)} ${run.calls === 1 ? "call" : "calls"}`, run.tokens === undefined ? null : `${count(run.tokens)} tokens`,
    run.ended_ms === undefined ? null : duration(run.ended_ms - run.began_ms)].filter(Boolean);
  return h("a", { class: "row", href: `#/runs/${run.id}` },
    h("span", { class: `dot ${tone}`, "aria-hidden": "true" }),
    h("span", { class: "row-title" }, prose(oneLine(run.task) || "a plan"), run.turn > 0 ? h("span", { class: "dim" }, ` · turn ${run.turn + 1}`) : null),
    h("span", { class: "row-state" }, said),
    h("span", { class: "row-facts" }, [run.agent, ...facts].join(" · ")),
    h("time", { class: "row-when", datetime: new Date(run.began_ms).toISOString(), title: time(run.began_ms) }, when(run.began_ms)));
}

/** Agents to choose from; the last that was chosen is chosen again. */
export function agentSelect(signal, attributes = {}) {
  const select = h("select", { "aria-label": "Agent", ...attributes });
  get("/v1/models", { signal }).then(({ data }) => {
    fill(select, data.map((agent) => h("option", { value: agent.id, title: agent.description }, agent.id)));
    const last = sessionStorage.getItem("toolhold.agent") ?? "default";
    if (data.some((agent) => agent.id === last)) select.value = last;
    select.dispatchEvent(new Event("ready"));
  }, () => {});
  select.addEventListener("change", () => sessionStorage.setItem("toolhold.agent", select.value));
  return select;
}

function newRun(signal) {
  const agent = agentSelect(signal);
  const task = h("textarea", { rows: 2, "aria-label": "Task", placeholder: "A task for an agent…", required: true });
  const start = action("Run", async () => {
    if (!task.value.trim()) {
      task.focus();
      return;
    }
    const run = await begin("/v1/agent", { agent: agent.value || undefined, messages: [{ role: "user", content: task.value }] });
    location.hash = `#/runs/${run}`;
  }, { class: "primary" });
  task.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) start.click();
  });
  return h("form", { class: "panel composer", "data-problems": true, onsubmit: (event) => event.preventDefault() },
    task, h("div", { class: "buttons" }, agent, h("span", { class: "grow hint" }, "Ctrl+Enter runs it"), start));
}
