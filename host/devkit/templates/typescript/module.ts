// A Toolhold module: one tool. Replace it with yours; README.md says how to build and try it.
//
// The top level runs once, during the build, and is in memory when a call begins. Every call is a
// fresh instance. A tool may be `async` and use `fetch` (docs/modules.md, "HTTP"), and `console` writes
// to standard error. There are no timers and no Intl here.

interface Arguments {
  text: string;
  top?: number;
}

interface Frequencies {
  words: { word: string; count: number }[];
  distinct: number;
}

// Descriptions are for the model: it chooses and fills the tool by them.
const wordFrequency: Toolhold.Tool = {
  name: "word_frequency",
  title: "Word frequency",
  description: "Counts how often each word occurs in a text and returns the most frequent ones.",
  inputSchema: JSON.stringify({
    type: "object",
    properties: {
      text: { type: "string", description: "The text to count in." },
      top: {
        type: "integer",
        minimum: 1,
        maximum: 1000,
        description: "How many words to return (10 if not given).",
      },
    },
    required: ["text"],
    additionalProperties: false,
  }),
  outputSchema: JSON.stringify({
    type: "object",
    properties: {
      words: {
        type: "array",
        description: "The most frequent words, most frequent first.",
        items: {
          type: "object",
          properties: { word: { type: "string" }, count: { type: "integer" } },
          required: ["word", "count"],
        },
      },
      distinct: { type: "integer", description: "How many different words there are." },
    },
    required: ["words", "distinct"],
  }),
  annotations: { readOnly: true, idempotent: true },
  examples: [
    {
      task: "Which word is most frequent in: to be or not to be, to",
      arguments: JSON.stringify({ text: "to be or not to be, to", top: 1 } satisfies Arguments),
      output: JSON.stringify({ words: [{ word: "to", count: 3 }], distinct: 4 } satisfies Frequencies),
      answer: 'The most frequent word is "to": it occurs 3 times.',
    },
  ],
};

// What the component exports.
export const tools: Toolhold.Tools = {
  listTools() {
    return [wordFrequency];
  },

  call(invocation) {
    // The host has checked the arguments against the schema.
    const args = JSON.parse(invocation.arguments) as Arguments;
    if (invocation.tool === wordFrequency.name) {
      return { tag: "value", val: JSON.stringify(countWords(args.text, args.top ?? 10)) };
    }
    throw correctable(`no tool \`${invocation.tool}\` here; there is: ${wordFrequency.name}`);
  },
};

function countWords(text: string, top: number): Frequencies {
  if (!(top >= 1 && top <= 1000)) throw correctable("`top` must be between 1 and 1000");
  const counts = new Map<string, number>();
  for (const [word] of text.toLowerCase().matchAll(/[\p{L}\p{N}]+(?:'[\p{L}\p{N}]+)*/gu)) {
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  const words = [...counts]
    .map(([word, count]) => ({ word, count }))
    .sort((a, b) => b.count - a.count || (a.word < b.word ? -1 : 1));
  return { words: words.slice(0, top), distinct: counts.size };
}

// A failure that the model can mend by changing the call: say how. Anything else that is thrown
// ends the instance with a trap, which tells the model nothing.
function correctable(message: string): Toolhold.ToolError {
  return { class: "correctable", message };
}
