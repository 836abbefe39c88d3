/**
 * Calls commands of Ensemble through one process, `ensemble admin api`, without dependencies.
 *
 *     const api = await Api.start("queue", { agent: "conductor" });
 *     await api.call("send", { to: ["worker-1"], text: "Count the lines.", task: "task-1" });
 *     for await (const news of api.follow("requests")) console.log(news);
 *     await api.close();
 *
 * docs/guides/api.md explains the calls. {@link receiveWait} serves programs that use ensemble.mts:
 * it waits without polling where the program `ensemble` is installed.
 *
 * @packageDocumentation
 */
import { spawn, type ChildProcessByStdio } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import type { Message, Queue } from "./ensemble.mts";

const PROTOCOL = 1, LOOK_MS = 1_000;

/** An object that a command prints under `--json`. */
export type Line = Record<string, unknown>;
/** Flags and arguments of a command by name. */
export type Params = Record<string, unknown>;

/** Name of the calling agent, and path of the program. */
export interface StartOptions {
  readonly agent?: string;
  readonly program?: string;
}

interface Answer {
  readonly id?: number;
  readonly subscription?: number;
  readonly hello?: { readonly protocol: number; readonly line_bytes_max: number };
  readonly result?: Line[];
  readonly news?: Line;
  readonly error?: { readonly code: string; readonly message: string; readonly hint?: string };
}

/** A refused call. */
export class ApiError extends Error {
  /** A code of docs/reference/exit-codes.md, or `closed`. */
  readonly code: string;

  constructor(code: string, message: string, hint?: string) {
    super(hint ? `${message} (hint: ${hint})` : message);
    this.code = code;
  }
}

/** A running `ensemble admin api`. */
export class Api {
  readonly #process: ChildProcessByStdio<Writable, Readable, null>;
  readonly #listeners = new Map<number, (answer: Answer) => void>();
  readonly #hello = Promise.withResolvers<Answer>();
  #last = 0;
  #lineBytesMax = 0;
  #isOpen = true;

  private constructor(program: string, words: string[]) {
    this.#process = spawn(program, words, { stdio: ["pipe", "pipe", "inherit"] });
    this.#process.on("error", (error) => this.#end(error.message));
    this.#process.stdin.on("error", (error) => this.#end(error.message));
    const lines = createInterface({ input: this.#process.stdout });
    lines.on("line", (line) => {
      const answer = JSON.parse(line) as Answer;
      if (answer.hello) this.#hello.resolve(answer);
      this.#listeners.get(answer.id ?? answer.subscription ?? 0)?.(answer);
    });
    lines.on("close", () => this.#end("the API has ended"));
  }

  /**
   * Starts the program `ensemble`: `program`, the variable ENSEMBLE_BIN, or the first one on PATH.
   *
   * @throws ApiError with the code `closed` where there is no such program.
   */
  static async start(queue: string, given: StartOptions = {}): Promise<Api> {
    const program = given.program || process.env.ENSEMBLE_BIN || "ensemble";
    const agent = given.agent ? ["--as", given.agent] : [];
    const api = new Api(program, ["--queue", queue, ...agent, "admin", "api"]);
    const { hello, error } = await api.#hello.promise;
    if (hello?.protocol === PROTOCOL) {
      api.#lineBytesMax = hello.line_bytes_max;
      return api;
    }
    await api.close();
    throw new ApiError("closed", error?.message ?? `it does not speak version ${PROTOCOL}`);
  }

  /** The objects that a command prints under `--json`. `method` is its words. */
  async call(method: string, params: Params = {}): Promise<Line[]> {
    const { promise, resolve } = Promise.withResolvers<Answer>();
    const id = this.#ask(method, params, resolve);
    const { result, error } = await promise.finally(() => this.#listeners.delete(id));
    if (error) throw new ApiError(error.code, error.message, error.hint);
    return result ?? [];
  }

  /** The first news of `mail`, `states`, `requests` or `events`; undefined after the time-out. */
  async wait(to: string, seconds: number, params: Params = {}): Promise<Line | undefined> {
    const timeout = { to, timeout_seconds: Math.ceil(seconds) };
    return this.call("wait", { ...params, ...timeout }).then(([news]) => news, (error) => {
      if (error.code !== "nothing") throw error;
      return undefined;
    });
  }

  /** News as they happen, until the caller stops to iterate. */
  async *follow(to: string, params: Params = {}): AsyncGenerator<Line, void, undefined> {
    const arrived: Answer[] = [];
    let wake = () => {};
    const id = this.#ask("subscribe", { ...params, to }, (answer) => {
      arrived.push(answer);
      wake();
    });
    try {
      for (;;) {
        const { promise, resolve } = Promise.withResolvers<void>();
        wake = resolve;
        if (arrived.length === 0) await promise;
        const { news, error } = arrived.shift()!;
        if (error) throw new ApiError(error.code, error.message, error.hint);
        if (news) yield news;
      }
    } finally {
      this.#listeners.delete(id);
      if (this.#isOpen) await this.call("unsubscribe", { subscription: id });
    }
  }

  /** Ends the process: calls at work are finished first. */
  async close(): Promise<void> {
    const isRunning = this.#process.pid !== undefined && this.#process.exitCode === null;
    const ended = isRunning ? once(this.#process, "exit") : undefined;
    this.#process.stdin.end();
    await ended;
  }

  #ask(method: string, params: Params, listener: (answer: Answer) => void): number {
    if (!this.#isOpen) throw new ApiError("closed", "the API has ended");
    const id = ++this.#last, line = `${JSON.stringify({ id, method, params })}\n`;
    if (Buffer.byteLength(line) > this.#lineBytesMax) {
      // The answer would not say which call it is for.
      throw new ApiError("too_large", `a call has at most ${this.#lineBytesMax} bytes`);
    }
    this.#listeners.set(id, listener);
    this.#process.stdin.write(line);
    return id;
  }

  #end(message: string): void {
    this.#isOpen = false;
    const answer = { error: { code: "closed", message } };
    this.#hello.resolve(answer);
    for (const listener of this.#listeners.values()) listener(answer);
  }
}

/** Takes the next due message and waits for it: by `api`, else by a look each second. */
export async function receiveWait(
  queue: Queue, mailbox: string, holder: string, seconds: number, api?: Api,
): Promise<Message | undefined> {
  let known: unknown;
  for (const end = Date.now() + seconds * 1000; ; ) {
    const message = queue.receive(mailbox, holder), left = end - Date.now();
    if (message || left <= 0) return message;
    const news = await api?.wait("mail", left / 1000, { mailbox, where: { state: "queued" } });
    // There is no API, or what waits may not be received yet.
    if (news?.id === known) await sleep(Math.max(0, Math.min(LOOK_MS, end - Date.now())));
    known = news?.id;
  }
}
