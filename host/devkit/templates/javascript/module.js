// A Toolhold module: one tool. Replace it with yours; README.md says how to build and try it.
//
// The top level runs once, during the build, and is in memory when a call begins. Every call is a
// fresh instance. A tool may return a promise and send HTTP requests (docs/modules.md, "HTTP"), and
// `console` writes to standard error. There are no timers and no Intl here.
import { array, integer, object, offer, optional, string, tool } from "./toolhold/tools.js";

const frequency = object({ word: string(), count: integer() });

// Descriptions are for the model: it chooses and fills the tool by them.
const wordFrequency = tool({
  name: "word_frequency",
  title: "Word frequency",
  description: "Counts how often each word occurs in a text and returns the most frequent ones.",
  input: {
    text: string("The text to count in."),
    top: optional(integer("How many words to return (10 if not given).", { minimum: 1, maximum: 1000 })),
  },
  output: object({
    words: array(frequency, "The most frequent words, most frequent first."),
    distinct: integer("How many different words there are."),
  }),
  annotations: { readOnly: true, idempotent: true },
  examples: [
    {
      task: "Which word is most frequent in: to be or not to be, to",
      arguments: { text: "to be or not to be, to", top: 1 },
      output: { words: [{ word: "to", count: 3 }], distinct: 4 },
      answer: 'The most frequent word is "to": it occurs 3 times.',
    },
  ],
  run({ text, top = 10 }) {
    const counts = new Map();
    for (const [word] of text.toLowerCase().matchAll(/[\p{L}\p{N}]+(?:'[\p{L}\p{N}]+)*/gu)) {
      counts.set(word, (counts.get(word) ?? 0) + 1);
    }
    const words = [...counts]
      .map(([word, count]) => ({ word, count }))
      .sort((a, b) => b.count - a.count || (a.word < b.word ? -1 : 1));
    return { words: words.slice(0, top), distinct: counts.size };
  },
});

// What the component exports.
export const tools = offer(wordFrequency);
