// A form from a JSON Schema. What has no field of its own is written as JSON; the server checks all of it.

import { exact, fill, h } from "./dom.js";
import { parse, stringify } from "./exact.js";

const MAX_DEPTH = 6;
let made = 0;

/** `{element, read}`: `read()` gives the value, or throws what is wrong with it. */
export function formOf(schema, value) {
  const whole = field(schema ?? {}, value, { root: schema ?? {}, depth: 0, label: null, isRequired: true });
  const place = h("div", {}, whole.element);
  let current = whole;
  let isJson = false;
  const toggle = h("button", { type: "button", class: "link", onclick: () => {
    let now;
    try {
      now = current.read();
    } catch {
      now = undefined;
    }
    isJson = !isJson;
    current = isJson ? jsonField(now ?? {}, { label: "Input as JSON", isRequired: true })
      : field(schema ?? {}, now, { root: schema ?? {}, depth: 0, label: null, isRequired: true });
    fill(place, current.element);
    toggle.textContent = isJson ? "As a form" : "As JSON";
  } }, "As JSON");
  return { element: h("div", { class: "form" }, place, toggle), read: () => current.read() };
}

function field(given, value, context) {
  const schema = resolved(given, context.root);
  const own = value ?? schema.default ?? schema.examples?.[0];
  const kind = Array.isArray(schema.type) ? schema.type.find((type) => type !== "null") : schema.type;
  if (schema.const !== undefined) return { element: null, read: () => schema.const };
  if (Array.isArray(schema.enum)) return choice(schema, value ?? schema.default, context);
  if (context.depth < MAX_DEPTH) {
    if (kind === "object" && schema.properties) return group(schema, value ?? schema.default, context);
    if (kind === "array" && schema.items && !Array.isArray(schema.items)) return list(schema, value ?? schema.default, context);
  }
  if (kind === "boolean") return checkbox(schema, own, context);
  if (kind === "integer" || kind === "number") return number(schema, kind, own, context);
  if (kind === "string") return string(schema, own, context);
  return jsonField(own, context, schema);
}

/** `#/$defs/…` within the schema. */
function resolved(schema, root, hops = 0) {
  if (typeof schema !== "object" || schema === null) return {};
  if (typeof schema.$ref !== "string" || !schema.$ref.startsWith("#/") || hops > 16) return schema;
  let found = root;
  for (const name of schema.$ref.slice(2).split("/")) found = found?.[name.replaceAll("~1", "/").replaceAll("~0", "~")];
  return resolved({ ...found, ...Object.fromEntries(Object.entries(schema).filter(([name]) => name !== "$ref")) }, root, hops + 1);
}

function labelled(schema, { label, isRequired }, input) {
  const id = `field-${(made += 1)}`;
  input.id = id;
  const more = schema?.description ? h("p", { class: "hint", id: `${id}-hint` }, schema.description) : null;
  if (more) input.setAttribute("aria-describedby", more.id);
  if (label === null) input.setAttribute("aria-label", exact(schema?.title ?? "Input"));
  return h("div", { class: "field" },
    label === null ? null : h("label", { for: id }, schema?.title ?? label, isRequired ? h("span", { class: "required", title: "required" }, " *") : null), more, input);
}

function missing({ label }) {
  return new Error(`${label ?? "The input"} is needed.`);
}

function string(schema, value, context) {
  const isLong = (schema.maxLength ?? 1e9) > 200 && !schema.format && !schema.pattern;
  const kinds = { date: "date", email: "email", uri: "url", time: "time" };
  const input = isLong ? h("textarea", { rows: 1, class: "grows" })
    : h("input", { type: kinds[schema.format] ?? "text", pattern: schema.pattern, minlength: schema.minLength, maxlength: schema.maxLength });
  input.value = value ?? "";
  if (schema.minLength > 0) input.required = context.isRequired;
  return { element: labelled(schema, context, input), read: () => {
    if (input.value === "" && !context.isRequired) return undefined;
    return input.value;
  } };
}

