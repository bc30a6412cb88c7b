// What changed between two texts, line by line.

import { h } from "./dom.js";
import { parse, stringify } from "./exact.js";

/** Beyond this the middle is shown as all old, then all new: the table of a diff grows with the square. */
const MOST_LINES = 600;

export function diff(before, after) {
  const old = lines(before);
  const now = lines(after);
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head += 1;
  let tail = 0;
  while (tail < old.length - head && tail < now.length - head && old.at(-1 - tail) === now.at(-1 - tail)) tail += 1;
  const middle = changed(old.slice(head, old.length - tail), now.slice(head, now.length - tail));
  return [
    ...old.slice(0, head).map((line) => [" ", line]),
    ...middle,
    ...(tail ? old.slice(-tail).map((line) => [" ", line]) : []),
  ];
}

export function shownDiff(before, after) {
  const rows = diff(readable(before), readable(after));
  const name = { "+": "added", "-": "removed", " ": "same" };
  return h("div", { class: "diff", tabindex: "0" }, rows.map(([mark, line]) =>
    h("div", { class: `d-${name[mark]}` },
      h("span", { class: "d-mark", "aria-hidden": "true" }, mark),
      mark === " " ? null : h("span", { class: "hidden" }, `${name[mark]}: `),
      h("span", {}, line || " "))));
}

/** JSON is compared by its members, each on a line. */
function readable(text) {
  if (text === null || text === undefined) return null;
  try {
    const value = parse(text);
    return typeof value === "string" ? value : stringify(value, 2);
  } catch {
    return text;
  }
}

function lines(text) {
  return text === null || text === undefined ? [] : text.split("\n");
}

function changed(old, now) {
  if (old.length > MOST_LINES || now.length > MOST_LINES) {
    return [...old.map((line) => ["-", line]), ...now.map((line) => ["+", line])];
  }
  const longest = Array.from({ length: old.length + 1 }, () => new Uint16Array(now.length + 1));
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) {
      longest[i][j] = old[i] === now[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  const rows = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) rows.push([" ", old[i++], j++]);
    else if (i < old.length && (j >= now.length || longest[i + 1][j] >= longest[i][j + 1])) rows.push(["-", old[i++]]);
    else rows.push(["+", now[j++]]);
  }
  return rows;
}
