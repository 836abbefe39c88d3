/**
 * A client of the Ensemble queue protocol, version 1, in one file without dependencies (Node 22.6 or newer).
 *
 *     const queue = new Queue("queue");
 *     queue.send("worker-1", "Count the lines of src/.\n", { from: "dispatch", type: "task" });
 *     for (let message; (message = queue.receive("worker-1", "worker-1")); queue.settle(message.lease)) {
 *       console.log(message.body);
 *     }
 *
 * PROTOCOL.md specifies what is on disk. An envelope that is not in the canonical form becomes a dead letter. Node has
 * no flock, so this client refuses chosen ids and mailboxes with a capacity, and releases with a delay.
 */
import { createHash, randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { join } from "node:path";

const BODY_BYTES_MAX = 61_440, ENVELOPE_BYTES_MAX = 65_536, HEADER_BYTES_MAX = 256;
/** A release without a lock is delayed by more than a search for an id takes. */
const UNLOCKED_DELAY_MS = 2_500;
const RECEIPTS: Record<string, string> = { new: "stored", front: "stored", cur: "acked", done: "settled", dead: "dead" };
const NAME = "[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", NUMBER = "(0|[1-9][0-9]{0,18})";
const NEW = new RegExp(`^(${NAME})()()\\.yaml$`);
const FRONT = new RegExp(`^(${NAME})@p([0-9])@e${NUMBER}@t${NUMBER}\\.yaml$`);
const UUID7 = /^([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const WORD = /^[A-Za-z][A-Za-z0-9._-]*$/, YAML_WORD = /^(true|false|yes|no|on|off|null|y|n)$/i;
const SPECIAL = /[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]/g;
const ORDER = ["version", "id", "type", "from", "to", "created_at", "correlation_id", "causation_id", "task_id", "attempt",
  "priority", "expires_at", "source", "attachment_sha256", "attachment_bytes", "body_length", "body_sha256"];

export type Fields = Record<string, string | number | undefined>;
/** One delivery of one message. Its operations are refused once another delivery has begun. */
export interface Lease { readonly mailbox: string; readonly id: string; readonly holder: string; readonly epoch: number }
/** A received message; `fields` is its envelope without the body. */
export interface Message { readonly lease: Lease; readonly body: string; readonly fields: Fields }
/** Fields of the envelope, such as `from`, `type`, `priority` and `task_id`. */
export type SendOptions = Fields & { from?: string; type?: string; priority?: number };

/** A refused operation. `code` is one of the words that conformance/README.md lists. */
export class QueueError extends Error {
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
  #count = 0;

  constructor(root: string, durability: "power" | "process" = "power") {
    this.root = root;
    this.power = durability === "power";
  }

  /** Stores a message under a fresh id, and returns the id. */
  send(to: string, body: string, options: SendOptions = {}): string {
    const box = this.#box(to), id = newId(), priority = options.priority ?? 0;
    if (options.id !== undefined || scalar(join(box, "mailbox.yaml"), "capacity") !== undefined) {
      throw new QueueError("refused", "a chosen id or a capacity needs a lock, which Node does not have");
    }
    const content = encode({ type: "message", from: "unknown", ...options, id, to, priority }, body);
    const target = priority > 0 ? `front/${id}@p${priority}@e0@t0.yaml` : `new/${id}.yaml`;
    this.#write(join(box, target), content, this.power);
    this.#sync(join(box, priority > 0 ? "front" : "new"));
    return id;
  }

  /** Takes the next due message, if there is one. Unreadable and expired ones become dead letters. */
  receive(mailbox: string, holder: string): Message | undefined {
    const box = this.#box(mailbox);
    for (const [path, id, epoch] of this.#waiting(box)) {
      const lease = { mailbox, id, holder, epoch };
      if (!moved(path, join(box, "cur", file(lease)))) continue; // Another consumer has it.
      let message: { fields: Fields; body: string };
      try {
        message = decode(read(join(box, "cur", file(lease))), id);
      } catch (error) {
        if (isMissing(error)) continue; // This process stood still, and its lease is over.
        if (!(error instanceof QueueError)) throw error;
        this.#bury(lease, `malformed: ${error.message}`);
        continue;
      }
      const expires = message.fields.expires_at;
      if (expires === undefined || time(expires) > Date.now()) return { lease, ...message };
      this.#bury(lease, "expired");
    }
    return undefined;
  }

  /** Marks the work as done. A request that has no decision is refused. */
  settle(lease: Lease): void {
    const box = this.#box(lease.mailbox), id = lease.id.replace(/\.(request|remind-.*)$/, "");
    const asked = join(this.root, "requests", name(id));
    if (fs.existsSync(join(asked, "request.yaml")) && !fs.existsSync(join(asked, "decision.yaml"))) {
      throw new QueueError("refused", `the request ${id} has no decision`);
    }
    this.#move(box, lease, `done/${lease.id}.yaml`);
    this.#sync(join(box, "done"));
  }

  /** Gives a message back, at the soonest after some seconds. After its last attempt it becomes a dead letter. */
  release(lease: Lease, delayMs = 0): void {
    const box = this.#box(lease.mailbox), held = join(box, "cur", file(lease));
    const reason = join(box, "dead", `${lease.id}@reason.yaml`);
    const before = scalar(reason, "redriven") === "true" ? Number(scalar(reason, "epoch")) : 0;
    const attempts = lease.epoch - before;
    if (attempts >= Number(scalar(join(box, "mailbox.yaml"), "attempts_max") ?? 5)) {
      return this.deadLetter(lease, `released after ${attempts} attempts`);
    }
    if (!fs.existsSync(held)) throw lost(lease);
    const { priority } = decode(read(held), lease.id).fields;
    const due = Date.now() + Math.max(delayMs, UNLOCKED_DELAY_MS);
    this.#move(box, lease, `front/${lease.id}@p${priority}@e${lease.epoch}@t${due}.yaml`);
  }

  /** Lets the lease run for so many seconds from now. */
  extend(lease: Lease, seconds: number): void {
    const box = this.#box(lease.mailbox), held = join(box, "cur", file(lease));
    const side = join(box, "lease", `${lease.id}@${lease.epoch}.yaml`);
    if (!fs.existsSync(held)) throw lost(lease);
    const sequence = Number(scalar(side, "sequence") ?? 0) + 1;
    this.#write(side, `sequence: ${sequence}\nlease_seconds: ${seconds}\n`, false);
    if (fs.existsSync(held)) return;
    fs.rmSync(side, { force: true });
    throw lost(lease);
  }

  /** Gives a message up, with a reason for people. Refused if the message has a reason already. */
  deadLetter(lease: Lease, reason: string): void {
    if (!this.#bury(lease, reason)) throw new QueueError("refused", `${lease.id} has a reason: let its lease run out`);
  }

  /** The receipt of a message: `stored`, `acked`, `settled`, `dead` or `unknown`. */
  state(mailbox: string, id: string): string {
    const box = this.#box(mailbox), plain = `${name(id)}.yaml`;
    const isThere = (state: string) =>
      fs.readdirSync(join(box, state)).some((entry) => entry === plain || (state !== "dead" && entry.split("@")[0] === id));
    return RECEIPTS[[...Object.keys(RECEIPTS), "front"].find(isThere) ?? ""] ?? "unknown";
  }

  #box(mailbox: string): string {
    const box = join(this.root, "mailbox", name(mailbox));
    for (const place of [this.root, box]) {
      const found = fs.lstatSync(place, { throwIfNoEntry: false });
      if (!found?.isDirectory() || found.mode & 0o002) {
        throw new QueueError("refused", `${place} is no directory, or every user may write to it`);
      }
    }
    for (const place of [join(this.root, "tmp"), ...[...Object.keys(RECEIPTS), "lease"].map((state) => join(box, state))]) {
      if (!fs.existsSync(place)) fs.mkdirSync(place, { mode: 0o700, recursive: true });
    }
    return box;
  }

  *#waiting(box: string): Generator<[string, string, number]> {
    const list = (state: string, form: RegExp) =>
      fs.readdirSync(join(box, state)).map((entry) => form.exec(entry)).filter((match) => match !== null)
        .filter((match) => Number(match[4] ?? 0) <= Date.now())
        .map((match) => ({ match, path: join(box, state, match[0]), age: age(join(box, state, match[0]), match[1]) }))
        .sort((a, b) => Number(b.match[2]) - Number(a.match[2]) || a.age - b.age);
    for (const { path, match } of [...list("front", FRONT), ...list("new", NEW)]) {
      yield [path, match[1], Number(match[3]) + 1];
    }
  }

  /** Without a lock: the reason is linked, so it never replaces that of another delivery. */
  #bury(lease: Lease, reason: string): boolean {
    const box = this.#box(lease.mailbox), target = join(box, "dead", `${lease.id}@reason.yaml`);
    if (!fs.existsSync(join(box, "cur", file(lease))) && !isLink(join(box, "cur", file(lease)))) throw lost(lease);
    const note = { reason: reason.replace(SPECIAL, "").slice(0, 1000), at: new Date().toISOString(), holder: lease.holder };
    const lines = Object.entries(note).map(([key, value]) => `${key}: ${JSON.stringify(value)}\n`).join("");
    const temporary = this.#temporary(lease.id, `${lines}epoch: ${lease.epoch}\nredriven: false\n`, this.power);
    try {
      fs.linkSync(temporary, target);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
      throw error;
    } finally {
      fs.rmSync(temporary, { force: true });
    }
    this.#move(box, lease, `dead/${lease.id}.yaml`);
    this.#sync(join(box, "dead"));
    return true;
  }

  #write(target: string, content: string, durable: boolean): void {
    fs.renameSync(this.#temporary(name(target.split("/").at(-1)!.split("@")[0]), content, durable), target);
  }

  #temporary(id: string, content: string, durable: boolean): string {
    const path = join(this.root, "tmp", `${id}.${process.pid}.${this.#count++}.${randomBytes(4).toString("hex")}`);
    const open = fs.openSync(path, "wx", 0o600);
    try {
      fs.writeFileSync(open, content);
      if (durable) fs.fsyncSync(open);
    } catch (error) {
      fs.rmSync(path, { force: true });
      throw error;
    } finally {
      fs.closeSync(open);
    }
    return path;
  }

  #move(box: string, lease: Lease, target: string): void {
    if (!moved(join(box, "cur", file(lease)), join(box, target))) throw lost(lease);
    fs.rmSync(join(box, "lease", `${lease.id}@${lease.epoch}.yaml`), { force: true });
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
  const bytes = Buffer.byteLength(body), digest = createHash("sha256").update(body).digest("hex");
  const fields: Fields = { version: 1, created_at: new Date().toISOString(), ...given, body_length: bytes, body_sha256: digest };
  check(fields, "invalid");
  const lines = ORDER.filter((key) => fields[key] !== undefined).map((key) => `${key}: ${written(fields[key]!)}`);
  const rows = body.replace(/\n$/, "").split("\n");
  const isExact = rows.every((row) => row === "" || row.trim() !== "") && body.trim() !== "" && !body.endsWith("\n\n")
    && !rows.some((row) => row.replaceAll("\t", "").search(SPECIAL) >= 0);
  if (isExact) lines.push(`body: |2${body.endsWith("\n") ? "+" : "-"}`, ...rows.map((row) => row && `  ${row}`));
  else lines.push(`body: ${quoted(body)}`);
  const content = `${lines.join("\n")}\n...\n`;
  if (bytes > BODY_BYTES_MAX || Buffer.byteLength(content) > ENVELOPE_BYTES_MAX) {
    throw new QueueError("too_large", `the body has ${bytes} bytes`);
  }
  return content;
}

