"""The adapter of `ensemble admin conformance` (conformance/README.md). Usage: adapter.py QUEUE"""

import json
import pathlib
import sys

from ensemble_client import Lease, Queue, QueueError


def perform(op, mailbox="", holder="", id="", epoch=0, body_file="", **more):
    if op == "send":
        body, sender = pathlib.Path(body_file).read_bytes().decode(), more.pop("from")
        return {"id": queue.send(mailbox, body, sender=sender, id=id or None, **more)}
    if op == "receive":
        message = queue.receive(mailbox, holder)
        if message is None:
            return {}
        pathlib.Path(body_file).write_bytes(message.body.encode())
        return {**message.fields, **message.lease._asdict()}
    if op == "state":
        return {"state": queue.state(mailbox, id)}
    return getattr(queue, op)(Lease(mailbox, id, holder, epoch), **more) or {}


queue = Queue(sys.argv[1])
print('{"client":"python","durability":"power","locks":"flock"}', flush=True)
for line in sys.stdin:
    try:
        answer = {"ok": True, **perform(**json.loads(line))}
    except (QueueError, OSError) as error:
        answer = {"ok": False, "error": getattr(error, "code", "io"), "detail": str(error)}
    print(json.dumps(answer), flush=True)
