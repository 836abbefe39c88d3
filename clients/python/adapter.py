"""The adapter of `ensemble admin conformance`; conformance/README.md explains it. Usage: adapter.py QUEUE"""
import json, pathlib, sys
from ensemble_client import Lease, Queue, QueueError

def perform(op, mailbox="", holder="", id="", epoch=0, body_file="", **more):
    if op == "send":
        return {"id": queue.send(mailbox, pathlib.Path(body_file).read_bytes().decode(), sender=more.pop("from"), id=id or None, **more)}
    if op == "receive" and (message := queue.receive(mailbox, holder)):
        pathlib.Path(body_file).write_bytes(message.body.encode())
        return {**message.fields, **message.lease._asdict()}
    if op == "state":
        return {"state": queue.state(mailbox, id)}
    return {} if op == "receive" else getattr(queue, op)(Lease(mailbox, id, holder, epoch), **more) or {}

queue = Queue(sys.argv[1])
print('{"client":"python","durability":"power","locks":"flock"}', flush=True)
for line in sys.stdin:
    try:
        answer = {"ok": True, **perform(**json.loads(line))}
    except (QueueError, OSError) as error:
        answer = {"ok": False, "error": getattr(error, "code", "io"), "detail": str(error)}
    print(json.dumps(answer), flush=True)
