/**
 * A client of the Ensemble queue protocol, version 1, in one file for Node 22.6 or newer.
 *
 *     const queue = new Queue("queue");
 *     queue.send("worker-1", "Count the lines of src/.\n", { from: "dispatch", type: "task" });
 *     for (let message; (message = queue.receive("worker-1", "worker-1")); ) {
 *       console.log(message.body);
 *       queue.settle(message.lease);
 *     }
 *
 * PROTOCOL.md specifies what is on disk. An envelope that is not in the canonical form becomes a
 * dead letter. Node has no flock, so this client refuses chosen ids and mailboxes with a capacity,
 * and releases with a delay. ensemble_api.mts waits for mail where the program `ensemble` is there.
 *
 * @packageDocumentation
 */
import { createHash, randomUUID } from "node:crypto";
import * as fs from "node:fs";
import { basename, dirname, join } from "node:path";

/** An envelope without its body. */
export type Fields = Record<string, string | number | undefined>;

/** A release without a lock is delayed by more than a search for an id takes. */
const BODY_BYTES_MAX = 61_440, ENVELOPE_BYTES_MAX = 65_536, UNLOCKED_DELAY_MS = 2_500;
const RECEIPTS = { new: "stored", front: "stored", cur: "acked", done: "settled", dead: "dead" };
const NAME = "[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", NUMBER = "(?:0|[1-9][0-9]{0,18})";
const WORD = "[A-Za-z][A-Za-z0-9._-]*|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
const QUEUED = RegExp(`^(${NAME})(?:@p([0-9])@e(${NUMBER})@t(${NUMBER}))?\\.yaml$`);
const UUID7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const FIELD = `(\\w+): (?:(${NUMBER}|"(?:[^"\\\\\\n]|\\\\.)*")|(${WORD}))\\n`;
const BLOCK = "\\|2(?<chomp>[+-])\\n(?<block>(?:(?:  .*)?\\n)*)";
const TEXT = `body: (?:${BLOCK}|(?<json>".*")\\n)`;
const ENVELOPE = RegExp(`^(?<head>(?:(?!body:)${FIELD})*)${TEXT}\\.\\.\\.\\n$`);
const BARE = RegExp(`^(?!(?:true|false|yes|no|on|off|null|y|n)$)(?:${WORD})$`, "i");
const SPECIAL = RegExp("[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069"
  + "\\ufeff\\ufffe\\uffff]", "g");
const PASSES = /^(.*_(request|response)|(report|mail|request|board|steps?)\..*)$/;
const DEFAULTS = { version: 1, type: "message", from: "unknown", to: "unknown", priority: 0 };
const HEADERS = ["correlation_id", "causation_id", "task_id", "source"];
const KEYS = `version id type from to created_at correlation_id causation_id task_id attempt \
priority expires_at source traceparent attachment_sha256 attachment_bytes body_length \
body_sha256`.split(" ");

/** One delivery of one message. Its operations are refused once another delivery has begun. */
export type Lease = Readonly<{ mailbox: string; id: string; holder: string; epoch: number }>;

/** A received message. */
export type Message = Readonly<{ lease: Lease; body: string; fields: Fields }>;

/** Fields of the envelope, such as `from`, `type`, `priority` and `task_id`. */
export type SendOptions = Fields & { from?: string; type?: string; priority?: number };

/** A refused operation. */
export class QueueError extends Error {
  /** One of the words that conformance/README.md lists. */
  readonly code: string;

  constructor(code: string, text: string) {
    super(text);
    this.code = code;
  }
}

/** An open queue. With `durability` "process", a power cut may lose what was stored. */
export class Queue {
  readonly root: string;
  readonly power: boolean;

  constructor(root: string, durability: "power" | "process" = "power") {
    this.root = root;
    this.power = durability === "power";
  }

  /**
   * Stores a message under a fresh id.
   *
   * @returns the id
   */
  send(to: string, body: string, options: SendOptions = {}): string {
    const box = this.#box(to), id = newId(), priority = options.priority ?? 0;
    const isLimited = small(join(box, "mailbox.yaml"), "capacity") !== undefined;
    if (isLimited || options.id) fail("refused", "a chosen id or a capacity needs a lock");
    const fields = { ...DEFAULTS, ...options, id, to, priority };
    const target = priority > 0 ? `front/${id}@p${priority}@e0@t0.yaml` : `new/${id}.yaml`;
    this.#write(join(box, target), encode(fields, body));
    return id;
  }

