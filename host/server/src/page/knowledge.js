// Knowledge: collections of documents, adding to them, and the search for passages.

import { get, post, put, remove, upload } from "./api.js";
import { action, dialog, empty, failed, fill, fold, h, prose, setText } from "./dom.js";
import { bytes, count, time, when } from "./format.js";

const PAGE = 50;
const PASSAGES = 20;

export function knowledgePage({ parameters: [chosen], signal }) {
  const body = h("div", { class: "stack" });
  const look = async () => {
    try {
      const { collections } = await get("/v1/knowledge/collections", { signal });
      if (!collections.length) fill(body, empty("No collections", "Create one below, and add documents to it: texts and Markdown."));
      else fill(body, search(collections), collections.map((it) => card(it, collections.length === 1 || it.name === chosen, look, signal)));
    } catch (error) {
      if (!signal.aborted) fill(body, failed(error, look));
    }
  };
  look();
  return h("div", {}, h("div", { class: "page-head" }, h("h1", {}, "Knowledge")), body, newCollection(look));
}

const of = (name) => `/v1/knowledge/collections/${encodeURIComponent(name)}`;

const many = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;

/** A label and its input, which is below it. */
function field(label, input) {
  return h("label", { class: "field" }, h("span", {}, label), input);
}

function newCollection(look) {
  const name = h("input", { type: "text", required: true, maxlength: 48, pattern: "[a-z][a-z0-9_]*", spellcheck: "false", autocomplete: "off", title: "lower case letters, digits and _, starting with a letter" });
  const form = h("form", { class: "panel knowledge-form", "data-problems": true, onsubmit: (event) => {
    event.preventDefault();
    create.click();
  } });
  const create = action("Create", async () => {
    if (!form.reportValidity()) return;
    await post("/v1/knowledge/collections", { name: name.value });
    // A field that is emptied otherwise counts as filled in wrongly.
    form.reset();
    await look();
  });
  form.append(h("h2", {}, "New collection"), field("Name", name), h("div", { class: "buttons" }, create));
  return form;
}

function search(collections) {
  const text = h("input", { type: "search", required: true, maxlength: 4000, autocomplete: "off", placeholder: "Words, or a question" });
  const within = h("select", {}, h("option", { value: "" }, "Own and accepted collections"), collections.map((it) => h("option", { value: it.name }, it.name)));
  const results = h("div", { "aria-live": "polite" });
  const form = h("form", { class: "panel knowledge-form", role: "search", "data-problems": true, onsubmit: (event) => {
    event.preventDefault();
    find.click();
  } });
  const find = action("Search", async () => {
    if (!form.reportValidity()) return;
    const found = await post("/v1/knowledge/search", { text: text.value, collections: within.value ? [within.value] : undefined, most: 10 });
    form.querySelector(":scope > .problem")?.remove();
    fill(results,
      found.passages.length ? found.passages.map(quote) : h("p", { class: "dim" }, "No passage has any of these words."),
      found.without_vectors ? h("p", { class: "dim" }, `Found by words alone: ${found.without_vectors}.`) : null);
  }, { class: "primary" });
  form.append(field("Search", text), field("In", within), h("div", { class: "buttons" }, find), results);
  return form;
}

/** A passage as a quotation, with what it is cited by. */
function quote(passage) {
  const { document } = passage;
  return h("figure", { class: "passage", "data-passage": passage.id },
    h("figcaption", {}, h("span", { class: "passage-source" }, document ? document.source : `bytes ${passage.starts} to ${passage.ends}`),
      passage.headings.length ? h("span", { class: "dim" }, prose(passage.headings.join(" › "))) : null),
    h("blockquote", {}, prose(passage.text)),
    h("p", { class: "dim digest" }, `passage ${passage.id}`, document ? [` · bytes ${passage.starts} to ${passage.ends} · ${passage.collection} · document `, h("code", {}, document.id)] : null));
}

function card(collection, isOpen, look, signal) {
  const brief = h("span", { class: "card-brief" }, facts(collection));
  const now = async () => setText(brief, facts(await get(of(collection.name), { signal })));
  const summary = [h("span", { class: "card-name" }, collection.name),
    collection.access === "own" ? null : h("span", { class: "pill" }, `${collection.offered ? "offered" : "shared"}, ${collection.access === "write" ? "may be written" : "to be read"}`),
    collection.vectors === undefined ? null : h("span", { class: "tag" }, "vectors"), brief];
  const details = fold(summary, () => content(collection, look, now, signal), { class: "panel card", open: isOpen });
  details.dataset.collection = collection.name;
  return details;
}

/** What it holds. */
function facts(collection) {
  return [many(collection.documents, "document"), many(collection.passages, "passage"), bytes(collection.bytes),
    collection.keep_days === undefined ? null : `each kept ${many(collection.keep_days, "day")}`].filter(Boolean).join(" · ");
}

