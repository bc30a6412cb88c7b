// Tools of a Toolhold module from typed functions, for JavaScript and TypeScript:
//
//   export const tools = offer(
//     tool({
//       name: "shout",
//       description: "Writes a text in capital letters.",
//       input: { text: string("The text to shout.") },
//       output: string(),
//       run: ({ text }) => text.toUpperCase(),
//     }),
//   );
//
// `input` and `output` become the tool's schemas, and in TypeScript (tools.d.ts) also the types of `run` and of the
// examples. This folder is yours to change.

// Each type takes a description and further keywords of JSON Schema: integer("How many.", { minimum: 1 }).
const type = (json) => (description, keywords) => ({
  json: { ...json, ...(description && { description }), ...keywords },
});

export const string = type({ type: "string" });
export const integer = type({ type: "integer" });
export const number = type({ type: "number" });
export const boolean = type({ type: "boolean" });
export const any = type({});

export const array = (items, description, keywords) =>
  type({ type: "array", items: items.json })(description, keywords);

export const oneOf = (values, description) => type({ enum: values })(description);

export const nullable = (schema) => ({ json: { anyOf: [schema.json, { type: "null" }] } });

// What is of one of these types: union(string(), array(string())).
export const union = (...schemas) => ({ json: { anyOf: schemas.map(({ json }) => json) } });

// The values of an object whose keys are data.
export const record = (values, description) =>
  type({ type: "object", additionalProperties: values.json })(description);

export const object = (properties, description) => {
  const required = Object.keys(properties).filter((key) => !properties[key].isOptional);
  return type({
    type: "object",
    properties: Object.fromEntries(Object.entries(properties).map(([key, schema]) => [key, schema.json])),
    ...(required.length > 0 && { required }),
    additionalProperties: false,
  })(description);
};

// A property that may be left out.
export const optional = (schema) => ({ ...schema, isOptional: true });

export const tool = (definition) => definition;

// What `module.js` or `module.ts` exports as `tools`.
export const offer = (...offered) => ({
  listTools: () => offered.map(describe),

  call(invocation) {
    const found = offered.find(({ name }) => name === invocation.tool);
    if (!found) {
      const names = offered.map(({ name }) => name).join(", ");
      throw correctable(`no tool \`${invocation.tool}\` here; there is: ${names}`);
    }
    const failed = (thrown) => {
      // What has a class, as the errors of `fetch` and those below, is told as it is.
      if (classes.includes(thrown?.class) && typeof thrown.message === "string") throw thrown;
      // Otherwise the instance would end with a trap, which says nothing.
      if (!(thrown instanceof Error)) throw fatal(`${found.name} threw ${inWords(thrown)}`);
      const place = thrown.stack?.split("\n")[0]?.trim();
      throw fatal(`${found.name} threw ${thrown.name}: ${thrown.message}${place ? ` (${place})` : ""}`);
    };
    try {
      // The host has checked the arguments against the schema.
      const result = found.run(JSON.parse(invocation.arguments));
      return typeof result?.then === "function" ? result.then(ended, failed) : ended(result);
    } catch (thrown) {
      return failed(thrown);
    }
  },
});

const classes = ["correctable", "retryable", "fatal"];

const inWords = (thrown) => {
  try {
    return typeof thrown === "object" ? JSON.stringify(thrown) : String(thrown);
  } catch {
    return "an object that is no error";
  }
};

const ended = (result) => ({ tag: "value", val: JSON.stringify(result ?? null) });

const describe = (tool) => ({
  name: tool.name,
  title: tool.title,
  description: tool.description,
  inputSchema: JSON.stringify(object(tool.input).json),
  outputSchema: tool.output && JSON.stringify(tool.output.json),
  annotations: { readOnly: false, idempotent: false, destructive: false, openWorld: false, ...tool.annotations },
  examples: (tool.examples ?? []).map((example) => ({
    ...example,
    arguments: JSON.stringify(example.arguments),
    output: JSON.stringify(example.output),
  })),
});

// A failure that the model can mend by changing the call: `throw correctable(…)`, and say how.
export const correctable = (message) => ({ class: "correctable", message });

// A failure after which the same call may work later.
export const retryable = (message) => ({ class: "retryable", message });

// A failure that only the operator can mend, by configuring or granting something.
export const fatal = (message) => ({ class: "fatal", message });
