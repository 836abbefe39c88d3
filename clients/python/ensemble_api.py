"""Calls commands of Ensemble through one process, `ensemble admin api`, in standard Python.

    with Api("queue", agent="conductor") as api:
        api.call("send", to=["worker-1"], text="Count the lines of src/.", task="task-1")
        for news in api.follow("requests"):
            print(news)

docs/guides/api.md explains the calls. Threads may share an `Api`. `receive_wait` serves programs
that use ensemble_client.py: it waits without polling where the program `ensemble` is installed.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import queue as queues
import shutil
import subprocess
import threading
import time
from types import TracebackType
from typing import Any, Iterator

from ensemble_client import Message, Queue

PROTOCOL = 1
LOOK_SECONDS = 1.0


class ApiError(Exception):
    """A refused call. `code` is a code of docs/reference/exit-codes.md, or `closed`."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(f"{message} (hint: {hint})" if hint else message)
        self.code = code


def find_program() -> str | None:
    """The program `ensemble`: the variable ENSEMBLE_BIN, else the first one on PATH."""
    return shutil.which(os.environ.get("ENSEMBLE_BIN") or "ensemble")


class Api:
    """A running `ensemble admin api`. Raises FileNotFoundError where there is no program."""

    def __init__(self, queue: str | os.PathLike[str], agent: str = "", program: str = "") -> None:
        program = program or find_program() or "ensemble"
        words = [program, "--queue", os.fspath(queue), *(["--as", agent] if agent else [])]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([*words, "admin", "api"], stdin=pipe, stdout=pipe)
        self._lock, self._ids = threading.Lock(), itertools.count(1)
        self._waiting: dict[int, queues.SimpleQueue[dict[str, Any] | None]] = {}
        self._is_open = True
        hello = json.loads(self._line() or '{"hello":{}}').get("hello", {})
        if hello.get("protocol") != PROTOCOL:
            self.close()
            raise ApiError("closed", f"`{program}` does not speak version {PROTOCOL} of the API")
        self._line_bytes_max = hello["line_bytes_max"]
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Api:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def call(self, method: str, **params: Any) -> Any:
        """The objects that a command prints under `--json`. `method` is its words."""
        call = self._ask(method, params)
        try:
            return self._answer(call)
        finally:
            self._waiting.pop(call, None)

    def wait(self, to: str, timeout_seconds: int, **params: Any) -> Any:
        """The first news of `mail`, `states`, `requests` or `events`; None after the time-out."""
        try:
            return self.call("wait", to=to, timeout_seconds=timeout_seconds, **params)[0]
        except ApiError as error:
            if error.code != "nothing":
                raise
            return None

    def follow(self, to: str, **params: Any) -> Iterator[Any]:
        """News as they happen, until the caller stops to iterate."""
        call = self._ask("subscribe", {"to": to, **params})
        try:
            self._answer(call)
            while True:
                yield self._answer(call)
        finally:
            self._waiting.pop(call, None)
            if self._is_open:
                self.call("unsubscribe", subscription=call)

    def close(self) -> None:
        """Ends the process: calls at work are finished first."""
        self._is_open = False
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait()

    def _ask(self, method: str, params: dict[str, Any]) -> int:
        call = next(self._ids)
        line = (json.dumps({"id": call, "method": method, "params": params}) + "\n").encode()
        if len(line) > self._line_bytes_max:  # The answer would not say which call it is for.
            raise ApiError("too_large", f"a call has at most {self._line_bytes_max} bytes")
        self._waiting[call] = queues.SimpleQueue()
        with self._lock:
            if not self._is_open or not self._process.stdin:
                raise ApiError("closed", "the API has ended")
            self._process.stdin.write(line)
            self._process.stdin.flush()
        return call

    def _answer(self, call: int) -> Any:
        line = self._waiting[call].get()
        if line is None:
            raise ApiError("closed", "the API has ended")
        if error := line.get("error"):
            raise ApiError(error["code"], error["message"], error.get("hint", ""))
        return line["news"] if "news" in line else line["result"]

    def _line(self) -> bytes:
        return self._process.stdout.readline() if self._process.stdout else b""

    def _read(self) -> None:
        while line := self._line():
            answer = json.loads(line)
            if waiting := self._waiting.get(answer.get("id", answer.get("subscription"))):
                waiting.put(answer)
        self._is_open = False
        for waiting in list(self._waiting.values()):
            waiting.put(None)


def receive_wait(queue: Queue, mailbox: str, holder: str, seconds: float,
                 api: Api | None = None) -> Message | None:
    """Takes the next due message and waits for it: by `api`, else by a look each second."""
    end = time.monotonic() + seconds
    known: Any = None
    while (message := queue.receive(mailbox, holder)) is None:
        left = end - time.monotonic()
        if left <= 0:
            return None
        where = {"state": "queued"}
        news = api and api.wait("mail", math.ceil(left), mailbox=mailbox, where=where)
        if news == known:  # There is no API, or what waits may not be received yet.
            time.sleep(max(0.0, min(LOOK_SECONDS, end - time.monotonic())))
        known = news
    return message
