"""A worker: prints what it receives, until that says `stop`. Usage: worker.py QUEUE NAME"""

import sys

from ensemble_api import Api, find_program, receive_wait
from ensemble_client import Queue

queue, name = Queue(sys.argv[1]), sys.argv[2]
api = Api(queue.root, agent=name) if find_program() else None
print("waits by the API" if api else "waits by looks", flush=True)
text = ""
while text != "stop" and (message := receive_wait(queue, name, name, 60, api)):
    text = message.body.strip()
    print(text, flush=True)
    queue.settle(message.lease)
if api:
    api.close()
