// Reads HTML as a stream of tags and texts, as lenient as a browser, and tells the writer.

import { Parser } from "htmlparser2";
import type { Page } from "./tools.ts";
import { resolve } from "./urls.ts";
import { Writer } from "./writer.ts";

/** Nesting of no page that a person wrote; the parser searches its stack at every closing tag. */
const MAX_DEPTH = 500;
const MAX_LINKS = 500;
const MAX_COLUMNS = 50;

/** What holds no text for a reader. */
const SKIPPED = new Set(
  "script style noscript template svg math canvas iframe object embed video audio map select button head dialog".split(" "),
);
const BLOCKS = new Set(
  ("address article aside body center dd details div dl dt fieldset figcaption figure footer form header hgroup html " +
    "legend main nav p section summary tbody tfoot thead").split(" "),
);
const WRAPS: Record<string, (text: string) => string> = {
  b: bold, strong: bold, i: italic, em: italic, cite: italic, del: struck, s: struck, strike: struck,
};

function bold(text: string): string { return `**${text}**`; }
function italic(text: string): string { return `*${text}*`; }
function struck(text: string): string { return `~~${text}~~`; }

/** Thrown to leave the parser when enough was written. */
const ENOUGH = Symbol("enough");

export function read(html: string, base: string | undefined, limit: number): Page {
  const reader = new Reader(base, limit);
  try {
    reader.run(html);
  } catch (reason) {
    if (reason !== ENOUGH) throw reason;
  }
  return reader.page();
}

interface List {
  ordered: boolean;
  started: boolean;
  next: number;
}

class Reader {
  private readonly writer: Writer;
  private readonly links = new Map<string, string>();
  private readonly lists: List[] = [];
  private title = "";
  private heading = "";
  private inTitle = false;
  private depth = 0;
  /** The depth of the element whose content is skipped, or 0. */
  private skipping = 0;
  private pre: string[] | undefined;
  private language = "";
  private table: { rows: string[][]; nested: number; inCell: boolean } | undefined;

  constructor(private base: string | undefined, limit: number) {
    this.writer = new Writer(limit);
  }

  run(html: string): void {
    const parser = new Parser(
      {
        onopentag: (name, attributes) => this.opened(name, attributes),
        onclosetag: (name) => this.closed(name),
        ontext: (text) => this.text(text),
      },
      { decodeEntities: true, lowerCaseTags: true },
    );
    // In pieces, so that one that is enough is the last.
    for (let at = 0; at < html.length; at += 65_536) parser.write(html.slice(at, at + 65_536));
    parser.end();
  }

  page(): Page {
    // What was open when the page ended, or when there was enough of it.
    if (this.pre) this.endPre();
    if (this.table) this.endTable();
    this.writer.flush();
    const { markdown, truncated } = this.writer.finish();
    const links = [...this.links].map(([url, text]) => ({ text, url }));
    return { title: (this.title || this.heading).trim().replace(/\s+/g, " ").slice(0, 500), markdown, links, truncated };
  }

  private text(text: string): void {
    if (this.inTitle) this.title += this.title.length < 2_000 ? text : "";
    else if (this.skipping > 0) return;
    else if (this.pre) this.pre.push(text);
    else if (this.writer.full) throw ENOUGH;
    else this.writer.text(text);
  }

  private opened(name: string, attributes: Record<string, string>): void {
    this.depth += 1;
    if (this.depth > MAX_DEPTH) {
      throw { class: "correctable", message: `the HTML is nested deeper than ${MAX_DEPTH} elements: pass a part of it` };
    }
    if (this.writer.full) throw ENOUGH;
    if (name === "title" && this.title === "") this.inTitle = true;
    if (name === "base" && attributes["href"]) this.base = resolve(attributes["href"], this.base) ?? this.base;
    if (this.skipping > 0) return;
    if (SKIPPED.has(name) || hidden(attributes)) {
      this.skipping = this.depth;
      return;
    }
    if (this.pre) {
      if (name === "br") this.pre.push("\n");
      this.language ||= language(attributes);
      return;
    }
    this.element(name, attributes);
  }

  private element(name: string, attributes: Record<string, string>): void {
    const { writer } = this;
    const wrap = WRAPS[name];
    if (wrap) writer.open(name, wrap);
    else if (BLOCKS.has(name) || /^h[1-6]$/.test(name)) writer.flush();
    else if (name === "br") writer.raw(this.table ? " " : "\n");
    else if (name === "hr") { writer.flush(); if (!this.table) writer.block("---"); }
    else if (name === "a") this.link(attributes["href"]);
    else if (name === "img") this.image(attributes);
    else if (name === "code" || name === "kbd" || name === "samp" || name === "tt") writer.open(name, code);
    else if (name === "pre") { writer.flush(); this.pre = []; this.language = language(attributes); }
    else if (name === "blockquote") this.table ? writer.flush() : writer.enter("> ", "> ");
    else if (name === "ul" || name === "ol") {
      writer.flush();
      this.lists.push({ ordered: name === "ol", started: false, next: Number.parseInt(attributes["start"] ?? "1", 10) || 1 });
    } else if (name === "li") this.item();
    else if (name === "table") this.table ? (this.table.nested += 1) : this.startTable();
    else if (name === "tr" && this.table?.nested === 0) this.table.rows.push([]);
    else if ((name === "td" || name === "th") && this.table?.nested === 0) this.startCell();
  }

