// JSON as a tree that can be folded, and as one line.

import { exact, fold, h, prose } from "./dom.js";
import { ExactNumber, stringify } from "./exact.js";
import { oneLine } from "./format.js";

/** Deeper and longer than this is shown when asked for. */
const OPEN_DEPTH = 3;
const MOST = 200;
const LONG = 4_000;

/** A value as a person reads it; a text as text. */
export function shown(value) {
  if (typeof value === "string" && (value.includes("\n") || value.length > 80)) return text(value);
  return h("div", { class: "json", tabindex: "0" }, tree(value, 0));
}

/** A text of any length that no person decides about. */
export function text(value) {
  if (value.length <= LONG) return h("pre", { class: "text", tabindex: "0" }, prose(value));
  const rest = fold(`${value.length - LONG} more characters`, () => h("pre", { class: "text" }, prose(value.slice(LONG))));
  return h("div", {}, h("pre", { class: "text", tabindex: "0" }, prose(value.slice(0, LONG))), rest);
}

/** In one line, for the head of a call. */
export function preview(value, most = 120) {
  if (value === undefined) return "";
  if (typeof value === "string") return oneLine(value, most);
  if (value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof ExactNumber)) {
    const parts = [];
    let length = 0;
    for (const [name, inner] of Object.entries(value)) {
      const part = `${name}: ${oneLine(stringify(inner) ?? "", most)}`;
      length += part.length;
      parts.push(part);
      if (length > most) break;
    }
    return oneLine(parts.join(", "), most);
  }
  return oneLine(stringify(value) ?? "", most);
}

function tree(value, depth) {
  if (value === null) return h("span", { class: "j-null" }, "null");
  if (typeof value === "string") {
    if (value.length > LONG) return text(exact(value));
    return h("span", { class: "j-string" }, JSON.stringify(value));
  }
  if (typeof value !== "object" || value instanceof ExactNumber) return h("span", { class: "j-number" }, String(value));
  const isList = Array.isArray(value);
  const entries = isList ? value.map((inner, index) => [index, inner]) : Object.entries(value);
  if (!entries.length) return h("span", { class: "j-null" }, isList ? "[]" : "{}");
  const rows = () => [
    ...entries.slice(0, MOST).map(([name, inner]) =>
      h("div", { class: "j-row" },
        h("span", { class: isList ? "j-index" : "j-name" }, isList ? String(name) : name), tree(inner, depth + 1))),
    entries.length > MOST
      ? fold(`${entries.length - MOST} more`, () => tree(isList ? value.slice(MOST) : Object.fromEntries(entries.slice(MOST)), depth))
      : null,
  ];
  if (depth === 0) return h("div", { class: "j-rows" }, rows());
  const brief = isList ? `[ ${entries.length} ]` : `{ ${oneLine(entries.map(([name]) => name).join(", "), 48)} }`;
  return fold(brief, () => h("div", { class: "j-rows" }, rows()),
    { class: "j-fold", open: depth < OPEN_DEPTH && entries.length <= 40 });
}
