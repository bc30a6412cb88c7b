/// <reference path="../toolhold.d.ts" />
// The types of tools.js.

/** What values of type `T` look like, as a JSON Schema. */
export interface Schema<T> {
  readonly json: Readonly<Record<string, unknown>>;
  /** For the compiler only; there is no such property. */
  readonly type: T;
}

/** A property that may be left out. */
export interface Optional<T> extends Schema<T> {
  readonly isOptional: true;
}

/** The type that a schema describes. */
export type Infer<S> = S extends Schema<infer T> ? T : never;

type Properties = Readonly<Record<string, Schema<unknown>>>;

/** The object with these properties. */
export type Value<P extends Properties> = {
  [K in keyof P as P[K] extends Optional<unknown> ? never : K]: Infer<P[K]>;
} & { [K in keyof P as P[K] extends Optional<unknown> ? K : never]?: Infer<P[K]> };

/** Further keywords of JSON Schema, such as `minimum` and `maxLength`. */
type Keywords = Readonly<Record<string, unknown>>;

export function string(description?: string, keywords?: Keywords): Schema<string>;
export function integer(description?: string, keywords?: Keywords): Schema<number>;
export function number(description?: string, keywords?: Keywords): Schema<number>;
export function boolean(description?: string, keywords?: Keywords): Schema<boolean>;
/** Any JSON. */
export function any(description?: string, keywords?: Keywords): Schema<unknown>;
export function array<T>(items: Schema<T>, description?: string, keywords?: Keywords): Schema<T[]>;
export function oneOf<const V extends string | number | boolean | null>(
  values: readonly V[],
  description?: string,
): Schema<V>;
export function nullable<T>(schema: Schema<T>): Schema<T | null>;
/** What is of one of these types: `union(string(), array(string()))`. */
export function union<const S extends readonly Schema<unknown>[]>(...schemas: S): Schema<Infer<S[number]>>;
/** An object whose keys are data. */
export function record<T>(values: Schema<T>, description?: string): Schema<Record<string, T>>;
export function object<const P extends Properties>(properties: P, description?: string): Schema<Value<P>>;
export function optional<T>(schema: Schema<T>): Optional<T>;

/** A tool: what the model is told of it, and the function behind it. */
export interface Tool<P extends Properties, O> {
  /** `[a-z][a-z0-9_]*`, at most 48 bytes. */
  name: string;
  /** For people. */
  title?: string;
  /** For the model: what it does, when to use it, what it returns. */
  description: string;
  /** The arguments by their names. */
  input: P;
  output?: Schema<O>;
  annotations?: Toolhold.Annotations;
  /** Worked examples: small models imitate them. */
  examples?: { task: string; arguments: Value<P>; output: O; answer: string }[];
  /** A failure is thrown as `correctable(…)`, `retryable(…)` or `fatal(…)`; any other is fatal. */
  run(given: Value<P>): O | Promise<O>;
}

export function tool<const P extends Properties, O>(definition: Tool<P, O>): Tool<P, O>;

/** What `module.js` or `module.ts` exports as `tools`. */
export function offer(...tools: Tool<any, any>[]): Toolhold.Tools;

/** A failure that the model can mend by changing the call: say how. */
export function correctable(message: string): Toolhold.ToolError;
/** A failure after which the same call may work later. */
export function retryable(message: string): Toolhold.ToolError;
/** A failure that only the operator can mend, by configuring or granting something. */
export function fatal(message: string): Toolhold.ToolError;
