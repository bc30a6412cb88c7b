// The wordcount of ../README.md in JavaScript.

const count = {
  name: "count",
  title: "Count words",
  description:
    "Counts the words, lines and characters of a text and finds its longest word. Use it instead of counting by eye.",
  inputSchema: JSON.stringify({
    type: "object",
    properties: { text: { type: "string", description: "The text to count in." } },
    required: ["text"],
    additionalProperties: false,
  }),
  outputSchema: JSON.stringify({
    type: "object",
    properties: {
      words: { type: "integer", description: "Runs of characters that are not white space." },
      lines: { type: "integer", description: "Lines, each ended by a line feed or the end of the text." },
      characters: { type: "integer", description: "Unicode characters." },
      longest: { type: "string", description: "The longest word, the first of them." },
    },
    required: ["words", "lines", "characters", "longest"],
    additionalProperties: false,
  }),
  annotations: { readOnly: true, idempotent: true, destructive: false, openWorld: false },
  examples: [
    {
      task: "How many words are in: the quick brown fox",
      arguments: JSON.stringify({ text: "the quick brown fox" }),
      output: JSON.stringify({ words: 4, lines: 1, characters: 19, longest: "quick" }),
      answer: "There are 4 words.",
    },
  ],
};

export const tools = {
  listTools: () => [count],

  call(invocation) {
    if (invocation.tool !== count.name) {
      throw {
        class: "correctable",
        message: `no tool \`${invocation.tool}\` here; there is: ${count.name}`,
      };
    }
    const { text } = JSON.parse(invocation.arguments);
    return { tag: "value", val: JSON.stringify(counted(text)) };
  },
};

// `\s` is another set: it has U+FEFF and lacks U+0085. `u`, so that a match has whole characters.
const WORD = /\P{White_Space}+/gu;

function counted(text) {
  let words = 0;
  let longest = "";
  let length = 0;
  for (const [word] of text.matchAll(WORD)) {
    words += 1;
    const characters = codePoints(word);
    if (characters > length) [longest, length] = [word, characters];
  }
  return { words, lines: lines(text), characters: codePoints(text), longest };
}

function lines(text) {
  let ended = 0;
  for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", at + 1)) ended += 1;
  return text === "" || text.endsWith("\n") ? ended : ended + 1;
}

function codePoints(text) {
  let characters = text.length;
  for (let at = 0; at + 1 < text.length; at++) {
    // A surrogate pair is one character in two units.
    if ((text.charCodeAt(at) & 0xfc00) === 0xd800) characters -= 1;
  }
  return characters;
}