  /** Takes the next due message, if there is one. Broken and expired ones become dead letters. */
  receive(mailbox: string, holder: string): Message | undefined {
    const box = this.#box(mailbox);
    for (const { path, id, epoch } of this.#waiting(box)) {
      const lease = { mailbox, id, holder, epoch }, held = join(box, "cur", file(lease));
      let reason = "expired";
      try {
        if (this.#isGated(path, id, holder, true)) continue;
        fs.renameSync(path, held);
        const message = decode(read(held), id), expires = message.fields.expires_at;
        if (expires === undefined || time(expires) > Date.now()) return { lease, ...message };
      } catch (error) {
        // Another consumer has it, or this one stood still and its lease is over.
        if (isMissing(error)) continue;
        if (!(error instanceof QueueError)) throw error;
        reason = `malformed: ${error.message}`;
      }
      this.#bury(lease, reason);
    }
  }

  /** Marks the work as done. Refused: an open request, a task whose plan is not approved. */
  settle(lease: Lease): void {
    this.#whileHeld(lease, (box, held) => {
      const asked = small(held, "correlation_id") ?? "";
      const request = RegExp(`^${NAME}$`).test(asked) ? asked : lease.id;
      const isDecided = isThere(join(this.root, "requests", request, "decision.yaml"));
      const isOpen = small(held, "type")?.endsWith("_request") && !isDecided;
      if (isOpen) fail("refused", `the request ${request} has no decision`);
      const isGated = this.#isGated(held, lease.id, lease.holder, false);
      if (isGated) fail("refused", `the plan of ${lease.id} is not approved`);
      this.#move(box, lease, `done/${lease.id}.yaml`);
    });
  }

  /** Gives a message back, after some seconds at the soonest, or as a dead letter in the end. */
  release(lease: Lease, delayMs = 0): void {
    const box = this.#box(lease.mailbox), reason = join(box, "dead", `${lease.id}@reason.yaml`);
    const before = small(reason, "redriven") === "true" ? Number(small(reason, "epoch")) : 0;
    const attempts = lease.epoch - before;
    if (attempts >= Number(small(join(box, "mailbox.yaml"), "attempts_max") ?? 5)) {
      return this.deadLetter(lease, `released after ${attempts} attempts`);
    }
    this.#whileHeld(lease, (_, held) => {
      const { priority } = decode(read(held), lease.id).fields;
      const due = Date.now() + Math.max(delayMs, UNLOCKED_DELAY_MS);
      this.#move(box, lease, `front/${lease.id}@p${priority}@e${lease.epoch}@t${due}.yaml`);
    });
  }

  /** Lets the lease run for so many seconds from now. */
  extend(lease: Lease, seconds: number): void {
    if (!(seconds >= 1 && seconds <= 86_400)) fail("invalid", "a lease lasts 1 to 86400 seconds");
    this.#whileHeld(lease, (box, held) => {
      const side = join(box, "lease", `${lease.id}@${lease.epoch}.yaml`);
      const sequence = Number(small(side, "sequence") ?? 0) + 1;
      this.#write(side, `sequence: ${sequence}\nlease_seconds: ${seconds}\n`);
      if (!isThere(held)) fs.rmSync(side, { force: true });
      fs.lstatSync(held);
    });
  }

  /** Gives a message up, with a reason for people. Refused if the message has a reason already. */
  deadLetter(lease: Lease, reason: string): void {
    if (!this.#bury(lease, reason)) fail("refused", "it has a reason: let the lease run out");
  }

  /** The receipt of a message: `stored`, `acked`, `settled`, `dead` or `unknown`. */
  state(mailbox: string, id: string): string {
    const box = this.#box(mailbox), plain = `${name(id)}.yaml`, begin = `${id}@`;
    const holds = (state: string) => isThere(join(box, state, plain)) || (/front|cur/.test(state)
      && fs.readdirSync(join(box, state)).some((entry) => entry.startsWith(begin)));
    const places = [...Object.entries(RECEIPTS), ["front", "stored"]];
    return places.find(([state = ""]) => holds(state))?.[1] ?? "unknown";
  }

  #box(mailbox: string): string {
    const box = join(this.root, "mailbox", name(mailbox));
    for (const place of [this.root, box]) {
      const found = look(place), isSafe = found?.isDirectory() && !(found.mode & 0o002);
      if (!isSafe) fail("refused", `${place} is no directory, or all may write to it`);
    }
    const states = [...Object.keys(RECEIPTS), "lease", "../../tmp"];
    for (const state of states) fs.mkdirSync(join(box, state), { mode: 0o700, recursive: true });
    return box;
  }

  /** The due messages in the order of receipt. */
  #waiting(box: string): { path: string; id: string; epoch: number }[] {
    return ["front", "new"].flatMap((state) => fs.readdirSync(join(box, state))
      .map((entry) => QUEUED.exec(entry) ?? [])
      .filter(([entry, , priority]) => entry && (priority !== undefined) === (state === "front"))
      .map(([entry = "", id = "", priority = "0", epoch = "0", due = "0"]) => ({
        path: join(box, state, entry), id, epoch: Number(epoch) + 1, due: Number(due),
        priority: Number(priority), age: age(join(box, state, entry), id),
      }))
      .filter(({ due }) => due <= Date.now())
      .sort((a, b) => b.priority - a.priority || a.age - b.age));
  }

  /** Whether the plan of a message's task is missing; one may be taken to be planned. */
  #isGated(path: string, id: string, holder: string, mayPlan: boolean): boolean {
    const gates = join(this.root, "gates");
    if (!isThere(gates)) return false;
    const task = taskOf(path, id);
    if (task === undefined) return false;
    const digest = createHash("sha256").update(task).digest("hex").slice(0, 40);
    const stem = RegExp(`^${NAME}$`).test(task) ? task : `t-${digest}`;
    const gate = join(gates, `${stem}@${holder}.yaml`);
    const isDemanded = isThere(join(gates, `${stem}@.yaml`)) && !mayPlan;
    if (!isThere(gate)) return isDemanded;
    const asked = join(this.root, "requests", small(gate, "request_id") || "@");
    const decision = join(asked, "decision.yaml"), outcome = small(decision, "outcome");
    if (outcome === "approved" || small(decision, "approve") === "true") return false;
    const isNone = outcome === "cancelled" || !isThere(join(asked, "request.yaml"));
    return isNone && !asked.endsWith("@") ? isDemanded : true;
  }

  /** Acts on a held message. A missing file means that the lease is lost. */
  #whileHeld<T>(lease: Lease, act: (box: string, held: string) => T): T {
    const box = this.#box(lease.mailbox), held = join(box, "cur", file(lease));
    try {
      fs.lstatSync(held);
      return act(box, held);
    } catch (error) {
      if (isMissing(error)) fail("lease_lost", `${file(lease)} is not held any more`);
      throw error;
    }
  }

  /** Without a lock: the reason is linked, so it never replaces that of another delivery. */
  #bury(lease: Lease, reason: string): boolean {
    const [text] = /^.{0,1000}/u.exec(reason.replaceAll(SPECIAL, ""))!, { holder, epoch } = lease;
    const note = { reason: text, at: new Date().toISOString(), holder, epoch, redriven: false };
    const lines = Object.entries(note).map(([key, value]) => `${key}: ${JSON.stringify(value)}\n`);
    return this.#whileHeld(lease, (box) => {
      const target = join(box, "dead", `${lease.id}@reason.yaml`);
      if (isThere(target)) return false;
      this.#write(target, lines.join(""), fs.linkSync);
      this.#move(box, lease, `dead/${lease.id}.yaml`);
      return true;
    });
  }

  #write(target: string, content: string, place = fs.renameSync): void {
    const part = join(this.root, "tmp", `${basename(target)}.${randomUUID()}`);
    try {
      fs.writeFileSync(part, content, { flag: "wx", mode: 0o600, flush: this.power });
      place(part, target);
      this.#sync(dirname(target));
    } finally {
      fs.rmSync(part, { force: true });
    }
  }

  #move(box: string, lease: Lease, target: string): void {
    fs.renameSync(join(box, "cur", file(lease)), join(box, target));
    fs.rmSync(join(box, "lease", `${lease.id}@${lease.epoch}.yaml`), { force: true });
    this.#sync(dirname(join(box, target)));
  }

  #sync(directory: string): void {
    if (!this.power) return;
    const open = fs.openSync(directory, "r");
    fs.fsyncSync(open);
    fs.closeSync(open);
  }
}

