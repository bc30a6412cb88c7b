// JSON whose numbers stay as they are written. A browser's numbers have 53 bits: 9007199254740993 would be shown as
// 9007199254740992, and a person would approve another call than the one that is made.

/** Before the digits, while JSON.parse and JSON.stringify see a text: no text from outside can begin with it. */
const MARK = `${Array.from(crypto.getRandomValues(new Uint32Array(4))).join("-")}:`;
/** A text, or a number, whichever begins first. */
const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
/** Fewer digits are always exact. */
const EXACT_DIGITS = 15;

/** A number that a browser would round, as it is written. */
export class ExactNumber {
  constructor(digits) {
    this.digits = digits;
  }

  toJSON() {
    return MARK + this.digits;
  }

  toString() {
    return this.digits;
  }
}

/** As JSON.parse; numbers that it would change are an ExactNumber. */
export function parse(text) {
  const marked = text.replace(TOKEN, (token) => (isRounded(token) ? `"${MARK}${token}"` : token));
  if (marked === text) return JSON.parse(text);
  return JSON.parse(marked, (_, value) =>
    typeof value === "string" && value.startsWith(MARK) ? new ExactNumber(value.slice(MARK.length)) : value);
}

/** As JSON.stringify. */
export function stringify(value, indent) {
  return JSON.stringify(value, null, indent)?.replaceAll(new RegExp(`"${MARK}([^"]*)"`, "g"), "$1");
}

function isRounded(token) {
  if (token.startsWith('"')) return false;
  const digits = token.replace(/[eE].*$/, "").replace(/\D/g, "").replace(/^0+/, "");
  if (digits.length <= EXACT_DIGITS && Number.isFinite(Number(token))) return false;
  return String(Number(token)) !== token;
}
