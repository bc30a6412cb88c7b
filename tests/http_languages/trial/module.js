// Requests as authors write them, with what they forget.
import { offer, string, tool } from "./toolhold/tools.js";

const MANY = 12;

const ways = {
  async "unread"(url) {
    const responses = [];
    for (let index = 0; index < MANY; index++) responses.push(await fetch(`${url}/long`));
    const texts = await Promise.all(responses.map((response) => response.text()));
    return texts.map((text) => text.length);
  },
  async "together"(url) {
    const responses = await Promise.all(Array.from({ length: MANY }, () => fetch(`${url}/text`)));
    return responses.map(({ status }) => status);
  },
  async "cancelled"(url) {
    const found = [];
    for (let index = 0; index < MANY; index++) {
      const response = await fetch(`${url}/trickle`);
      await response.body.cancel();
      found.push(response.bodyUsed);
    }
    return found;
  },
  async "read after cancel"(url) {
    const response = await fetch(`${url}/text`);
    await response.body.cancel();
    return await response.text();
  },
  async "read twice"(url) {
    const response = await fetch(`${url}/text`);
    await response.text();
    return await response.text();
  },
  async "redirect"(url) {
    const response = await fetch(`${url}/hop`);
    return [response.status, await response.text()];
  },
  "redirect by hand": (url) => fetch(url, { redirect: "manual" }),
  "too many redirects": (url) => fetch(`${url}/loop`),
  "a body of 17 MiB": async (url) => (await fetch(`${url}/huge`)).text(),
  "a body with GET": (url) => fetch(url, { body: "x" }),
  "an object as body": (url) => fetch(url, { method: "POST", body: {} }),
  "a header's name": (url) => fetch(url, { headers: { "a b": "x" } }),
  "a header's end of line": (url) => fetch(url, { headers: { a: "x\r\nb: c" } }),
  "headers of 200 KiB": (url) => fetch(url, { headers: { a: "x".repeat(200 << 10) } }),
  "a time": (url) => fetch(`${url}/slow`, { signal: AbortSignal.timeout(300) }),
  async "a time in the body"(url) {
    const response = await fetch(`${url}/trickle`, { signal: AbortSignal.timeout(300) });
    return await response.text();
  },
  async "failures"(url) {
    const large = new Uint8Array(2 << 20);
    const failures = [];
    for (let index = 0; index < 9; index++) {
      for (const [target, body] of [[`${url}/cut`, "x"], [`${url}/sent`, large], ["https://elsewhere.example/x", "x"]]) {
        try {
          await (await fetch(target, { method: "POST", body })).text();
        } catch (error) {
          failures.push(error);
        }
      }
    }
    return [failures.length, (await fetch(`${url}/text`)).status];
  },
  async "a time of many posts"(url) {
    const signal = AbortSignal.timeout(300);
    const posts = Array.from({ length: MANY }, () =>
      fetch(`${url}/counted`, { method: "POST", body: "x", signal }).catch(({ name }) => name),
    );
    const ended = await Promise.all(posts);
    return [new Set(ended).size, ended[0], await (await fetch(`${url}/counted`)).json()];
  },
  async "a time while another is read"(url) {
    const begun = Date.now();
    const signal = AbortSignal.timeout(300);
    let took;
    signal.onabort = () => (took = Date.now() - begun);
    const slow = fetch(`${url}/slow`, { signal }).catch(({ name }) => name);
    const text = fetch(`${url}/second`).then((response) => response.text());
    return [await slow, (await text).length, took < 800];
  },
  async "an answer while another is read"(url) {
    const soon = fetch(`${url}/soon`, { signal: AbortSignal.timeout(300) }).then(({ status }) => status);
    const text = fetch(`${url}/second`).then((response) => response.text());
    return [await soon, (await text).length];
  },
  "the first of two times": (url) =>
    fetch(`${url}/slow`, { signal: AbortSignal.any([AbortSignal.timeout(30_000), AbortSignal.timeout(300)]) }),
  "timeout of a large body": (url) =>
    fetch(`${url}/slow`, { method: "POST", body: new Uint8Array(12 << 20), signal: AbortSignal.timeout(300) }),
  "the host's time": (url) => fetch(`${url}/slow`, { signal: AbortSignal.timeout(30_000) }),
  async "a time of one of many"(url) {
    const slow = fetch(`${url}/slow`, { signal: AbortSignal.timeout(300) }).catch(({ name }) => name);
    const others = Array.from({ length: MANY }, () => fetch(`${url}/text`));
    return [await slow, (await Promise.all(others)).length];
  },
  async "abort all"(url) {
    const controller = new AbortController();
    const slow = Array.from({ length: MANY }, () =>
      fetch(`${url}/slow`, { signal: controller.signal }).catch((error) => error.message),
    );
    controller.abort(new Error("enough"));
    const ended = await Promise.all(slow);
    return [new Set(ended).size, ended[0], (await fetch(`${url}/text`)).status];
  },
  "aborted before": (url) => fetch(url, { signal: AbortSignal.abort() }),
  "no signal": (url) => fetch(url, { signal: {} }),
};

const run = tool({
  name: "run",
  description: "d",
  input: { how: string(), url: string() },
  async run({ how, url }) {
    try {
      return { found: await ways[how](url) };
    } catch (error) {
      return { thrown: error.name, class: error.class, message: error.message };
    }
  },
});

export const tools = offer(run);
