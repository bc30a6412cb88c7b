// The request of ../README.md in TypeScript.

interface Arguments {
  url: string;
  body?: string;
}

const tool: Toolhold.Tool = {
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

export const tools: Toolhold.Tools = {
  listTools() {
    return [tool];
  },

  async call(invocation) {
    if (invocation.tool !== tool.name) {
      throw { class: "correctable", message: `no tool \`${invocation.tool}\` here` } satisfies Toolhold.ToolError;
    }
    const { url, body } = JSON.parse(invocation.arguments) as Arguments;
    const response = await fetch(url, body === undefined ? {} : { method: "POST", body });
    const text = await response.text();
    const answer = {
      status: response.status,
      type: response.headers.get("content-type") ?? "",
      text: [...text.slice(0, 2000)].slice(0, 1000).join(""),
    };
    return { tag: "value", val: JSON.stringify(answer) };
  },
};
