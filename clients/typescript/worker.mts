// A worker: prints what it receives, until that says `stop`. Usage: worker.mts QUEUE NAME
import { Queue } from "./ensemble.mts";
import { Api, receiveWait } from "./ensemble_api.mts";

const [root = "", name = ""] = process.argv.slice(2), queue = new Queue(root);
const api = await Api.start(root, { agent: name }).catch(() => undefined);
console.log(api ? "waits by the API" : "waits by looks");
for (let text = ""; text !== "stop"; ) {
  const message = await receiveWait(queue, name, name, 60, api);
  if (!message) break;
  text = message.body.trim();
  console.log(text);
  queue.settle(message.lease);
}
await api?.close();
