// The plan as a graph: calls from left to right in the order in which data lets them run, and the data between.

import { fill, h, s } from "./dom.js";
import { oneLine } from "./format.js";
import { flow } from "./trace.js";

const NODE = { width: 168, height: 40, x: 56, y: 14 };
/** More than this nobody reads as a graph. */
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
    // Single calls one after the other have no plan worth a picture.
    const isPlan = nodes.length <= MOST && (edges.length > 0 || [...trace.steps.values()].some((step) => step.plan.length > 1));
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
    const place = layout(nodes, edges);
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
      edges.map(({ from, to, path }) => {
        const [a, b] = [at(from), at(to)];
        const [x1, y1, x2, y2] = [a.x + NODE.width, a.y + NODE.height / 2, b.x, b.y + NODE.height / 2];
        const bend = Math.max(24, Math.abs(x2 - x1) / 2);
        return s("path", { class: "g-edge", "marker-end": "url(#arrow)", d: `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` },
          s("title", {}, path));
      }),
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

/** Columns by the longest way; a step's calls come after all of the step before it. */
function layout(nodes, edges) {
  const column = new Map(nodes.map((node) => [node.key, 0]));
  const into = new Map(nodes.map((node) => [node.key, []]));
  for (const edge of edges) into.get(edge.to)?.push(edge.from);
  const steps = [...new Set(nodes.map((node) => node.step))].sort((a, b) => a - b);
  let first = 0;
  for (const step of steps) {
    const own = nodes.filter((node) => node.step === step);
    for (const node of own) column.set(node.key, first);
    // As many rounds as a way can be long; a cycle ends with them.
    for (let round = 0; round < own.length; round++) {
      let moved = false;
      for (const node of own) {
        const least = Math.max(first, ...into.get(node.key).map((from) => column.get(from) + 1));
        if (least > column.get(node.key) && least < first + own.length) {
          column.set(node.key, least);
          moved = true;
        }
      }
      if (!moved) break;
    }
    first = Math.max(...own.map((node) => column.get(node.key))) + 1;
  }
  const filled = new Map();
  const place = new Map();
  for (const node of nodes) {
    const at = column.get(node.key);
    const row = filled.get(at) ?? 0;
    filled.set(at, row + 1);
    place.set(node.key, { column: at, row });
  }
  return place;
}
