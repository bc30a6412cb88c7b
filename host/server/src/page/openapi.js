// What an OpenAPI description says, without a screen: operations, types in words, examples.

const METHODS = ["get", "post", "put", "patch", "delete"];
/** Schemas may refer to themselves. */
const MAX_DEPTH = 8;

/** `[{tag, operations: [{id, method, path, operation}]}]`, in the description's order. */
export function parts(description) {
  const tags = new Map();
  for (const [path, methods] of Object.entries(description.paths ?? {})) {
    for (const method of METHODS) {
      const operation = methods[method];
      if (!operation) continue;
      const [tag = "other"] = operation.tags ?? [];
      const id = `${method}${path}`.replace(/[^a-z0-9]+/gi, "-").replace(/-$/, "");
      if (!tags.has(tag)) tags.set(tag, []);
      tags.get(tag).push({ id, method: method.toUpperCase(), path, operation });
    }
  }
  return [...tags].map(([tag, operations]) => ({ tag, operations }));
}

/** A schema with its reference followed and its parts put together. */
export function whole(description, schema, depth = 0) {
  if (!schema || typeof schema !== "object" || depth > MAX_DEPTH) return {};
  if (schema.$ref) {
    const { $ref, ...own } = schema;
    return { ...whole(description, at(description, $ref), depth + 1), ...own };
  }
  if (!schema.allOf) return schema;
  const { allOf, ...own } = schema;
  const all = allOf.map((part) => whole(description, part, depth + 1));
  return {
    type: "object", ...own,
    required: [...(own.required ?? []), ...all.flatMap((part) => part.required ?? [])],
    properties: Object.assign({}, ...all.map((part) => part.properties ?? {}), own.properties),
  };
}

function at(description, reference) {
  return reference.replace(/^#\//, "").split("/").reduce((value, name) => value?.[name], description);
}

/** What a value of a schema is, in words. */
export function typeOf(description, schema, depth = 0) {
  if (!schema || depth > MAX_DEPTH) return "anything";
  if (schema.$ref) {
    const { type, enum: values, oneOf } = whole(description, schema);
    return type === "object" || oneOf ? schema.$ref.split("/").at(-1) : typeOf(description, { type, enum: values }, depth + 1);
  }
  const choices = schema.oneOf ?? schema.anyOf;
  if (choices) return either(choices.map((choice) => typeOf(description, choice, depth + 1)));
  if (schema.enum) return either(schema.enum.map((value) => JSON.stringify(value)));
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  const types = [schema.type ?? []].flat();
  if (!types.length) return schema.properties || schema.allOf ? "object" : "anything";
  return either(types.map((type) => {
    if (type === "array") return `list of ${typeOf(description, schema.items, depth + 1)}`;
    if (type === "string" && schema.format) return schema.format === "uuid" ? "UUID" : schema.format;
    return type;
  }));
}

function either(types) {
  return [...new Set(types)].join(" or ");
}

/** Bounds and the default, in words. */
export function bounds(schema) {
  const said = [];
  const { minimum, maximum } = schema;
  if (maximum !== undefined) said.push(`${minimum ?? "…"} to ${maximum}`);
  else if (minimum) said.push(`at least ${minimum}`);
  const preset = JSON.stringify(schema.default ?? null);
  // What stands for nothing at all says nothing.
  if (!["null", '""', "[]", "{}"].includes(preset) && preset.length < 60) said.push(`default ${preset}`);
  return said.join(", ");
}

/** A value that a schema allows: its own example, or what it needs at least. */
export function example(description, schema, depth = 0) {
  const { example: own, examples, enum: values, oneOf, anyOf, properties, required, ...rest } = whole(description, schema);
  if (own !== undefined) return own;
  if (examples?.length) return examples[0];
  if (depth > MAX_DEPTH) return null;
  if (values) return values[0];
  const choices = oneOf ?? anyOf;
  if (choices) {
    const some = choices.find((choice) => choice.type !== "null") ?? choices[0];
    return example(description, some, depth + 1);
  }
  const type = [rest.type ?? (properties ? "object" : null)].flat().find((name) => name !== "null");
  if (type === "object") {
    return Object.fromEntries((required ?? []).map((name) => [name, example(description, properties?.[name], depth + 1)]));
  }
  if (type === "array") return [];
  if (type === "integer" || type === "number") return rest.minimum ?? 0;
  if (type === "boolean") return false;
  if (type === "string") return rest.format === "uuid" ? "00000000-0000-0000-0000-000000000000" : "…";
  return null;
}

/** The body of a request, as far as it has one: `{type, schema}`. */
export function bodyOf(operation) {
  const types = Object.entries(operation.requestBody?.content ?? {});
  const [type, content] = types.find(([name]) => name !== "application/octet-stream") ?? types[0] ?? [];
  return type ? { type, schema: content.schema ?? {} } : null;
}

/** A request as one types it at a shell. */
export function shellCommand(description, origin, { method, path, operation }) {
  const needed = (operation.parameters ?? []).filter((it) => it.required);
  const filled = path.replace(/\{(\w+)\}/g, (_, name) => `$${name.toUpperCase()}`);
  const query = needed.filter((it) => it.in === "query").map((it) => `${it.name}=$${it.name.toUpperCase()}`).join("&");
  const lines = [`curl${method === "GET" ? "" : ` -X ${method}`} "${origin}${filled}${query ? `?${query}` : ""}"`];
  if (operation.security?.length) lines.push('-H "Authorization: Bearer $KEY"');
  for (const { name } of needed.filter((it) => it.in === "header")) lines.push(`-H "${name}: …"`);
  const body = bodyOf(operation);
  if (body) {
    lines.push(`-H "Content-Type: ${body.type}"`);
    lines.push(body.type === "application/json"
      ? `-d '${JSON.stringify(example(description, body.schema)).replaceAll("'", "'\\''")}'`
      : "--data-binary @FILE");
  }
  return lines.join(" \\\n  ");
}
