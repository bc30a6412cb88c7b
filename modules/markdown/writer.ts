// Writes Markdown: inline text collects until a block ends, then goes out behind the marks of the
// lists and quotes around it.

/** Deeper lists and quotes are written as if they were this deep. */
const MAX_NESTING = 12;
/** Markup inside markup beyond this is dropped, its text stays. */
const MAX_SPANS = 16;

/** Inline markup that is open: where it began, and what is put around its text. */
export interface Span {
  tag: string;
  start: number;
  wrap(text: string): string;
}

interface Container {
  /** Before the first line of a list item, before all lines of a quote. */
  first: string;
  rest: string;
  used: boolean;
}

export class Writer {
  private blocks: string[] = [];
  private length = 0;
  /** Characters taken in that are in no block yet. */
  private pending = 0;
  private parts: string[] = [];
  private spans: Span[] = [];
  private containers: Container[] = [];
  /** Set while a table cell collects: blocks in it are a run of text. */
  private cell = false;
  private tight = false;

  constructor(private readonly limit: number) {}

  /** Whether what was taken in is more than will be returned, white space and markup allowed for. */
  get full(): boolean {
    return this.length > this.limit || this.pending > 2 * this.limit + 10_000;
  }

  /** Text as HTML has it: runs of white space are one blank. */
  text(raw: string): void {
    this.pending += raw.length;
    let text = raw.replace(/[ \t\n\r\f]+/g, " ");
    const before = this.parts.at(-1);
    const start = before === undefined || before.endsWith("\n");
    if (text.startsWith(" ") && (before === undefined || /\s$/.test(before))) text = text.slice(1);
    if (text !== "") this.parts.push(escape(text, start));
  }

  /** Text that is Markdown already. */
  raw(text: string): void {
    this.parts.push(text);
  }

  open(tag: string, wrap: Span["wrap"]): void {
    if (this.spans.length >= MAX_SPANS) return;
    // Bold in bold is bold.
    const again = this.spans.some((span) => span.tag === tag);
    this.spans.push({ tag, start: this.parts.length, wrap: again ? (text) => text : wrap });
  }

  /** Closes the innermost span of a tag, and what was left open in it. */
  close(tag: string): void {
    const at = this.spans.findLastIndex((span) => span.tag === tag);
    if (at === -1) return;
    for (const span of this.spans.splice(at).reverse()) this.wrap(span);
  }

  /** Ends the paragraph that is being collected. */
  flush(prefix = ""): void {
    if (this.cell) {
      if (this.parts.length > 0) this.text(" ");
      return;
    }
    // Markup may span blocks, in Markdown it cannot: it ends here and begins anew.
    for (const span of this.spans.toReversed()) this.wrap(span);
    for (const span of this.spans) span.start = 0;
    const text = this.take().trim();
    if (text !== "") this.block(text.split("\n").map((line) => prefix + line.trim()).join("\n"));
  }

  /** Writes lines as they are. */
  block(text: string): void {
    const gap = this.containers.slice(0, MAX_NESTING).filter((container) => container.used);
    const separator = this.tight ? "\n" : `\n${gap.map((container) => container.rest).join("").trimEnd()}\n`;
    const lines = text.split("\n").map((line, at) => this.prefix(at === 0) + line);
    const block = lines.map((line) => line.trimEnd()).join("\n");
    this.blocks.push((this.blocks.length === 0 ? "" : separator) + block);
    this.length += block.length + 2;
    this.pending = 0;
    this.tight = false;
  }

  enter(first: string, rest: string, tight = false): void {
    this.flush();
    this.containers.push({ first, rest, used: false });
    this.tight = tight;
  }

  leave(): void {
    this.flush();
    this.containers.pop();
  }

  beginCell(): void {
    this.flush();
    this.cell = true;
  }

  endCell(): string {
    for (const span of this.spans.splice(0).reverse()) this.wrap(span);
    this.cell = false;
    return this.take().replace(/\s+/g, " ").trim().replace(/\|/g, "\\|");
  }

  /** The Markdown so far, cut at the limit. */
  finish(): { markdown: string; truncated: boolean } {
    const whole = this.blocks.join("");
    if (whole.length <= this.limit) return { markdown: whole, truncated: this.full };
    // Not in the middle of a surrogate pair.
    const markdown = whole.slice(0, this.limit).replace(/[\ud800-\udbff]$/, "");
    return { markdown, truncated: true };
  }

  take(): string {
    return this.parts.splice(0).join("");
  }

  private wrap(span: Span): void {
    const inner = this.parts.splice(span.start).join("");
    const text = inner.trim();
    if (text === "") {
      this.parts.push(inner === "" ? "" : " ");
      return;
    }
    const lead = inner.slice(0, inner.length - inner.trimStart().length);
    const trail = inner.slice(inner.trimEnd().length);
    this.parts.push(lead + span.wrap(text) + trail);
  }

  private prefix(firstLine: boolean): string {
    let prefix = "";
    for (const container of this.containers.slice(0, MAX_NESTING)) {
      prefix += firstLine && !container.used ? container.first : container.rest;
      if (firstLine) container.used = true;
    }
    return prefix;
  }
}

/** Characters that would be markup, where they would be. */
function escape(text: string, start: boolean): string {
  const escaped = text.replace(/[\\`*[\]<]|(?<!\w)_|_(?!\w)/g, "\\$&");
  return start ? escaped.replace(/^(?=[#>]|[-+] )|^(\d+)(?=[.)] )/, "$1\\") : escaped;
}
