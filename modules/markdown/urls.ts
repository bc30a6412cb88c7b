// Links as the model should see them. The engine has no `URL`.

/** RFC 3986, appendix B. */
const PARTS = /^(?:([a-z][a-z0-9+.-]*):)?(?:\/\/([^/?#]*))?([^?#]*)(\?[^#]*)?(#.*)?$/is;
/** What a reader can follow. `javascript:` and `data:` are not for reading. */
const FOLLOWED = new Set(["http", "https", "mailto", "tel", "ftp"]);
/** A longer address is data, not a place. */
const MAX_LENGTH = 2_000;

/** The address that `href` means on the page `base`; undefined if it leads nowhere. */
export function resolve(href: string, base: string | undefined): string | undefined {
  // Browsers drop these, so pages hide schemes with them.
  const cleaned = href.replace(/[\t\n\r]/g, "").trim();
  if (cleaned === "" || cleaned.length > MAX_LENGTH) return undefined;
  const [, scheme, authority, path = "", query = "", fragment = ""] = PARTS.exec(cleaned) ?? [];
  if (scheme !== undefined) {
    return FOLLOWED.has(scheme.toLowerCase()) ? encode(cleaned) : undefined;
  }
  if (base === undefined) return encode(cleaned);
  const [, baseScheme, baseAuthority, basePath = "", baseQuery = ""] = PARTS.exec(base) ?? [];
  if (baseScheme === undefined || baseAuthority === undefined) return encode(cleaned);
  if (authority !== undefined) return encode(`${baseScheme}:${cleaned}`);
  const origin = `${baseScheme}://${baseAuthority}`;
  if (path === "") return encode(origin + (basePath || "/") + (query || baseQuery) + fragment);
  const whole = path.startsWith("/") ? path : basePath.slice(0, basePath.lastIndexOf("/") + 1) + path;
  return encode(origin + withoutDots(whole) + query + fragment);
}

function withoutDots(path: string): string {
  const segments: string[] = [];
  const parts = path.split("/");
  parts.forEach((part, at) => {
    const last = at === parts.length - 1;
    if (part === "..") segments.length > 1 && segments.pop();
    else if (part !== ".") segments.push(part);
    if (last && (part === "." || part === "..")) segments.push("");
  });
  const joined = segments.join("/");
  return joined.startsWith("/") ? joined : `/${joined}`;
}

/** So that a blank or a bracket does not end the link in Markdown. */
function encode(url: string): string {
  return url.replace(/[\s()<>]/g, (found) => `%${found.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`);
}
