// The plan as a graph: calls from left to right in the order in which data lets them run, and the data between.

import { fill, h, s } from "./dom.js";
import { oneLine } from "./format.js";
import { flow } from "./trace.js";

const NODE = { width: 168, height: 40, x: 56, y: 14 };
/** Nodes above which a graph is unreadable. */
const MOST = 200;

export class Graph {
  constructor(onPick) {
    this.onPick = onPick;
    this.canvas = h("div", { class: "graph" });
    this.element = h("section", { class: "panel", "aria-label": "Plan", hidden: true },
      h("div", { class: "panel-head" }, h("h2", {}, "Plan"),
        h("p", { class: "dim" }, "Edges lead from where a call writes to who reads it")),
      this.canvas);
    this.drawn = "";
  }

  paint(trace) {
    const { nodes, edges } = flow(trace);
    // Calls that pass nothing to each other are a list, and the steps show it.
    const isPlan = nodes.length <= MOST && edges.length > 0;
    this.element.hidden = !isPlan;
    if (!isPlan) return;
    const state = JSON.stringify([nodes.map((node) => [node.key, node.call?.state]), edges]);
    if (state === this.drawn) return;
    this.drawn = state;
    const held = document.activeElement?.dataset?.node;
    fill(this.canvas, this.picture(nodes, edges));
    if (held) this.canvas.querySelector(`[data-node="${CSS.escape(held)}"]`)?.focus();
  }

  picture(nodes, edges) {
    const { place, ways } = layout(nodes, edges);
    const columns = Math.max(...[...place.values()].map((it) => it.column)) + 1;
    const rows = Math.max(...[...place.values()].map((it) => it.row)) + 1;
    const width = columns * NODE.width + (columns - 1) * NODE.x + 4;
    const height = rows * (NODE.height + NODE.y) - NODE.y + 4;
    const at = (key) => {
      const { column, row } = place.get(key);
      return { x: 2 + column * (NODE.width + NODE.x), y: 2 + row * (NODE.height + NODE.y) };
    };
    const arrow = s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
      s("path", { d: "M0 0.5 L8 4 L0 7.5 z", class: "g-arrow" }));
    return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": `${nodes.length} nodes, ${edges.length} edges` },
      s("defs", {}, arrow),
      edges.map((edge) => s("path", { class: "g-edge", "marker-end": "url(#arrow)", d: curve(at(edge.from), ways.get(edge).map(at), at(edge.to)) },
        s("title", {}, edge.path))),
      nodes.map((node) => this.node(node, at(node.key))));
  }

  node({ key, call, path }, { x, y }) {
    const box = s("rect", { width: NODE.width, height: NODE.height, rx: 5 });
    const name = (text, line, kind) => s("text", { x: 12, y: line, class: kind }, oneLine(text, 24));
    if (!call) {
      return s("g", { class: "g-node g-data", transform: `translate(${x} ${y})` }, box, name(path, 24, "g-path"), s("title", {}, path));
    }
    const pick = () => this.onPick({ call: call.id });
    const press = (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      pick();
    };
    const writes = call.outputPath ?? call.written[0];
    return s("g", {
      class: `g-node g-${call.state}`, transform: `translate(${x} ${y})`, tabindex: 0, role: "button", "data-node": key,
      "aria-label": `${call.tool}, ${call.state}`, onclick: pick, onkeydown: press,
    }, box, s("rect", { class: "g-state", width: 4, height: NODE.height, rx: 2 }),
    name(call.tool, writes ? 17 : 24, "g-name"), writes ? name(`→ ${writes}`, 32, "g-path") : null,
    s("title", {}, `${call.tool}${writes ? ` → ${writes}` : ""}`));
  }
}

/** Columns by the longest way, rows so that edges cross little; `ways` are the places that an edge passes on its
    way over columns in between. A step's calls come after all of the step before it. */
function layout(nodes, edges) {
  const column = columns(nodes, edges);
  const items = [];
  const put = (key, at, from) => {
    (items[at] ??= []).push({ key, from });
    return key;
  };
  for (const node of nodes) {
    put(node.key, column.get(node.key), edges.filter((edge) => edge.to === node.key).map((edge) => edge.from));
  }
  const ways = new Map();
  for (const edge of edges) {
    let before = edge.from;
    const own = [];
    for (let at = column.get(edge.from) + 1; at < column.get(edge.to); at++) {
      before = put(`${edge.from} ${edge.to} ${at}`, at, [before]);
      own.push(before);
    }
    ways.set(edge, own);
    const reader = items[column.get(edge.to)].find((item) => item.key === edge.to);
    reader.from = reader.from.map((from) => (from === edge.from ? before : from));
  }
  const place = new Map();
  items.forEach((own, at) => {
    const mean = ({ from }) => {
      const rows = from.map((key) => place.get(key)?.row).filter((row) => row !== undefined);
      return rows.length ? rows.reduce((sum, row) => sum + row, 0) / rows.length : Infinity;
    };
    const ordered = at === 0 ? own : own.map((item) => ({ ...item, mean: mean(item) })).sort((a, b) => (a.mean === b.mean ? 0 : a.mean - b.mean));
    ordered.forEach((item, row) => place.set(item.key, { column: at, row }));
  });
  return { place, ways };
}

function columns(nodes, edges) {
  const calls = nodes.filter((node) => node.call);
  const column = new Map();
  const into = new Map(calls.map((node) => [node.key, []]));
  for (const edge of edges) into.get(edge.to)?.push(edge.from);
  let first = 0;
  for (const step of [...new Set(calls.map((node) => node.step))].sort((a, b) => a - b)) {
    const own = calls.filter((node) => node.step === step);
    for (const node of own) column.set(node.key, first);
    // As many rounds as a way can be long; a cycle ends with them.
    for (let round = 0; round < own.length; round++) {
      let moved = false;
      for (const node of own) {
        const before = into.get(node.key).map((from) => column.get(from)).filter((at) => at !== undefined);
        const least = Math.max(first, ...before.map((at) => at + 1));
        if (least > column.get(node.key) && least < first + own.length) {
          column.set(node.key, least);
          moved = true;
        }
      }
      if (!moved) break;
    }
    first = Math.max(...own.map((node) => column.get(node.key))) + 1;
  }
  // External data stands right before the first call that reads it.
  for (const node of nodes) {
    if (node.call) continue;
    column.set(node.key, Math.min(...edges.filter((edge) => edge.from === node.key).map((edge) => column.get(edge.to))) - 1);
  }
  const least = Math.min(...column.values());
  for (const [key, at] of column) column.set(key, at - least);
  return column;
}

/** From the right of a box to the left of another, through the middle of the gaps of the columns between. */
function curve(from, over, to) {
  const middle = NODE.height / 2;
  let [x, y] = [from.x + NODE.width, from.y + middle];
  let path = `M${x} ${y}`;
  for (const { x: left, y: top, isEnd } of [...over, { ...to, isEnd: true }]) {
    const bend = Math.max(20, (left - x) / 2);
    path += ` C${x + bend} ${y} ${left - bend} ${top + middle} ${left} ${top + middle}`;
    [x, y] = [left, top + middle];
    if (!isEnd) path += ` H${(x += NODE.width)}`;
  }
  return path;
}