/** The canonical form of an envelope. */
export function encode(given: Fields, body: string): string {
  const now = new Date().toISOString();
  const fields: Fields = { version: 1, created_at: now, ...given, ...measures(body) };
  check(fields);
  const head = KEYS.filter((key) => fields[key] !== undefined)
    .map((key) => `${key}: ${scalar(fields[key]!)}\n`).join("");
  const rows = body.replace(/\n$/, "").split("\n");
  const isOdd = rows.some((row) => row.search(SPECIAL) >= 0 || (row !== "" && row.trim() === ""));
  const block = rows.map((row) => row && `  ${row}`).join("\n");
  const isBlock = !isOdd && body.trim() !== "" && !body.endsWith("\n\n");
  const text = isBlock ? `|2${body.endsWith("\n") ? "+" : "-"}\n${block}` : quoted(body);
  const content = `${head}body: ${text}\n...\n`, bytes = Buffer.byteLength(body);
  const isLarge = bytes > BODY_BYTES_MAX || Buffer.byteLength(content) > ENVELOPE_BYTES_MAX;
  return isLarge ? fail("too_large", `the body has ${bytes} bytes`) : content;
}

/** Fields and body of a canonical envelope. */
export function decode(content: Buffer, id: string): { fields: Fields; body: string } {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
    const { groups } = ENVELOPE.exec(text) ?? fail("malformed", "it is cut, or not canonical");
    const { head = "", chomp, block = "", json } = groups!, rows = block.replaceAll(/^  /gm, "");
    const body: string = json ? JSON.parse(json) : chomp === "+" ? rows : rows.slice(0, -1);
    const pairs = [...head.matchAll(RegExp(FIELD, "g"))]
      .map(([, key, json, word]) => [key, json ? JSON.parse(json) : word] as const);
    const measured = measures(body), given: Fields = Object.fromEntries(pairs);
    const fields: Fields = { ...DEFAULTS, id, ...measured, ...given };
    check(fields);
    const isWhole = Object.entries(measured).every(([key, value]) => fields[key] === value);
    const isOnce = Object.keys(given).length === pairs.length;
    if (!isWhole || !isOnce || Number(fields.version) > 1 || fields.id !== id) {
      fail("malformed", "it was altered, a field is doubled, or its id or version is another one");
    }
    return { fields, body };
  } catch (error) {
    throw new QueueError("malformed", (error as Error).message);
  }
}