function content(collection, look, now, signal) {
  const rows = h("div", { class: "documents" });
  const more = h("div", { class: "buttons" });
  const mayWrite = collection.access !== "read";
  let documents = [];
  const load = async () => {
    const before = documents.length ? `&before=${documents.at(-1).id}` : "";
    const page = (await get(`${of(collection.name)}/documents?limit=${PAGE}${before}`, { signal })).documents;
    documents = [...documents, ...page];
    if (!documents.length) fill(rows, h("p", { class: "dim" }, "No documents."));
    else fill(rows, documents.map((document) => documentRow(collection, document, mayWrite, again)));
    fill(more, page.length < PAGE ? null : action("Older documents", load));
  };
  const again = async () => {
    documents = [];
    await load();
    await now();
  };
  load().catch((error) => signal.aborted || fill(rows, failed(error, again)));
  return [
    collection.access === "own" ? null : share(collection, look),
    h("section", {}, h("h3", {}, "Documents"), rows, more),
    mayWrite ? h("section", {}, h("h3", {}, "Add"), adding(collection, again)) : null,
    collection.access === "own" ? h("div", { class: "buttons", "data-problems": true }, h("span", { class: "grow" }), action("Delete the collection…", async () => {
      const isSure = await sure(`Delete ${collection.name}?`, `All of its documents are deleted with it, for everybody whom it is shared with, too.`);
      if (!isSure) return;
      await remove(of(collection.name));
      await look();
    })) : null,
  ];
}

/** What this key may do about the share of another's collection: accept or refuse it, or leave it. */
function share(collection, look) {
  const path = `${of(collection.name)}/share`;
  const end = (label) => action(label, async () => {
    await remove(path);
    await look();
  });
  const text = collection.offered
    ? "Another key offers this collection. Searches look in it only by its name until you accept it."
    : "Another key shares this collection, and this key accepted it.";
  return h("section", { "data-problems": true }, h("p", { class: "dim" }, text), h("div", { class: "buttons" },
    collection.offered ? action("Accept", async () => {
      await put(path);
      await look();
    }, { class: "primary" }) : null,
    end(collection.offered ? "Refuse" : "Leave")));
}

function documentRow(collection, document, mayWrite, again) {
  const path = `${of(collection.name)}/documents/${document.id}`;
  const summary = [h("span", { class: "document-source" }, document.source),
    Object.entries(document.labels).map(([name, value]) => h("span", { class: "tag" }, `${name}=${value}`)),
    h("span", { class: "dim" }, `${many(document.passages, "passage")} · ${bytes(document.bytes)} · ${when(document.created_ms)}`)];
  const details = fold(summary, () => {
    const passages = h("div", {});
    const more = h("div", { class: "buttons" });
    let read = 0;
    const load = async () => {
      const page = (await get(`${path}?first=${read}&limit=${PASSAGES}`)).content;
      read += page.length;
      passages.append(...page.map(quote));
      fill(more, read < document.passages && page.length ? action("More passages", load) : null);
    };
    load().catch((error) => fill(passages, failed(error)));
    return [h("p", { class: "dim digest" }, `${document.title} · ${document.mime_type} · ${time(document.created_ms)} · SHA-256 `, h("code", {}, document.digest)),
      passages, more, mayWrite ? h("div", { class: "buttons", "data-problems": true }, h("span", { class: "grow" }), action("Delete the document…", async () => {
        if (!(await sure(`Delete ${document.title || document.source}?`, "It is found no more by anybody who may read the collection."))) return;
        await remove(path);
        await again();
      })) : null];
  }, { class: "fold document" });
  details.dataset.document = document.id;
  return details;
}

function sure(title, text) {
  return dialog(title, (close) => [h("p", {}, text), h("div", { class: "buttons" }, h("span", { class: "grow" }),
    h("button", { type: "button", onclick: () => close(false) }, "Cancel"), h("button", { type: "button", class: "danger", onclick: () => close(true) }, "Delete"))]);
}

function adding(collection, again) {
  const files = h("input", { type: "file", multiple: true });
  const source = h("input", { type: "text", maxlength: 2000, autocomplete: "off", placeholder: "notes.md" });
  const text = h("textarea", { rows: 4, class: "grows" });
  const said = h("div", { "aria-live": "polite" });
  const told = [];
  const tell = (name, result) => {
    told.push(h("p", { class: "dim" }, `${name}: ${result}`));
    fill(said, told.slice(-20));
  };
  const path = `${of(collection.name)}/documents`;
  return h("form", { "data-problems": true, onsubmit: (event) => event.preventDefault() },
    field("Files", files),
    h("div", { class: "buttons" }, action("Add the files", async () => {
      for (const file of files.files) {
        try {
          tell(file.name, (await upload(`${path}?source=${encodeURIComponent(file.name)}`, file)).result);
        } catch (error) {
          tell(file.name, error.message);
        }
      }
      files.value = "";
      await again();
    })),
    field("Name of a text", source), field("Text", text),
    h("div", { class: "buttons" }, action("Add the text", async () => {
      const added = await post(path, { source: source.value, content: text.value });
      tell(source.value, added.result);
      source.value = "";
      text.value = "";
      await again();
    })), said);
}
