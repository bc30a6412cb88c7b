// What the model is told. Kept apart from the code: the words change more often than it does.

export interface FromHtml {
  html: string;
  base_url?: string;
  max_chars?: number;
}

export interface Page {
  title: string;
  markdown: string;
  links: { text: string; url: string }[];
  truncated: boolean;
}

export interface Outline {
  markdown: string;
}

export interface Heading {
  level: number;
  text: string;
  line: number;
  children: Heading[];
}

export const MAX_CHARS = 200_000;
export const DEFAULT_CHARS = 20_000;

export const fromHtml: Toolhold.Tool = {
  name: "from_html",
  title: "HTML to Markdown",
  description:
    "Turns the HTML of a page into Markdown: headings, lists, tables, code and links stay; scripts, styles and " +
    "hidden parts go. Use it to read a page that another tool fetched. Returns the title, the Markdown and the links.",
  inputSchema: JSON.stringify({
    type: "object",
    properties: {
      html: { type: "string", description: "The HTML, a whole page or a part of one." },
      base_url: { type: "string", description: "The page's address, against which relative links are resolved." },
      max_chars: {
        type: "integer",
        minimum: 1,
        maximum: MAX_CHARS,
        description: `At most so many characters of Markdown come back (${DEFAULT_CHARS} if not given).`,
      },
    },
    required: ["html"],
    additionalProperties: false,
  }),
  outputSchema: JSON.stringify({
    type: "object",
    properties: {
      title: { type: "string", description: "The page's title, empty if it has none." },
      markdown: { type: "string" },
      links: {
        type: "array",
        description: "The links of the Markdown in their order, each address once.",
        items: {
          type: "object",
          properties: { text: { type: "string" }, url: { type: "string" } },
          required: ["text", "url"],
          additionalProperties: false,
        },
      },
      truncated: { type: "boolean", description: "Whether the page goes on after the Markdown." },
    },
    required: ["title", "markdown", "links", "truncated"],
    additionalProperties: false,
  }),
  annotations: { readOnly: true, idempotent: true },
  examples: [
    {
      task: "What does this page say? <h1>News</h1><p>See <a href='/a'>this</a>.</p> It is from https://example.org/",
      arguments: JSON.stringify({
        html: "<h1>News</h1><p>See <a href='/a'>this</a>.</p>",
        base_url: "https://example.org/",
      } satisfies FromHtml),
      output: JSON.stringify({
        title: "News",
        markdown: "# News\n\nSee [this](https://example.org/a).",
        links: [{ text: "this", url: "https://example.org/a" }],
        truncated: false,
      } satisfies Page),
      answer: "The page is headed News and links to https://example.org/a.",
    },
  ],
};

export const outline: Toolhold.Tool = {
  name: "outline",
  title: "Outline of a Markdown text",
  description:
    "Returns the headings of a Markdown text as a tree, each with its level and its line, to see what a long text " +
    "is about before reading parts of it.",
  inputSchema: JSON.stringify({
    type: "object",
    properties: { markdown: { type: "string", description: "The Markdown text." } },
    required: ["markdown"],
    additionalProperties: false,
  }),
  outputSchema: JSON.stringify({
    type: "object",
    properties: { headings: { type: "array", items: { $ref: "#/$defs/heading" } } },
    required: ["headings"],
    additionalProperties: false,
    $defs: {
      heading: {
        type: "object",
        properties: {
          level: { type: "integer", description: "1 to 6." },
          text: { type: "string" },
          line: { type: "integer", description: "The line of the heading, the first is 1." },
          children: { type: "array", items: { $ref: "#/$defs/heading" } },
        },
        required: ["level", "text", "line", "children"],
        additionalProperties: false,
      },
    },
  }),
  annotations: { readOnly: true, idempotent: true },
  examples: [
    {
      task: "Which sections has this text? # Guide\n\n## Install\n\ntext",
      arguments: JSON.stringify({ markdown: "# Guide\n\n## Install\n\ntext" } satisfies Outline),
      output: JSON.stringify({
        headings: [
          { level: 1, text: "Guide", line: 1, children: [{ level: 2, text: "Install", line: 3, children: [] }] },
        ],
      } satisfies { headings: Heading[] }),
      answer: "The text Guide has one section: Install.",
    },
  ],
};
