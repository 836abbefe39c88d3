// The adapter of `ensemble admin conformance` (conformance/README.md). Usage: adapter.mts QUEUE
import * as fs from "node:fs";
import { createInterface } from "node:readline";
import { Queue, QueueError } from "./ensemble.mts";

const queue = new Queue(process.argv[2]!);
console.log('{"client":"typescript","durability":"power","locks":"none"}');
createInterface({ input: process.stdin }).on("line", (line) => {
  const { op, mailbox, holder, id, epoch, body_file, ...more } = JSON.parse(line);
  const { delay_ms, seconds, reason, ...fields } = more, lease = { mailbox, id, holder, epoch };
  const calls: Record<string, () => object | void> = {
    send: () => {
      const body = fs.readFileSync(body_file, "utf8");
      return { id: queue.send(mailbox, body, { ...fields, ...(id && { id }) }) };
    },
    receive: () => {
      const message = queue.receive(mailbox, holder);
      if (message) fs.writeFileSync(body_file, message.body);
      return { ...message?.fields, ...message?.lease };
    },
    settle: () => queue.settle(lease),
    release: () => queue.release(lease, delay_ms),
    extend: () => queue.extend(lease, seconds),
    dead_letter: () => queue.deadLetter(lease, reason),
    state: () => ({ state: queue.state(mailbox, id) }),
  };
  try {
    console.log(JSON.stringify({ ok: true, ...calls[op]!() }));
  } catch (error) {
    const code = error instanceof QueueError ? error.code : "io";
    console.log(JSON.stringify({ ok: false, error: code, detail: String(error) }));
  }
});
