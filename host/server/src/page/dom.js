// Elements from data. Texts become text nodes: there is no way from a text to markup here.

import { staying } from "./characters.js";

/** An element with attributes, listeners (`onclick`) and properties of the form `.name`. */
export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same of SVG. */
export function s(tag, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith(".")) element[name.slice(1)] = value;
    else if (READ.includes(name)) element.setAttribute(name, exact(String(value)));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/** Characters that could hide or reorder other text. Written from the host's table by its test, with TOOLHOLD_UPDATE=1. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ue000-\uf8ff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc\ufffe-\uffff]|\ud80d[\udc30-\udc3f]|\ud81b\udfe4|\ud82f[\udca0-\udca3]|\ud834\udd59|\ud834[\udd73-\udd7a]|\ud83f[\udffe-\udfff]|\ud87f[\udffe-\udfff]|\ud8bf[\udffe-\udfff]|\ud8ff[\udffe-\udfff]|\ud93f[\udffe-\udfff]|\ud97f[\udffe-\udfff]|\ud9bf[\udffe-\udfff]|\ud9ff[\udffe-\udfff]|\uda3f[\udffe-\udfff]|\uda7f[\udffe-\udfff]|\udabf[\udffe-\udfff]|\udaff[\udffe-\udfff]|\udb3f[\udffe-\udfff]|[\udb40-\udb43][\udc00-\udfff]|\udb7f[\udffe-\udfff]|[\udb80-\udbff][\udc00-\udfff]/g;

/** A text with such characters as their escapes in JSON: what a person decides about. Every text node passes here but for those of `prose`. */
export function exact(text) {
  return text.replace(HIDDEN, escapes);
}

function escapes(found) {
  const escape = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return found.split("").map(escape).join("");
}

/** A text that no person decides about, such as an answer: joiners and selectors that its language or its emoji call for stay. */
export function readable(text) {
  if (text.search(HIDDEN) < 0) return text;
  const all = Array.from(text);
  let out = "";
  let before = "";
  for (let at = 0; at < all.length; at++) {
    const c = all[at];
    const shown = exact(c);
    const count = shown === c ? 1 : staying(all, at, before);
    if (count === 0) {
      out += shown;
      before = "";
      continue;
    }
    out += all.slice(at, at + count).join("");
    at += count - 1;
    before = all[at];
  }
  return out;
}

/** The text node of a readable text. */
export function prose(text) {
  return document.createTextNode(readable(String(text)));
}

/** Attributes that a person reads. */
const READ = ["title", "aria-label", "placeholder"];

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(exact(String(child))));
  }
}

/** Puts `children` in the place of what `element` holds. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

export function setText(element, text) {
  setShown(element, exact(text));
}

/** As `setText`, for a text that no person decides about. */
export function setProse(element, text) {
  setShown(element, readable(text));
}

function setShown(element, shown) {
  if (element.textContent !== shown) element.textContent = shown;
}

/** What is made only when it is opened first. */
export function fold(summary, make, options = {}) {
  const body = h("div", { class: "fold-body" });
  let made = false;
  const details = h("details", { class: options.class ?? "fold", open: options.open },
    h("summary", {}, summary), body);
  const open = () => {
    if (made || !details.open) return;
    made = true;
    append(body, [make()]);
  };
  details.addEventListener("toggle", open);
  open();
  return details;
}

/** A button whose action may take a while: it cannot be pressed twice, and says what went wrong. */
export function action(label, act, attributes = {}) {
  const button = h("button", { type: "button", ...attributes }, label);
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await act(button);
    } catch (error) {
      problem(button, error);
    } finally {
      button.disabled = false;
    }
  });
  return button;
}

/** Says beside `element` what went wrong. */
export function problem(element, error) {
  const place = element.closest("[data-problems]") ?? element.parentElement;
  let said = place?.querySelector(":scope > .problem");
  if (!said) {
    said = h("p", { class: "problem", role: "alert" });
    place?.append(said);
  }
  said.textContent = exact(error?.message ?? String(error));
}

export function noProblem(element) {
  const place = element.closest("[data-problems]") ?? element.parentElement;
  place?.querySelector(":scope > .problem")?.remove();
}

export function empty(title, ...more) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), more.length ? h("p", {}, more) : null);
}

export function failed(error, again) {
  return h("div", { class: "empty failed", role: "alert" },
    h("p", { class: "empty-title" }, "This could not be loaded"),
    h("p", {}, error?.message ?? String(error)),
    again ? h("button", { type: "button", onclick: again }, "Try again") : null);
}

/** A modal dialog. `make(close)` gives its content; resolves with what `close` was given. */
export function dialog(title, make) {
  return new Promise((resolve) => {
    let result;
    const box = h("dialog", { "aria-label": title });
    const close = (value) => {
      result = value;
      box.close();
    };
    box.append(h("h2", {}, title));
    append(box, [make(close)]);
    box.addEventListener("close", () => {
      box.remove();
      resolve(result);
    });
    document.body.append(box);
    box.showModal();
  });
}