/** Fields and body of a canonical envelope. */
export function decode(content: Buffer, id: string): { fields: Fields; body: string } {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
    const parts = /^((?:(?!body:)[^\n]*\n)*)body: ([^\n]*)\n((?:[^]*\n)?)\.\.\.\n$/.exec(text);
    if (!parts || content.length > ENVELOPE_BYTES_MAX) throw new Error("it is too large, or not canonical");
    const [, head, form, block] = parts, rows = block.split("\n").slice(0, -1);
    const isBlock = /^\|2[+-]$/.test(form) && rows.every((row) => row === "" || row.startsWith("  "));
    if (!isBlock && (!form.startsWith('"') || rows.length > 0)) throw new Error("the body is not canonical");
    const body: string = isBlock
      ? rows.map((row) => row.slice(2)).join("\n") + (form === "|2+" ? "\n" : "") : JSON.parse(form);
    const pairs = head.split("\n").slice(0, -1).map((line) => /^(\w+): (.+)$/.exec(line) ?? [line, line, line])
      .map(([, key, text]) => [key, value(text)] as const);
    const fields: Fields = { version: 1, id, type: "message", from: "unknown", to: "unknown", priority: 0, ...Object.fromEntries(pairs) };
    const bytes = Buffer.byteLength(body), digest = createHash("sha256").update(body).digest("hex");
    if ((fields.body_length ?? bytes) !== bytes || (fields.body_sha256 ?? digest) !== digest) throw new Error("the body was cut or altered");
    if (new Set(pairs.map(([key]) => key)).size < pairs.length || Number(fields.version) > 1 || fields.id !== id) {
      throw new Error("a field is doubled, the version is newer, or the id is another one");
    }
    check(fields, "malformed");
    return { fields, body };
  } catch (error) {
    throw new QueueError("malformed", (error as Error).message);
  }
}

