// Saved Requests: each with a form of what it takes.

import { begin, get } from "./api.js";
import { action, empty, failed, fill, fold, h } from "./dom.js";
import { formOf } from "./form.js";
import { shown } from "./json.js";
import { agentSelect } from "./runs.js";

export function requestsPage({ parameters: [chosen], signal }) {
  const body = h("div", { class: "stack" });
  const look = async () => {
    try {
      const { requests } = await get("/v1/requests", { signal });
      if (!requests.length) {
        fill(body, empty("No saved Requests", "Files of the requests folder (requests.folder) appear here: each a context and a schema, and a form of its input."));
        return;
      }
      fill(body, requests.map((request) => card(request, requests.length === 1 || request.name === chosen, signal)));
    } catch (error) {
      if (!signal.aborted) fill(body, failed(error, look));
    }
  };
  look();
  return h("div", {}, h("div", { class: "page-head" }, h("h1", {}, "Requests")), body);
}

function card(request, isOpen, signal) {
  const summary = [h("span", { class: "card-name" }, request.name), h("span", { class: "card-brief" }, request.error ?? request.description)];
  if (request.error) return h("div", { class: "panel card broken" }, h("div", { class: "card-head" }, summary));
  return fold(summary, () => content(request, signal), { class: "panel card", open: isOpen });
}

function content(request, signal) {
  const form = request.input ? formOf(request.input) : null;
  const agent = agentSelect(signal);
  const own = request.has_input && form ? h("input", { type: "checkbox", id: `own-${request.name}`, checked: true }) : null;
  const fields = form ? h("fieldset", { class: "plain", disabled: own !== null }, form.element) : null;
  own?.addEventListener("change", () => (fields.disabled = own.checked));
  const element = h("form", { "data-problems": true, onsubmit: (event) => event.preventDefault() },
    own ? h("label", { class: "check" }, own, " With the input that the file holds") : null,
    fields ?? h("p", { class: "dim" }, "This Request takes no input."),
    request.output ? fold("What it answers", () => shown(request.output)) : null,
    h("div", { class: "buttons" }, agent, h("span", { class: "grow" }), action("Run", async () => {
      if (!own?.checked && !element.reportValidity()) return;
      const input = form && !own?.checked ? form.read() : undefined;
      const run = await begin(`/v1/requests/${encodeURIComponent(request.name)}`, { input, agent: agent.value || undefined });
      location.hash = `#/runs/${run}`;
    }, { class: "primary" })));
  return element;
}
