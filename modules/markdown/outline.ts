// The headings of a Markdown text: CommonMark's two kinds, outside of code and comments.

import type { Heading } from "./tools.ts";

const ATX = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$/;
const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const UNDERLINE = /^ {0,3}(=+|-+)[ \t]*$/;
/** Lines that cannot be the text above an underline. */
const NO_PARAGRAPH = /^(?: {4,}|\t| {0,3}(?:>|[-+*][ \t]|\d{1,9}[.)][ \t]|[*_-]{3,}[ \t]*$|\||<))/;
/** A heading is a line; what is longer is something else. */
const MAX_TEXT = 500;
/** No text for a reader has more. */
const MAX_HEADINGS = 5_000;

/** The headings as a tree: each holds those that follow it and are deeper. */
export function headings(markdown: string): Heading[] {
  const roots: Heading[] = [];
  const open: Heading[] = [];
  let count = 0;
  for (const heading of flat(markdown)) {
    if (++count > MAX_HEADINGS) {
      throw { class: "correctable", message: `the text has more than ${MAX_HEADINGS} headings: pass a part of it` };
    }
    while (open.length > 0 && (open.at(-1)?.level ?? 0) >= heading.level) open.pop();
    (open.at(-1)?.children ?? roots).push(heading);
    open.push(heading);
  }
  return roots;
}

function* flat(markdown: string): Generator<Heading> {
  let fence = "";
  let comment = false;
  // The last line, if it can become a heading by being underlined.
  let paragraph = "";
  let number = 0;
  for (const line of markdown.split(/\r\n|\r|\n/)) {
    number += 1;
    if (comment) {
      comment = !line.includes("-->");
      continue;
    }
    const fenced = FENCE.exec(line);
    if (fence !== "") {
      const [, marks = "", rest = ""] = fenced ?? [];
      if (marks[0] === fence[0] && marks.length >= fence.length && rest.trim() === "") fence = "";
      continue;
    }
    if (fenced && !(fenced[1]?.startsWith("`") && fenced[2]?.includes("`"))) {
      fence = fenced[1] ?? "";
      paragraph = "";
      continue;
    }
    if (/^ {0,3}<!--/.test(line)) {
      comment = !line.includes("-->");
      paragraph = "";
      continue;
    }
    const atx = line.length > 10 * MAX_TEXT ? null : ATX.exec(line);
    const underline = UNDERLINE.exec(line);
    if (atx) {
      yield made(atx[1]?.length ?? 1, atx[2] ?? "", number);
      paragraph = "";
    } else if (underline && paragraph !== "") {
      yield made(underline[1]?.startsWith("=") ? 1 : 2, paragraph, number - 1);
      paragraph = "";
    } else {
      paragraph = line.trim() === "" || NO_PARAGRAPH.test(line) ? "" : line.trim();
    }
  }
}

function made(level: number, text: string, line: number): Heading {
  return { level, text: plain(text).slice(0, MAX_TEXT), line, children: [] };
}

/** The text without its markup. */
function plain(text: string): string {
  return text
    .slice(0, 2 * MAX_TEXT)
    .replace(/!?\[([^\][]*)\]\([^()\s]*\)/g, "$1")
    .replace(/[*`]+|(?<!\w)_+|_+(?!\w)/g, "")
    .replace(/\\([!-/:-@[-`{-~])/g, "$1")
    .trim();
}
