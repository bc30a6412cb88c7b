// Modules: what each offers, what it may do, and the form by which a person approves one that is new or changed.

import { get, post } from "./api.js";
import { shownDiff } from "./diff.js";
import { action, dialog, empty, failed, fill, fold, h } from "./dom.js";
import { formOf } from "./form.js";
import { bytes, count, duration, words } from "./format.js";
import { shown, text } from "./json.js";

let limits = new Map();

/** Limits of the modules as they are now, for calls to be held against. */
export async function loadLimits(signal) {
  try {
    const { modules } = await get("/v1/modules", { signal });
    limits = new Map(modules.map((module) => [module.name, module.limits]));
  } catch {
    // A key that may not see modules sees no limits either.
  }
}

export function limitsOf(tool) {
  return limits.get(tool.split(".")[0]);
}

export function modulesPage({ parameters: [chosen], signal }) {
  const body = h("div", { class: "stack" });
  const look = async () => {
    try {
      const { modules, failed: broken } = await get("/v1/modules", { signal });
      if (!modules.length && !broken.length) {
        fill(body, empty("No modules", "Components of the modules folder (modules.folder) appear here as soon as they are there."));
        return;
      }
      const waiting = modules.filter((module) => module.standing?.state === "pending");
      const rest = modules.filter((module) => module.standing?.state !== "pending");
      fill(body,
        [...waiting, ...rest].map((module) => card(module, chosen === slot(module), look)),
        broken.map((it) => h("div", { class: "panel card broken" }, h("div", { class: "card-head" },
          h("span", { class: "card-name" }, it.name), h("span", { class: "pill bad" }, "left out"), h("span", { class: "card-brief" }, it.error)))));
    } catch (error) {
      if (!signal.aborted) fill(body, failed(error, look));
    }
  };
  look();
  return h("div", {}, h("div", { class: "page-head" }, h("h1", {}, "Modules")), body);
}

function slot(module) {
  return module.version ? `${module.name}@${module.version}` : module.name;
}

/** A key without the scope `admin` gets only a module's name, version and tools. */
function card(module, isOpen, again) {
  const state = module.standing?.state;
  const pill = { pending: ["warn", "waits to be approved"], approved: ["good", "approved"], trusted: ["dim", "trusted"] }[state] ?? ["dim", state ?? "ready"];
  const summary = [h("span", { class: "card-name" }, module.name), module.version ? h("span", { class: "dim" }, module.version) : null,
    h("span", { class: `pill ${pill[0]}` }, pill[1]),
    h("span", { class: "card-brief" }, `${module.tools.length} ${module.tools.length === 1 ? "tool" : "tools"}${grants(module)}`)];
  const details = fold(summary, () => content(module), { class: "panel card", open: isOpen });
  details.dataset.module = module.name;
  if (state !== "pending") return details;
  return h("div", { class: "pending-module" }, details, h("div", { class: "buttons", "data-problems": true },
    h("span", { class: "dim grow" }, `${changes(module)} since it was approved; its tools are disabled until somebody looks at it.`),
    action("Look and approve…", async () => {
      // What is shown is what is there now, and its digest and grant are what is approved.
      const now = await get(`/v1/modules/${encodeURIComponent(slot(module))}`);
      if (await dialog(`Approve ${slot(now)}?`, (close) => approveForm(now, close))) again();
    }, { class: "primary" })));
}

function grants({ may }) {
  if (!may) return "";
  return may.length ? ` · ${may.length} ${may.length === 1 ? "grant" : "grants"}` : " · computes only";
}

function changes(module) {
  const many = module.standing.changes.length;
  return many === 1 ? "One change" : `${many} changes`;
}

