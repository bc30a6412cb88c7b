// What a module in TypeScript has besides the language: HTTP to granted origins, and lines on standard error.

interface ResponseInit {
  status?: number;
  statusText?: string;
  headers?: HeadersInit;
}

type HeadersInit = Headers | Record<string, string> | Iterable<readonly [string, string]>;
type BodyInit = string | ArrayBuffer | ArrayBufferView;

interface RequestInit {
  /** `GET` if not given. */
  method?: string;
  headers?: HeadersInit;
  /** A string is sent as UTF-8. */
  body?: BodyInit | null;
  /** Ends the request and the reading of its body: `AbortSignal.timeout(5000)`, or a controller's. */
  signal?: AbortSignal | null;
}

interface AbortEvent {
  readonly type: "abort";
  readonly target: AbortSignal;
}

declare class AbortSignal {
  private constructor();
  static abort(reason?: unknown): AbortSignal;
  /** Aborts when this time is over. */
  static timeout(milliseconds: number): AbortSignal;
  static any(signals: Iterable<AbortSignal>): AbortSignal;
  readonly aborted: boolean;
  readonly reason: any;
  onabort: ((this: AbortSignal, event: AbortEvent) => void) | null;
  addEventListener(type: "abort", act: (this: AbortSignal, event: AbortEvent) => void): void;
  removeEventListener(type: "abort", act: (this: AbortSignal, event: AbortEvent) => void): void;
  throwIfAborted(): void;
}

declare class AbortController {
  readonly signal: AbortSignal;
  abort(reason?: unknown): void;
}

/** Names are case-insensitive, and in lower case where they are listed. */
declare class Headers {
  constructor(from?: HeadersInit);
  append(name: string, value: string): void;
  delete(name: string): void;
  /** The values of this name, joined by `, `. */
  get(name: string): string | null;
  getSetCookie(): string[];
  has(name: string): boolean;
  set(name: string, value: string): void;
  forEach(act: (value: string, name: string, headers: Headers) => void, self?: unknown): void;
  entries(): IterableIterator<[string, string]>;
  keys(): IterableIterator<string>;
  values(): IterableIterator<string>;
  [Symbol.iterator](): IterableIterator<[string, string]>;
}

/** Its body is read once, and at most 16 MiB of it: a larger one is an error. */
declare class Response {
  constructor(body?: BodyInit | null, init?: ResponseInit);
  readonly ok: boolean;
  readonly status: number;
  readonly statusText: string;
  readonly headers: Headers;
  readonly url: string;
  readonly bodyUsed: boolean;
  /** No stream: it only gives up what was not read. */
  readonly body: { cancel(): Promise<void> };
  text(): Promise<string>;
  json(): Promise<any>;
  arrayBuffer(): Promise<ArrayBuffer>;
  bytes(): Promise<Uint8Array>;
}

/**
 * Sends a request to an origin that was granted. It rejects where the request was not granted or there was no
 * response; a response of any status is a response.
 */
declare function fetch(url: string | { toString(): string }, init?: RequestInit): Promise<Response>;

/** Each writes one line to standard error. */
declare const console: {
  log(...values: unknown[]): void;
  info(...values: unknown[]): void;
  debug(...values: unknown[]): void;
  warn(...values: unknown[]): void;
  error(...values: unknown[]): void;
};
