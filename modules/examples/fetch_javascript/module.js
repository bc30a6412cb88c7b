// The request of ../README.md in JavaScript.

const tool = {
  name: "fetch",
  title: "Fetch",
  description: "Sends a request and returns what the server answered.",
  inputSchema: JSON.stringify({
    type: "object",
    properties: {
      url: { type: "string", description: "Where to send it, with https://." },
      body: { type: "string", description: "What to post. Without it, the URL is got." },
    },
    required: ["url"],
    additionalProperties: false,
  }),
  annotations: { openWorld: true },
  examples: [],
};

export const tools = {
  listTools() {
    return [tool];
  },

  async call(invocation) {
    if (invocation.tool !== tool.name) throw { class: "correctable", message: `no tool \`${invocation.tool}\` here` };
    const { url, body } = JSON.parse(invocation.arguments);
    const response = await fetch(url, { method: body === undefined ? "GET" : "POST", body });
    console.log("status", response.status);
    const text = await response.text();
    const answer = {
      status: response.status,
      type: response.headers.get("content-type") ?? "",
      text: [...text.slice(0, 2000)].slice(0, 1000).join(""),
    };
    return { tag: "value", val: JSON.stringify(answer) };
  },
};
