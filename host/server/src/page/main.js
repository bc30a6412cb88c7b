// Which page is shown, what waits for a person, and the key where the server wants one.

import { get, hasKey, onKeyNeeded, setKey } from "./api.js";
import { chatPage } from "./chat.js";
import { decisionsPage } from "./decision.js";
import { action, dialog, empty, fill, h } from "./dom.js";
import { knowledgePage } from "./knowledge.js";
import { modulesPage } from "./modules.js";
import { requestsPage } from "./requests.js";
import { runPage } from "./run.js";
import { runsPage } from "./runs.js";

const PAGES = [
  { name: "Runs", path: "runs", show: runsPage },
  { name: "Chat", path: "chat", show: chatPage },
  { name: "Decisions", path: "approvals", show: decisionsPage },
  { name: "Requests", path: "requests", show: requestsPage },
  { name: "Knowledge", path: "knowledge", show: knowledgePage },
  { name: "Modules", path: "modules", show: modulesPage },
];

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const status = document.getElementById("status");
const badge = h("span", { class: "badge", hidden: true });
let leave = null;

function show() {
  const [path = "", ...parameters] = location.hash.replace(/^#\/?/, "").split("/").map(part);
  const page = PAGES.find((known) => known.path === (path || "runs"));
  leave?.abort();
  leave = new AbortController();
  for (const link of nav.querySelectorAll("a")) {
    if (link.dataset.path === page?.path) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${page?.name ?? "Not found"} · Toolhold`;
  main.className = `page-${page?.path ?? "none"}`;
  const make = page?.path === "runs" && parameters.length ? runPage : page?.show;
  fill(main, make ? make({ parameters, signal: leave.signal }) : empty("There is no such page", h("a", { href: "#/runs" }, "To the runs")));
  scrollTo(0, 0);
}

function part(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function askForKey(error, wasWrong) {
  return dialog("This server needs a key", (close) => {
    const key = h("input", { type: "password", autocomplete: "off", spellcheck: "false", "aria-label": "Key", placeholder: "th_…", required: true });
    const enter = (event) => {
      event.preventDefault();
      if (!key.value.trim()) return;
      setKey(key.value.trim());
      close(true);
      keys();
    };
    return h("form", { class: "key", onsubmit: enter },
      h("p", {}, wasWrong ? error.message : ["The server's operator creates one with ", h("code", {}, "toolhold keys create"), ". It is kept in this tab and forgotten with it."]),
      key, h("div", { class: "buttons" }, h("span", { class: "grow" }), h("button", { type: "button", onclick: () => close(false) }, "Cancel"),
        h("button", { type: "submit", class: "primary" }, "Enter")));
  }).then(Boolean);
}

function keys() {
  fill(status, hasKey() ? action("Forget the key", () => {
    setKey(null);
    location.reload();
  }, { class: "link" }) : null);
}

async function lookForDecisions() {
  if (document.hidden) return;
  try {
    const { calls, next } = await get("/v1/approvals", { quiet: true });
    const many = calls.filter((call) => !call.is_decided).length;
    badge.textContent = next ? `${many}+` : String(many);
    badge.setAttribute("aria-label", `${many} waiting`);
    badge.hidden = many === 0 && !next;
  } catch {
    badge.hidden = true;
  }
}

fill(nav, PAGES.map((page) => h("a", { href: `#/${page.path}`, "data-path": page.path }, page.name, page.path === "approvals" ? badge : null)));
document.querySelector(".skip").addEventListener("click", (event) => {
  // The place after # is the page's name here.
  event.preventDefault();
  main.focus();
});
onKeyNeeded(askForKey);
keys();
addEventListener("hashchange", () => {
  show();
  main.focus({ preventScroll: true });
});
addEventListener("toolhold-decided", () => setTimeout(lookForDecisions, 300));
show();
lookForDecisions();
setInterval(lookForDecisions, 5_000);