function approveForm(module, close) {
  const list = module.standing.state === "pending" ? module.standing.changes : [];
  return h("div", { class: "approve", "data-problems": true },
    h("section", {}, h("h3", {}, "What it may do"), may(module)),
    h("section", {}, h("h3", {}, "What changed"), list.length ? list.map((change) => h("div", { class: "change" },
      h("h4", {}, change.what, change.before === null ? h("span", { class: "tag" }, "new") : change.after === null ? h("span", { class: "tag" }, "gone") : null),
      shownDiff(change.before, change.after))) : h("p", { class: "dim" }, "Nothing.")),
    h("p", { class: "dim digest" }, "SHA-256 ", h("code", {}, module.digest)),
    h("div", { class: "buttons sticky" }, h("span", { class: "grow" }),
      h("button", { type: "button", onclick: () => close(false) }, "Not now"),
      action("Approve as it is", async () => {
        await post(`/v1/modules/${encodeURIComponent(slot(module))}/approve`, { digest: module.digest, etag: module.etag });
        close(true);
      }, { class: "primary" })));
}

function may(module) {
  return h("ul", { class: "may" }, h("li", {}, "compute, within its limits, on what it is given in a call"),
    module.may.length ? module.may.map((sentence) => h("li", { class: "granted" }, sentence))
      : h("li", { class: "dim" }, "nothing else: no files, no variables, no network, no other tools"));
}

const UNITS = { timeout_ms: duration, list_tools_ms: duration, compile_ms: duration, fuel: count };

function content(module) {
  const limit = ([name, value]) => h("div", { class: "fact" }, h("dt", {}, words(name)),
    h("dd", {}, (UNITS[name] ?? (name.endsWith("_bytes") ? bytes : count))(value)));
  const wishes = Object.entries(module.asks_for ?? {}).filter(([, value]) => value && (Array.isArray(value) ? value.length : Object.keys(value).length));
  if (!module.limits) return [h("section", {}, h("h3", {}, "Tools"), module.tools.map(tool))];
  return [
    h("section", {}, h("h3", {}, "What it may do"), may(module)),
    h("section", {}, h("h3", {}, "Tools"), module.tools.map(tool),
      (module.refused ?? []).map((it) => h("p", { class: "note note-bad" }, h("span", { class: "note-kind" }, "no tool"), h("span", {}, `${it.export}: ${it.reason}`))),
      (module.notes ?? []).map((it) => h("p", { class: "note note-warn" }, h("span", { class: "note-kind" }, "note"), h("span", {}, it)))),
    wishes.length ? h("section", {}, h("h3", {}, "What it asks for"), shown(Object.fromEntries(wishes))) : null,
    fold("Limits", () => h("dl", { class: "facts" }, Object.entries(module.limits).map(limit))),
    fold("Imports", () => (module.imports.length ? shown(module.imports) : h("p", { class: "dim" }, "None."))),
    h("p", { class: "dim digest" }, `${module.origin} · ${bytes(module.bytes)} · `, h("code", {}, module.digest)),
  ];
}

function tool(spec) {
  return h("div", { class: "tool" }, h("h4", {}, spec.name), h("p", { class: "tool-says" }, spec.description),
    fold("Arguments and result", () => [shown(spec.input_schema), spec.output_schema ? shown(spec.output_schema) : null]),
    fold("Call it", () => direct(spec)));
}

/** A direct call, under the same limits and decision rules as an agent's. */
function direct(spec) {
  const form = formOf(spec.input_schema);
  const result = h("div", { "aria-live": "polite" });
  const element = h("form", { "data-problems": true, onsubmit: (event) => event.preventDefault() }, form.element,
    h("div", { class: "buttons" }, action("Call", async () => {
      if (!element.reportValidity()) return;
      fill(result, h("p", { class: "dim" }, "Calling…"));
      try {
        const made = await post(`/v1/tools/${encodeURIComponent(spec.name)}`, { arguments: form.read() ?? {} });
        fill(result, h("p", { class: "dim" }, `${made.error ? "It failed" : "Its result"} after ${duration(made.duration_ms)} · `, h("a", { href: `#/runs/${made.run}` }, "the record")),
          made.error ? text(made.error) : shown(made.result));
      } catch (error) {
        fill(result);
        throw error;
      }
    })), result);
  return element;
}