/** A fresh UUIDv7; the ids of one process sort by creation. */
export function newId(): string {
  const millis = Date.now().toString(16).padStart(12, "0"), random = randomBytes(8).toString("hex");
  last = millis === last.millis ? { millis, count: last.count + 1 } : { millis, count: 0 };
  const count = (last.count & 0xfff).toString(16).padStart(3, "0");
  return `${millis.slice(0, 8)}-${millis.slice(8)}-7${count}-a${random.slice(1, 4)}-${random.slice(4)}`.padEnd(36, "0");
}
let last = { millis: "", count: 0 };

function check(fields: Fields, code: string): void {
  const names = ["id", "type", "from", "to"].every((key) => new RegExp(`^${NAME}$`).test(String(fields[key])));
  const headers = ["correlation_id", "causation_id", "task_id", "source"].map((key) => fields[key] as string | undefined);
  const texts = headers.every((text) => text === undefined
    || (text !== "" && Buffer.byteLength(text) <= HEADER_BYTES_MAX && text.search(SPECIAL) < 0));
  const within = (key: string, most: number) => Number(fields[key] ?? 0) >= 0 && Number(fields[key] ?? 0) <= most;
  if (!names || !texts || !within("priority", 9) || !within("attempt", 0xffffffff)) {
    throw new QueueError(code, "a name, a header, the priority or the attempt is not within its limits");
  }
  for (const key of ["created_at", "expires_at"]) time(fields[key] ?? "1970-01-01T00:00:00Z");
}

