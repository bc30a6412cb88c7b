// Elements from data. Texts become text nodes: there is no way from a text to markup here.

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
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/** Characters that could hide or reorder other text: controls, marks of direction, zero width, tags. Joiners of emoji stay. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\udb40-\udb43][\udc00-\udfff]/g;

/** A text with such characters as their escapes in JSON. Every text node passes here. */
export function escaped(text) {
  const escape = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return text.replace(HIDDEN, (found) => found.split("").map(escape).join(""));
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(escaped(String(child))));
  }
}

/** Puts `children` in the place of what `element` holds. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

export function setText(element, text) {
  const shown = escaped(text);
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
  said.textContent = escaped(error?.message ?? String(error));
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