function number(schema, kind, value, context) {
  const input = h("input", { type: "number", min: schema.minimum, max: schema.maximum, step: schema.multipleOf ?? (kind === "integer" ? 1 : "any"), required: context.isRequired });
  input.value = value ?? "";
  return { element: labelled(schema, context, input), read: () => {
    if (input.value === "") {
      if (context.isRequired) throw missing(context);
      return undefined;
    }
    return Number(input.value);
  } };
}

function checkbox(schema, value, context) {
  const input = h("input", { type: "checkbox" });
  input.checked = Boolean(value);
  const element = labelled(schema, { ...context, isRequired: false }, input);
  element.classList.add("check");
  return { element, read: () => input.checked };
}

function choice(schema, value, context) {
  const options = context.isRequired ? schema.enum : [undefined, ...schema.enum];
  const select = h("select", {}, options.map((option, index) => h("option", { value: index }, option === undefined ? "–" : typeof option === "string" ? option : JSON.stringify(option))));
  const at = options.findIndex((option) => JSON.stringify(option) === JSON.stringify(value));
  if (at >= 0) select.value = String(at);
  return { element: labelled(schema, context, select), read: () => options[Number(select.value)] };
}

function group(schema, value, context) {
  // Of a group that may be left out nothing is needed; the server says so if half of it is there.
  const required = new Set(context.isRequired ? schema.required ?? [] : []);
  const fields = Object.entries(schema.properties).map(([name, inner]) => [name,
    field(inner, value?.[name], { ...context, depth: context.depth + 1, label: name, isRequired: required.has(name) })]);
  const elements = fields.map(([, it]) => it.element);
  const element = context.label === null ? h("div", { class: "fields" }, elements)
    : h("fieldset", {}, h("legend", {}, schema.title ?? context.label), schema.description ? h("p", { class: "hint" }, schema.description) : null, elements);
  return { element, read: () => {
    const object = {};
    for (const [name, it] of fields) {
      const own = it.read();
      if (own !== undefined) object[name] = own;
    }
    const isLeftOut = Object.values(object).every((own) => own === false);
    return context.isRequired || !isLeftOut ? object : undefined;
  } };
}

function list(schema, value, context) {
  const items = [];
  const rows = h("div", { class: "list" });
  const add = (own) => {
    const it = field(schema.items, own, { ...context, depth: context.depth + 1, label: `${context.label ?? "Item"} ${items.length + 1}`, isRequired: true });
    const row = h("div", { class: "list-row" }, it.element, h("button", { type: "button", class: "link", "aria-label": "Remove", onclick: () => {
      items.splice(items.indexOf(it), 1);
      row.remove();
    } }, "Remove"));
    items.push(it);
    rows.append(row);
  };
  for (const own of Array.isArray(value) ? value : []) add(own);
  for (let least = items.length; least < Math.min(schema.minItems ?? 0, 20); least++) add();
  const element = h("fieldset", {}, h("legend", {}, schema.title ?? context.label ?? "Items"),
    schema.description ? h("p", { class: "hint" }, schema.description) : null, rows,
    h("button", { type: "button", onclick: () => add() }, "Add"));
  return { element, read: () => (items.length || context.isRequired ? items.map((it) => it.read()) : undefined) };
}

function jsonField(value, context, schema) {
  const area = h("textarea", { class: "code", rows: 5, spellcheck: "false" });
  area.value = value === undefined ? "" : exact(stringify(value, 2));
  return { element: labelled(schema, context, area), read: () => {
    if (!area.value.trim()) {
      if (context.isRequired) throw missing(context);
      return undefined;
    }
    try {
      return parse(area.value);
    } catch (error) {
      throw new Error(`${context.label ?? "The input"} is no JSON: ${error.message}`);
    }
  } };
}
