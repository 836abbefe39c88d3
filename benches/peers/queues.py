"""Drives a queue of Python for the benches: queues.py KIND DIRECTORY DURABILITY.

Answers each line of its input with one line: nanoseconds, or what was counted. Time is taken here, so
that talking to the bench costs nothing.
"""

import os
import sys
import time

SENTENCE = "task 7 is done, see the report in reports/\n"


def body(size):
    return (SENTENCE * (size // len(SENTENCE) + 1))[:size]


class Dirq:
    """dirq.QueueSimple: a file a message; a link is the lock."""

    def __init__(self, path, durability):
        if durability == "power":
            raise ValueError("dirq syncs nothing")
        from dirq.QueueSimple import QueueSimple

        self.queue = QueueSimple(path)
        self.name = ""

    def send(self, text):
        self.queue.add(text)

    def take(self):
        # One iteration handles a whole listing, as dirq documents it.
        self.name = self.queue.next() if self.name else self.queue.first()
        while self.name:
            if self.queue.lock(self.name):
                self.queue.get(self.name)
                self.queue.remove(self.name)
                return True
            self.name = self.queue.next()
        return False

    def tidy(self):
        pass


class Ack:
    """persistqueue.SQLiteAckQueue: as it comes it syncs each commit."""

    def __init__(self, path, durability):
        import persistqueue

        self.queue = persistqueue.SQLiteAckQueue(path, auto_resume=False, timeout=30.0)
        if durability == "process":
            self.queue._putter.execute("pragma synchronous=normal")
        self.empty = persistqueue.Empty

    def send(self, text):
        self.queue.put(text)

    def take(self):
        try:
            item = self.queue.get(block=False, raw=True)
        except self.empty:
            return False
        self.queue.ack(id=item["pqid"])
        return True

    def tidy(self):
        # Users of this library must call this from time to time, so its cost counts.
        self.queue.clear_acked_data(keep_latest=0)


class File:
    """persistqueue.Queue: chunks of pickles and a file that says where it stands."""

    def __init__(self, path, durability):
        if durability == "power":
            raise ValueError("persistqueue.Queue syncs a chunk of 100 messages, not a message")
        import persistqueue

        self.queue = persistqueue.Queue(path)
        self.empty = persistqueue.Empty

    def send(self, text):
        self.queue.put(text)

    def take(self):
        try:
            self.queue.get(block=False)
        except self.empty:
            return False
        self.queue.task_done()
        return True

    def tidy(self):
        pass


KINDS = {"dirq": Dirq, "persist-ack": Ack, "persist-file": File}


def publish(queue, count, size):
    began = time.monotonic_ns()
    for _ in range(count):
        # The other queues build a message as well.
        queue.send(body(size))
    return time.monotonic_ns() - began


def receive(queue, count):
    began = time.monotonic_ns()
    for _ in range(count):
        # An exhausted listing reports once that it is empty.
        if not queue.take() and not queue.take():
            raise ValueError("a message is missing")
    took = time.monotonic_ns() - began
    queue.tidy()
    return took


def load(queue, side, begin, until, size):
    """One of several processes: what was taken from one moment to another."""
    done = tried = 0
    text = body(size)
    while (now := time.monotonic_ns()) < until:
        if side == "send":
            queue.send(text)
            continue
        if not queue.take():
            time.sleep(0.0002)
        elif begin <= now < until:
            done += 1
        tried += 1
        if tried % 200 == 0:
            queue.tidy()
    return done


def main():
    kind, path, durability = sys.argv[1:4]
    queue = KINDS[kind](path, durability)
    print("ready", flush=True)
    for line in sys.stdin:
        verb, *words = line.split()
        if verb == "publish":
            answer = publish(queue, int(words[0]), int(words[1]))
        elif verb == "receive":
            answer = receive(queue, int(words[0]))
        elif verb == "load":
            answer = load(queue, words[0], *map(int, words[1:]))
        else:
            answer = "none"
        print(answer, flush=True)
    os._exit(0)


try:
    main()
except Exception as error:
    print(f"error {error}", flush=True)
    sys.exit(1)