  private closed(name: string): void {
    const depth = this.depth;
    this.depth -= 1;
    if (name === "title") this.inTitle = false;
    if (this.skipping > 0) {
      if (this.skipping === depth) this.skipping = 0;
      return;
    }
    const { writer } = this;
    if (this.pre) {
      if (name === "pre") this.endPre();
    } else if (WRAPS[name] || ["code", "kbd", "samp", "tt"].includes(name)) writer.close(name);
    else if (name === "a") writer.close("a");
    else if (/^h[1-6]$/.test(name)) this.endHeading(Number(name[1]));
    else if (BLOCKS.has(name)) writer.flush();
    else if (name === "blockquote") this.table ? writer.flush() : writer.leave();
    else if (name === "ul" || name === "ol") { writer.flush(); this.lists.pop(); }
    else if (name === "li") { if (!this.table) writer.leave(); else writer.flush(); }
    else if (name === "table" && this.table) this.table.nested > 0 ? (this.table.nested -= 1) : this.endTable();
    else if ((name === "td" || name === "th") && this.table?.nested === 0) this.endCell();
  }

  private link(href: string | undefined): void {
    const url = href === undefined ? undefined : resolve(href, this.base);
    this.writer.open("a", (text) => {
      if (url === undefined) return text;
      const label = text.replace(/\s+/g, " ");
      if (!url.startsWith("#") && this.links.size < MAX_LINKS && !this.links.has(url)) {
        this.links.set(url, label.replace(/\\(.)/g, "$1").slice(0, 200));
      }
      return `[${label}](${url})`;
    });
  }

  private image(attributes: Record<string, string>): void {
    const alt = (attributes["alt"] ?? "").replace(/[\s[\]]+/g, " ").trim();
    const url = resolve(attributes["src"] ?? "", this.base);
    if (alt !== "" && url !== undefined) this.writer.raw(`![${alt}](${url})`);
    else if (alt !== "") this.writer.text(alt);
  }

  private endHeading(level: number): void {
    if (this.table) return this.writer.flush();
    const text = this.writer.take().replace(/\s+/g, " ").trim();
    if (text === "") return;
    this.heading ||= text.replace(/\\(.)/g, "$1");
    this.writer.block(`${"#".repeat(level)} ${text}`);
  }

  private item(): void {
    if (this.table) return this.writer.flush();
    const list = this.lists.at(-1);
    const mark = list?.ordered ? `${list.next}. ` : "- ";
    // Items stand together; the first of a list that is in no other stands apart from what is above.
    const tight = this.lists.length > 1 || (list?.started ?? false);
    if (list) Object.assign(list, { started: true, next: list.next + 1 });
    this.writer.enter(mark, " ".repeat(mark.length), tight);
  }

  private endPre(): void {
    const text = (this.pre ?? []).join("").replace(/^\n/, "").trimEnd();
    this.pre = undefined;
    if (text === "") return;
    if (this.table) return this.writer.raw(code(text.replace(/\s+/g, " ")));
    const longest = Math.max(2, ...[...text.matchAll(/`{3,}/g)].slice(0, 100).map(([marks]) => marks.length));
    const fence = "`".repeat(Math.min(longest + 1, 100));
    this.writer.block(`${fence}${this.language}\n${text}\n${fence}`);
  }

  private startTable(): void {
    this.writer.flush();
    this.table = { rows: [], nested: 0, inCell: false };
  }

  private startCell(): void {
    this.endCell();
    if (!this.table) return;
    if (this.table.rows.length === 0) this.table.rows.push([]);
    this.table.inCell = true;
    this.writer.beginCell();
  }

  private endCell(): void {
    if (!this.table?.inCell) return;
    this.table.inCell = false;
    const text = this.writer.endCell();
    const row = this.table.rows.at(-1);
    if (row && row.length < MAX_COLUMNS) row.push(text);
  }

  private endTable(): void {
    this.endCell();
    const rows = (this.table?.rows ?? []).filter((row) => row.some((cell) => cell !== ""));
    this.table = undefined;
    const columns = rows.reduce((most, row) => Math.max(most, row.length), 0);
    // One column is a layout, not a table.
    if (columns < 2) return rows.forEach(([cell]) => { this.writer.raw(cell ?? ""); this.writer.flush(); });
    const line = (cells: string[]) => `| ${Array.from({ length: columns }, (_, at) => cells[at] ?? "").join(" | ")} |`;
    const [head = [], ...body] = rows;
    this.writer.block([line(head), line(Array(columns).fill("---")), ...body.map(line)].join("\n"));
  }
}

/** What a page hides from its readers is not shown to a model either. */
function hidden(attributes: Record<string, string>): boolean {
  return (
    "hidden" in attributes ||
    attributes["aria-hidden"] === "true" ||
    /display\s*:\s*none|visibility\s*:\s*hidden/i.test(attributes["style"] ?? "")
  );
}

function language(attributes: Record<string, string>): string {
  return /\blang(?:uage)?-([\w+#-]{1,20})/.exec(attributes["class"] ?? "")?.[1] ?? "";
}

/** Inline code, in as many backticks as it takes. What was escaped is not, in code. */
function code(text: string): string {
  const plain = text.replace(/\\([\\`*[\]<_#>+-])/g, "$1");
  const longest = Math.max(0, ...(plain.match(/`+/g) ?? []).slice(0, 100).map((marks) => marks.length));
  const fence = "`".repeat(longest + 1);
  return longest > 0 ? `${fence} ${plain} ${fence}` : `${fence}${plain}${fence}`;
}