/** A fresh UUIDv7; the ids of one process sort by creation. */
export function newId(): string {
  const millis = Date.now(), time = millis.toString(16).padStart(12, "0");
  last = millis === last.millis ? { millis, count: last.count + 1 } : { millis, count: 0 };
  const count = (last.count & 0xfff).toString(16).padStart(3, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7${count}${randomUUID().slice(18)}`;
}
let last = { millis: 0, count: 0 };

function check(fields: Fields): void {
  for (const key of ["id", "type", "from", "to"]) name(String(fields[key]));
  for (const key of ["created_at", "expires_at"]) time(fields[key] ?? "1970-01-01T00:00:00Z");
  const texts = HEADERS.map((key) => String(fields[key] ?? "-"));
  const areFine = texts.every((it) => it && Buffer.byteLength(it) <= 256 && it.search(SPECIAL) < 0);
  const { priority = 0, attempt = 0 } = fields;
  const isWithin = Number(attempt) < 2 ** 32 && /^\d,\d+$/.test(`${priority},${attempt}`);
  if (!areFine || !isWithin) fail("invalid", "a header or a number is not within its limits");
}

function measures(body: string): Fields {
  const digest = createHash("sha256").update(body).digest("hex");
  return { body_length: Buffer.byteLength(body), body_sha256: digest };
}

const name = (text: string) =>
  RegExp(`^${NAME}$`).test(text) ? text : fail("invalid", `${text} is no name`);

const file = (lease: Lease) => `${name(lease.id)}@${name(lease.holder)}@${lease.epoch}.yaml`;
const isMissing = (error: unknown) => (error as NodeJS.ErrnoException).code === "ENOENT";
const look = (path: string) => fs.lstatSync(path, { throwIfNoEntry: false });
const isThere = (path: string) => look(path) !== undefined;
const escape = (c: string) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`;
const quoted = (text: string) => JSON.stringify(text).replace(SPECIAL, escape);
const scalar = (value: string | number) =>
  typeof value === "number" || BARE.test(value) ? String(value) : quoted(value);

function fail(code: string, text: string): never {
  throw new QueueError(code, text);
}

/** A field of a small file of settings, a reason or a lease. */
function small(path: string, key: string): string | undefined {
  const text = look(path)?.isFile() ? fs.readFileSync(path, "utf8") : "";
  return RegExp(`^${key}: *"?([0-9]+(?= *(?:#[^"\\n]*)?$)|[^"\\n]*)`, "m").exec(text)?.[1];
}

/** The task of a message that waits for a plan; none of a broken one, which is a dead letter. */
function taskOf(path: string, id: string): string | undefined {
  try {
    const { type, task_id: task } = decode(read(path), id).fields;
    return PASSES.test(`${type}`) || task === undefined ? undefined : `${task}`;
  } catch (error) {
    if (!(error instanceof QueueError)) throw error;
    return undefined;
  }
}

function read(path: string): Buffer {
  const found = fs.lstatSync(path);
  if (!found.isFile() || found.size > ENVELOPE_BYTES_MAX) fail("malformed", "it is no small file");
  return fs.readFileSync(path);
}

function age(path: string, id: string): number {
  if (UUID7.test(id)) return parseInt(id.slice(0, 8) + id.slice(9, 13), 16);
  return look(path)?.mtimeMs ?? 0;
}

function time(stamp: string | number): number {
  const millis = /(Z|[+-]\d\d:\d\d)$/.test(`${stamp}`) ? Date.parse(`${stamp}`) : NaN;
  return Number.isNaN(millis) ? fail("invalid", `${stamp} is no time with an offset`) : millis;
}
