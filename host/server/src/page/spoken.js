// The final answer while it is written: the string `output` (or `final_answer`) of a JSON object that is not
// whole yet, or the text itself where the model writes no JSON.

/** Whether an answer may be shown while it is written: a shield of the output has to see all of it before. */
export function speaks(begun) {
  return Boolean(begun) && !begun.request.policy?.screens?.includes("output");
}

const ANSWERS = ["output", "final_answer"];

export function spoken(text) {
  const start = text.search(/\S/);
  if (start < 0) return "";
  if (text[start] !== "{") return text[start] === "`" || text[start] === "<" ? "" : text;
  let depth = 0;
  let name = null;
  for (let at = start; at < text.length; at++) {
    const c = text[at];
    if (c === '"') {
      const [string, end] = stringAt(text, at);
      const isName = depth === 1 && /^\s*:/.test(text.slice(end, end + 8));
      if (isName) name = string;
      else if (depth === 1 && ANSWERS.includes(name) && /:\s*$/.test(text.slice(Math.max(0, at - 8), at))) return string;
      at = end - 1;
    } else if (c === "{" || c === "[") depth += 1;
    else if (c === "}" || c === "]") depth -= 1;
  }
  return "";
}

/** The string that begins at `at`, as far as it is written, and where it ends. */
function stringAt(text, at) {
  let end = at + 1;
  while (end < text.length && text[end] !== '"') {
    const length = text[end] !== "\\" ? 1 : text[end + 1] === "u" ? 6 : 2;
    // An escape that is not whole yet.
    if (end + length > text.length) return [read(text.slice(at + 1, end)), text.length];
    end += length;
  }
  return [read(text.slice(at + 1, end)), end + 1];
}

function read(raw) {
  try {
    return JSON.parse(`"${raw}"`);
  } catch {
    // A line break as it is, which some models write.
    return raw;
  }
}
