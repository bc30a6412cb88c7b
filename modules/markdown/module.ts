// Web pages as Markdown, and the outline of a Markdown text. `html` reads, `writer` writes, `urls`
// resolves links; nothing here recurses over its input, so nesting cannot exhaust a stack.

import { read } from "./html.ts";
import { headings } from "./outline.ts";
import { DEFAULT_CHARS, fromHtml, MAX_CHARS, outline, type FromHtml, type Outline } from "./tools.ts";

/** A page of more is no text to read; the host's own limit for arguments is a little higher. */
const MAX_HTML = 6 << 20;

export const tools: Toolhold.Tools = {
  listTools: () => [fromHtml, outline],

  call(invocation) {
    const args: unknown = JSON.parse(invocation.arguments);
    switch (invocation.tool) {
      case fromHtml.name:
        return value(page(args as FromHtml));
      case outline.name:
        return value({ headings: headings((args as Outline).markdown) });
      default:
        throw correctable(
          `no tool \`${invocation.tool}\` here; there are: ${fromHtml.name}, ${outline.name}`,
        );
    }
  },
};

function page({ html, base_url, max_chars = DEFAULT_CHARS }: FromHtml) {
  if (html.length > MAX_HTML) {
    throw correctable(`the HTML has ${html.length} characters, at most ${MAX_HTML} are read: pass the part you need`);
  }
  if (!(max_chars >= 1 && max_chars <= MAX_CHARS)) {
    throw correctable(`\`max_chars\` must be between 1 and ${MAX_CHARS}`);
  }
  return read(html, base_url, max_chars);
}

const value = (result: object): Toolhold.Output => ({ tag: "value", val: JSON.stringify(result) });

const correctable = (message: string): Toolhold.ToolError => ({ class: "correctable", message });
