// The description of the API for people: /openapi.json as a page.

import { get } from "./api.js";
import { empty, failed, fill, fold, h } from "./dom.js";
import { text } from "./json.js";
import { bodyOf, bounds, parts, shellCommand, typeOf, whole } from "./openapi.js";

const main = document.getElementById("main");
const nav = document.getElementById("nav");

async function show() {
  try {
    const description = await get("/openapi.json");
    page(description);
    reveal();
  } catch (error) {
    fill(main, failed(error, show));
  }
}

function page(description) {
  const shown = parts(description).map(({ tag, operations }) => {
    const cards = operations.map((operation) => ({ operation, element: card(description, operation) }));
    const element = h("section", { class: "docs-part", "aria-labelledby": `part-${tag}` },
      h("h2", { id: `part-${tag}` }, tag), cards.map((it) => it.element));
    return { tag, cards, element };
  });
  const none = empty("Nothing is called like that");
  none.hidden = true;
  const filter = h("input", { type: "search", "aria-label": "Find", placeholder: "Find a path, or what it does", oninput: () => {
    const wanted = filter.value.trim().toLowerCase();
    for (const part of shown) {
      for (const { operation, element } of part.cards) element.hidden = !says(operation).includes(wanted);
      part.element.hidden = part.cards.every((it) => it.element.hidden);
    }
    none.hidden = shown.some((part) => !part.element.hidden);
  } });
  fill(nav, shown.map(({ tag }) => h("a", { href: `#part-${tag}` }, tag)));
  fill(main,
    h("div", { class: "page-head" }, h("h1", {}, "API"), h("a", { href: "/openapi.json" }, "openapi.json")),
    h("p", { class: "docs-intro" }, "Keys go with every request, as ", h("code", {}, "Authorization: Bearer KEY"),
      ", where the server requires one. Errors have the form of OpenAI’s API: ", h("code", {}, '{"error": {"message": …, "type": …}}'), "."),
    h("div", { class: "docs-find" }, filter), shown.map((part) => part.element), none);
}

function says({ method, path, operation }) {
  return `${method} ${path} ${operation.summary ?? ""} ${operation.description ?? ""}`.toLowerCase();
}

function card(description, shown) {
  const { id, method, path, operation } = shown;
  const summary = [h("span", { class: `docs-method docs-${method.toLowerCase()}` }, method),
    h("span", { class: "card-name docs-path" }, path), h("span", { class: "card-brief" }, prose(operation.summary ?? ""))];
  const element = fold(summary, () => content(description, shown), { class: "panel card docs-operation" });
  element.id = id;
  element.addEventListener("toggle", () => {
    if (element.open && location.hash !== `#${id}`) history.replaceState(null, "", `#${id}`);
  });
  return element;
}

function content(description, shown) {
  const { operation } = shown;
  const body = bodyOf(operation);
  const types = Object.keys(operation.requestBody?.content ?? {});
  return [
    operation.description ? h("p", { class: "docs-says" }, prose(operation.description)) : null,
    operation.parameters?.length
      ? h("section", {}, h("h3", {}, "Parameters"), h("dl", { class: "docs-fields" },
        operation.parameters.map((it) => field(description, it.name, { ...it.schema, description: it.description }, it.required, it.in)))) : null,
    body ? h("section", {}, h("h3", {}, "Body"), h("p", { class: "hint" }, types.join(" or ")), schemaView(description, body.schema)) : null,
    h("section", {}, h("h3", {}, "Answers"), Object.entries(operation.responses ?? {}).map(([status, answer]) => response(description, status, answer))),
    h("section", {}, h("h3", {}, "At a shell"), text(shellCommand(description, location.origin, shown))),
  ];
}

function response(description, status, answer) {
  const [[type, { schema } = {}] = []] = Object.entries(answer.content ?? {});
  const brief = [h("span", { class: `pill ${status.startsWith("2") || status.startsWith("1") ? "good" : "bad"}` }, status), " ",
    answer.description ? prose(answer.description) : null, type ? ` ${type}${schema?.$ref ? ` · ${typeOf(description, schema)}` : ""}` : null];
  if (!schema) return h("p", { class: "docs-answer" }, brief);
  return fold(brief, () => schemaView(description, schema), { class: "fold docs-answer" });
}

/** What a schema says: its fields, each with what is inside of it when one looks. */
function schemaView(description, schema) {
  const { description: says, properties, required = [], oneOf, anyOf } = whole(description, schema);
  const choices = oneOf ?? anyOf;
  return h("div", { class: "docs-schema" },
    says ? h("p", { class: "docs-says" }, prose(says)) : null,
    choices ? h("ul", { class: "docs-choices" }, choices.map((choice) => h("li", {},
      h("span", { class: "docs-type" }, typeOf(description, choice)), hasInside(description, choice) ? schemaView(description, choice) : null))) : null,
    properties ? h("dl", { class: "docs-fields" },
      Object.entries(properties).map(([name, inner]) => field(description, name, inner, required.includes(name)))) : null,
    !choices && !properties ? h("p", { class: "docs-type" }, typeOf(description, schema)) : null);
}

function field(description, name, schema, isRequired, place) {
  const { description: says, items } = whole(description, schema);
  const inside = items && [schema.type].flat().includes("array") ? items : schema;
  return [
    h("dt", {}, h("code", {}, name), h("span", { class: "docs-type" }, typeOf(description, schema)),
      place ? h("span", { class: "tag" }, place) : null, isRequired ? h("span", { class: "tag docs-needed" }, "needed") : null),
    h("dd", {}, says ? h("p", {}, prose(says)) : null, bounds(schema) ? h("p", { class: "hint" }, bounds(schema)) : null,
      hasInside(description, inside) ? fold("What is inside", () => schemaView(description, inside)) : null),
  ];
}

function hasInside(description, schema) {
  const { properties, oneOf, anyOf } = whole(description, schema);
  return Boolean(properties && Object.keys(properties).length) || [...(oneOf ?? anyOf ?? [])].some((choice) => choice.$ref || choice.properties);
}

/** A text whose `code` is set as such. */
function prose(words) {
  return words.split("`").map((piece, index) => (index % 2 ? h("code", {}, piece) : piece));
}

/** Shows what the address names. */
function reveal() {
  const element = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!element || element === main) return;
  if (element.tagName === "DETAILS") element.open = true;
  element.scrollIntoView();
}

addEventListener("hashchange", reveal);
show();