function name(text: string): string {
  if (!new RegExp(`^${NAME}$`).test(text)) throw new QueueError("invalid", `${JSON.stringify(text)} is no name`);
  return text;
}

const file = (lease: Lease) => `${name(lease.id)}@${name(lease.holder)}@${lease.epoch}.yaml`;
const lost = (lease: Lease) =>
  new QueueError("lease_lost", `${lease.id} is not held by ${lease.holder} in delivery ${lease.epoch}`);
const isMissing = (error: unknown) => (error as NodeJS.ErrnoException).code === "ENOENT";
const isLink = (path: string) => fs.lstatSync(path, { throwIfNoEntry: false }) !== undefined;
const quoted = (text: string) =>
  JSON.stringify(text).replace(SPECIAL, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

function written(field: string | number): string {
  const isBare = typeof field === "number" || UUID.test(field) || (WORD.test(field) && !YAML_WORD.test(field));
  return isBare ? String(field) : quoted(field);
}

function value(text: string): string | number {
  if (text.startsWith('"') || new RegExp(`^${NUMBER}$`).test(text)) return JSON.parse(text) as string | number;
  if (WORD.test(text) || UUID.test(text)) return text;
  throw new Error(`${JSON.stringify(text.slice(0, 40))} is not canonical`);
}

/** A field of a small file of settings, a reason or a lease. */
function scalar(path: string, key: string): string | undefined {
  const text = fs.existsSync(path) ? fs.readFileSync(path, "utf8") : "";
  return new RegExp(`^${key}: *"?([^"\\n]*)`, "m").exec(text)?.[1];
}

function read(path: string): Buffer {
  if (!fs.lstatSync(path).isFile()) throw new QueueError("malformed", "it is no regular file");
  const open = fs.openSync(path, fs.constants.O_RDONLY | fs.constants.O_NOFOLLOW);
  try {
    return fs.readFileSync(open);
  } finally {
    fs.closeSync(open);
  }
}

function age(path: string, id: string): number {
  const match = UUID7.exec(id);
  return match ? parseInt(match[1] + match[2], 16) : (fs.lstatSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0);
}

function time(stamp: string | number): number {
  const millis = Date.parse(String(stamp));
  if (!/(Z|[+-]\d\d:\d\d)$/.test(String(stamp)) || Number.isNaN(millis)) throw new QueueError("invalid", `${stamp} is no time`);
  return millis;
}

/** Renames a file; false if it is gone. */
function moved(from: string, to: string): boolean {
  try {
    fs.renameSync(from, to);
    return true;
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
}
