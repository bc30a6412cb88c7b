// The contract between Toolhold and a tool module (wit/toolhold.wit) as TypeScript sees it.

declare namespace Toolhold {
  /** A JSON text (RFC 8259). */
  type Json = string;

  /** What a module exports as `tools`. */
  interface Tools {
    /** The tools this module offers; the same list every time. */
    listTools(): Tool[];
    /** Runs one tool. A failure is thrown as a {@link ToolError}; anything else that is thrown ends the instance with a trap. */
    call(invocation: Invocation): Output | Promise<Output>;
  }

  interface Tool {
    /** `[a-z][a-z0-9_]*`, at most 48 bytes. */
    name: string;
    /** For people. */
    title?: string;
    /** For the model: what it does, when to use it, what it returns. */
    description: string;
    /** JSON Schema of the arguments, `"type": "object"`. */
    inputSchema: Json;
    /** JSON Schema of the result. */
    outputSchema?: Json;
    annotations: Annotations;
    examples: Example[];
  }

  /** Claims about what a tool does to the world. */
  interface Annotations {
    readOnly?: boolean;
    idempotent?: boolean;
    destructive?: boolean;
    openWorld?: boolean;
  }

  /** A worked example: small models imitate it. */
  interface Example {
    task: string;
    arguments: Json;
    output: Json;
    answer: string;
  }

  interface Invocation {
    /** Unique in the run. */
    id: string;
    /** The tool's name without the module. */
    tool: string;
    /** An object that satisfies the input schema. */
    arguments: Json;
    /** What of the run's context the call may see. */
    context: ScopedValue[];
  }

  interface ScopedValue {
    path: string;
    value: Json;
  }

  /** `value` is the result, `message` a data message that picks its own place. */
  type Output = { tag: "value"; val: Json } | { tag: "message"; val: Json };

  type ErrorClass = "correctable" | "retryable" | "fatal";

  interface ToolError {
    /** Whose move it is: the model's, time's, or somebody who configures. */
    class: ErrorClass;
    /** What went wrong and what to do about it. */
    message: string;
    data?: Json;
  }
}

declare module "toolhold:module/current-call@0.1.0" {
  const currentCall: {
    /** The call's reserved properties, such as `_tool` and `_reasoningForCall`: an object. */
    reservedProperties(): Toolhold.Json;
    /** The tool as the caller knows it: a JSON Schema. */
    toolSchema(): Toolhold.Json;
  };
  export default currentCall;
}

declare module "toolhold:module/log@0.1.0" {
  type Level = "trace" | "debug" | "info" | "warn" | "error";
  const log: { write(level: Level, message: string): void };
  export default log;
}

declare module "toolhold:module/progress@0.1.0" {
  const progress: {
    /** `done` of `total` (0 if unknown), with a short note. */
    report(done: number, total: number, note: string): void;
  };
  export default progress;
}
