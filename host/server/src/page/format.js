// Numbers and times as people read them.

export function duration(ms) {
  if (ms === undefined || ms === null || !Number.isFinite(ms)) return "–";
  if (ms < 1) return `${Math.max(1, Math.round(ms * 1000))} µs`;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

export function count(number) {
  if (number === undefined || number === null) return "–";
  const text = String(Math.round(number));
  return text.replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** 1 234 567 → 1.2 M */
export function short(number) {
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (number >= size) return `${(number / size).toFixed(number < 10 * size ? 1 : 0)} ${unit}`;
  }
  return String(number);
}

export function bytes(number) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (number >= size) return `${(number / size).toFixed(number < 10 * size ? 1 : 0)} ${unit}`;
  }
  return `${number} B`;
}

/** How much of a limit was used: "0.02 %" */
export function share(used, limit) {
  const percent = (100 * used) / limit;
  if (percent === 0) return "0 %";
  if (percent < 0.01) return "< 0.01 %";
  return `${percent < 1 ? percent.toFixed(2) : percent < 10 ? percent.toFixed(1) : Math.round(percent)} %`;
}

export function cost(nano) {
  return (nano / 1e9).toPrecision(3);
}

export function time(ms) {
  return new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

/** Today only the time, else the day as well. */
export function when(ms) {
  const at = new Date(ms);
  const clock = at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
  if (at.toDateString() === new Date().toDateString()) return clock;
  return `${at.toLocaleDateString(undefined, { day: "numeric", month: "short" })} ${clock}`;
}

/** snake_case → words */
export function words(name) {
  return String(name).replaceAll("_", " ");
}

export function oneLine(text, most = 160) {
  const line = String(text).replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

const REASONS = {
  output: "answered", max_steps: "step limit", token_budget: "token limit", max_cost: "cost limit",
  max_tool_calls: "call limit", tool_calls: "calls are the client's", model: "model failed", unusable: "unusable replies",
};

/** Whether a run ended as it should. */
export function endedWell(reason) {
  return ["output", "planned", "tool_calls"].includes(reason);
}

/** Why a run is over. */
export function ending(reason) {
  return REASONS[reason] ?? words(reason);
}
