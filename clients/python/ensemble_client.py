r"""A client of the Ensemble queue protocol, version 1, in one file of standard Python (3.9 up).

    queue = Queue("queue")
    queue.send("worker-1", "Count the lines of src/.\n", sender="dispatch", type="task")
    while (message := queue.receive("worker-1", holder="worker-1")) is not None:
        print(message.body)
        queue.settle(message.lease)

PROTOCOL.md specifies what is on disk. An envelope that is not in the canonical form becomes a dead
letter. ensemble_api.py waits for mail without polling where the program `ensemble` is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import stat
import time
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Iterator, NamedTuple

BODY_BYTES_MAX, ENVELOPE_BYTES_MAX, FOREVER = 61_440, 65_536, 1 << 63
RECEIPTS = {"new": "stored", "front": "stored", "cur": "acked", "done": "settled", "dead": "dead"}
NAME, NUMBER = "[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", "(?:0|[1-9][0-9]{0,18})"
UUID, WORD = "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", "[A-Za-z][A-Za-z0-9._-]*"
NEVER = "9999-12-31T23:59:59Z"
UUID7 = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
QUEUED = re.compile(rf"({NAME})(?:@p([0-9])@e({NUMBER})@t({NUMBER}))?\.yaml")
FIELD = rf'(\w+): ({NUMBER}|{UUID}|{WORD}|"(?:[^"\\]|\\.)*")\n'
BLOCK = r"\|2(?P<chomp>[+-])\n(?P<block>(?:(?:  .*)?\n)*)"
ENVELOPE = rf'(?P<head>(?:(?!body:){FIELD})*)body: (?:{BLOCK}|(?P<quoted>".*")\n)\.\.\.\n'
BARE = re.compile(rf"(?!(?:true|false|yes|no|on|off|null|y|n)$)(?:{WORD})|{UUID}", re.IGNORECASE)
SPECIAL = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]"
DEFAULTS = {"version": 1, "type": "message", "from": "unknown", "to": "unknown", "priority": 0}
PASSES = re.compile(r".*_(request|response)|(report|mail|request|board|steps?)\..*")
HEADERS = ("correlation_id", "causation_id", "task_id", "source")
ORDER = "version id type from to created_at correlation_id causation_id task_id attempt priority \
expires_at source traceparent attachment_sha256 attachment_bytes body_length body_sha256".split()


class QueueError(Exception):
    """A refused operation. `code` is one of the words that conformance/README.md lists."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Lease(NamedTuple):
    """One delivery of one message. Its operations are refused once another delivery has begun."""

    mailbox: str
    id: str
    holder: str
    epoch: int

    @property
    def file(self) -> str:
        """Name of the held message in `cur/`."""
        return f"{_name(self.id)}@{_name(self.holder)}@{self.epoch}.yaml"


class Message(NamedTuple):
    """A received message; `fields` is its envelope without the body."""

    lease: Lease
    body: str
    fields: dict[str, Any]


class Queue:
    """An open queue. With `durability="process"` a power cut may lose what was stored."""

    def __init__(self, root: str | os.PathLike[str], durability: str = "power") -> None:
        self.root, self.power = Path(root), durability == "power"

    def send(self, to: str, body: str, *, sender: str = "unknown", id: str | None = None,
             priority: int = 0, **fields: Any) -> str:
        """Stores a message and returns its id. `fields` are more of its envelope, as `task_id`.

        The same chosen `id` is stored once; with another type or body it is a conflict.
        """
        box, is_chosen, id = self._box(to), id is not None, _name(id or new_id())
        known = {**DEFAULTS, "id": id, "from": sender, "to": to, "priority": priority, **fields}
        content = encode(known, body)
        target = box / (f"front/{id}@p{priority}@e0@t0.yaml" if priority else f"new/{id}.yaml")
        capacity = int(_small(box / "mailbox.yaml").get("capacity", 0))
        with self._lock(box, fcntl.LOCK_EX) if is_chosen or capacity else nullcontext():
            while is_chosen and (stored := self._find(box, id)):
                with suppress(FileNotFoundError):  # It has moved: look again.
                    old = _read(stored) if stored.is_file() else b""
                    is_torn = old[:1] in b"\0" or old[-1:] in b"\0"  # A power cut has left it so.
                    if is_torn and stored.parent.name != "done":
                        os.rename(stored, box / "dead" / f"{id}@double.{time.monotonic_ns()}")
                        continue
                    earlier, text = (known, body) if is_torn else decode(old, id)
                    if (earlier["type"], text) != (known["type"], body):
                        raise QueueError("conflict", f"another message has the id {id}")
                    self._sync(stored, stored.parent)
                    return id
            if capacity and len(self._waiting(box, FOREVER)) >= capacity:
                refused = int(_small(box / "overflow.yaml").get("refused", 0)) + 1
                note = f'refused: {refused}\nlast_at: "{_stamp()}"\nlast_from: "{sender}"\n'
                self._write(box / "overflow.yaml", note)
                raise QueueError("full", f"the mailbox {to} has room for {capacity} messages")
            self._write(target, content)
        return id

    def receive(self, mailbox: str, holder: str) -> Message | None:
        """Takes the next due message, if there is one. Broken and expired ones are dead letters."""
        box = self._box(mailbox)
        for _, path, id, epoch in self._waiting(box, time.time_ns() // 1_000_000):
            lease = Lease(mailbox, id, holder, epoch)
            try:
                if self._is_gated(path, id, holder, may_plan=True):
                    continue
                os.rename(path, box / "cur" / lease.file)
                fields, body = decode(_read(box / "cur" / lease.file), id)
                if _time(fields.get("expires_at", NEVER)) > datetime.now(timezone.utc):
                    return Message(lease, body, fields)
                reason = "expired"
            except FileNotFoundError:
                continue  # Another consumer has it, or this one stood still and its lease is over.
            except QueueError as error:
                reason = f"malformed: {error}"
            self.dead_letter(lease, reason)
        return None

    def settle(self, lease: Lease) -> None:
        """Marks the work as done. Refused: an open request, a task whose plan is not approved."""
        with self._held(lease) as box:
            fields = _small(held := box / "cur" / lease.file)
            asked = re.fullmatch(NAME, fields.get("correlation_id", ""))
            home = self.root / "requests" / (asked[0] if asked else lease.id)
            is_question = fields.get("type", "").endswith("_request")
            if is_question and not (home / "decision.yaml").exists():
                raise QueueError("refused", f"the request {home.name} has no decision")
            if self._is_gated(held, lease.id, lease.holder, may_plan=False):
                raise QueueError("refused", f"the plan of {lease.id} is not approved")
            self._move(box, lease, f"done/{lease.id}.yaml")

    def release(self, lease: Lease, delay_ms: int = 0) -> None:
        """Gives a message back. After its last attempt it becomes a dead letter."""
        box = self._box(lease.mailbox)
        reason = _small(box / "dead" / f"{lease.id}@reason.yaml")
        attempts = lease.epoch - int(reason["epoch"] if reason.get("redriven") == "true" else 0)
        if attempts >= int(_small(box / "mailbox.yaml").get("attempts_max", 5)):
            return self.dead_letter(lease, f"released after {attempts} attempts")
        due = time.time_ns() // 1_000_000 + delay_ms if delay_ms else 0
        with self._held(lease, fcntl.LOCK_SH):
            priority = decode(_read(box / "cur" / lease.file), lease.id)[0]["priority"]
            self._move(box, lease, f"front/{lease.id}@p{priority}@e{lease.epoch}@t{due}.yaml")

    def extend(self, lease: Lease, seconds: int) -> None:
        """Lets the lease run for so many seconds from now."""
        if not 1 <= seconds <= 86_400:
            raise QueueError("invalid", "a lease lasts 1 to 86400 seconds")
        with self._held(lease) as box:
            side = box / "lease" / f"{lease.id}@{lease.epoch}.yaml"
            sequence = int(_small(side).get("sequence", 0)) + 1
            self._write(side, f"sequence: {sequence}\nlease_seconds: {seconds}\n")
            if not (box / "cur" / lease.file).exists():
                side.unlink(missing_ok=True)
                raise FileNotFoundError

    def dead_letter(self, lease: Lease, reason: str) -> None:
        """Gives a message up, with a reason for people."""
        text = _quoted(re.sub(SPECIAL, "", reason)[:1000])
        note = f'reason: {text}\nat: "{_stamp()}"\nholder: "{lease.holder}"\nepoch: {lease.epoch}\n'
        with self._held(lease, fcntl.LOCK_EX) as box:
            self._write(box / "dead" / f"{lease.id}@reason.yaml", f"{note}redriven: false\n")
            self._move(box, lease, f"dead/{lease.id}.yaml")

    def state(self, mailbox: str, id: str) -> str:
        """The receipt of a message: `stored`, `acked`, `settled`, `dead` or `unknown`."""
        found = self._find(self._box(mailbox), _name(id))
        return RECEIPTS[found.parent.name] if found else "unknown"

    def _box(self, mailbox: str) -> Path:
        box = self.root / "mailbox" / _name(mailbox)
        for place in (self.root, box):
            mode = os.lstat(place).st_mode if os.path.lexists(place) else 0
            if not stat.S_ISDIR(mode) or mode & stat.S_IWOTH:
                raise QueueError("refused", f"{place} is no directory, or all may write to it")
        for place in (self.root / "tmp", box / "lease", *(box / state for state in RECEIPTS)):
            place.mkdir(mode=0o700, exist_ok=True)
        return box

    def _waiting(self, box: Path, now: int) -> list[tuple[Any, Path, str, int]]:
        """Rank, path, id and next epoch of each message that is due, in the order of receipt."""
        found = []
        for state in ("front", "new"):
            for path in (box / state).iterdir():
                match = QUEUED.fullmatch(path.name)
                if match and bool(match[2]) == (state == "front") and int(match[4] or 0) <= now:
                    rank = (state, -int(match[2] or 0), _age(path, match[1]))
                    found.append((rank, path, match[1], int(match[3] or 0) + 1))
        return sorted(found)

    def _is_gated(self, path: Path, id: str, holder: str, may_plan: bool) -> bool:
        """Whether the plan of a message's task is missing; one may be taken to be planned."""
        gates, task = self.root / "gates", None
        if gates.is_dir():
            with suppress(QueueError):  # It becomes a dead letter.
                fields, _ = decode(_read(path), id)
                task = None if PASSES.fullmatch(fields["type"]) else fields.get("task_id")
        if task is None:
            return False
        digest = hashlib.sha256(task.encode()).hexdigest()
        stem = task if re.fullmatch(NAME, task) else f"t-{digest[:40]}"
        gate, demand = gates / f"{stem}@{holder}.yaml", gates / f"{stem}@.yaml"
        if not gate.exists():
            return demand.exists() and not may_plan
        asked = self.root / "requests" / _small(gate).get("request_id", "")
        decision = _small(asked / "decision.yaml")
        if asked.name == "requests" or "true" == decision.get("approve"):
            return asked.name == "requests"  # Without an id the gate is damaged, and closed.
        if decision.get("outcome") == "cancelled" or not (asked / "request.yaml").exists():
            return demand.exists() and not may_plan
        return decision.get("outcome") != "approved"

    def _find(self, box: Path, id: str) -> Path | None:
        ends = {"front": "@*", "cur": "@*"}
        # The last look finds what was released without a lock.
        looks = ((box / it).glob(f"{id}{ends.get(it, '')}.yaml") for it in (*RECEIPTS, "front"))
        return next((path for look in looks for path in look), None)

    @contextmanager
    def _held(self, lease: Lease, lock: int = 0) -> Iterator[Path]:
        """Mailbox of a held message, perhaps under its lock. A missing file is a lost lease."""
        box = self._box(lease.mailbox)
        try:
            with self._lock(box, lock) if lock else nullcontext():
                os.lstat(box / "cur" / lease.file)
                yield box
        except FileNotFoundError:
            raise QueueError("lease_lost", f"{lease.file} is not held any more") from None

    def _write(self, target: Path, content: str) -> None:
        temporary = self.root / "tmp" / f"{target.name}.{os.getpid()}.{time.monotonic_ns()}"
        try:
            temporary.touch(mode=0o600, exist_ok=False)
            temporary.write_bytes(content.encode())
            self._sync(temporary)
            os.rename(temporary, target)
            self._sync(target.parent)
        finally:
            temporary.unlink(missing_ok=True)

    def _move(self, box: Path, lease: Lease, target: str) -> None:
        os.rename(box / "cur" / lease.file, box / target)
        (box / "lease" / f"{lease.id}@{lease.epoch}.yaml").unlink(missing_ok=True)
        self._sync((box / target).parent)

    def _sync(self, *paths: Path) -> None:
        for path in paths if self.power else ():
            os.fsync(file := os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            os.close(file)

    @contextmanager
    def _lock(self, box: Path, kind: int) -> Iterator[None]:
        with open(os.open(box / "gate.lock", os.O_CREAT | os.O_RDWR, 0o600), "rb") as gate:
            fcntl.flock(gate, kind)
            yield


def encode(fields: dict[str, Any], body: str) -> str:
    """The canonical form of an envelope."""
    fields = {"version": 1, "created_at": _stamp(), **fields, **_measures(body)}
    _check(fields)
    head = "".join(f"{key}: {_scalar(fields[key])}\n" for key in ORDER if key in fields)
    text = body.removesuffix("\n")
    is_odd = re.search(rf"^[^\S\n]+$|\n\Z|\A\Z|(?!\n){SPECIAL}", text, re.MULTILINE)
    block = ("|2-\n" if text == body else "|2+\n") + re.sub("(?m)^(?=.)", "  ", text)
    content = f"{head}body: {_quoted(body) if is_odd else block}\n...\n"
    if fields["body_length"] > BODY_BYTES_MAX or len(content.encode()) > ENVELOPE_BYTES_MAX:
        raise QueueError("too_large", f"the body has {fields['body_length']} bytes")
    return content


def decode(content: bytes, id: str) -> tuple[dict[str, Any], str]:
    """Fields and body of a canonical envelope."""
    try:
        whole = re.fullmatch(ENVELOPE, content.decode())
        if not whole:
            raise ValueError("it is cut, too large, or not canonical")
        block = re.sub("(?m)^  ", "", whole["block"] or "")
        body = block if whole["chomp"] == "+" else block[:-1]
        body = json.loads(whole["quoted"]) if whole["quoted"] else body
        pairs = re.findall(FIELD, whole["head"])
        given = {k: json.loads(v) if v[0] == '"' or v.isdigit() else v for k, v in pairs}
        fields: dict[str, Any] = {**DEFAULTS, "id": id, **given}
        if any(fields.get(key, value) != value for key, value in _measures(body).items()):
            raise ValueError("the body was cut or altered")
        if len(dict(pairs)) < len(pairs) or fields["version"] > 1 or fields["id"] != id:
            raise ValueError("a field is doubled, the version is newer, or the id is another one")
        _check(fields)
        return fields, body
    except (ValueError, TypeError) as error:
        raise QueueError("malformed", str(error)) from None


def new_id() -> str:
    """A fresh UUIDv7; those of one process sort by creation, unless its clock is set back."""
    millis, part = divmod(time.time_ns(), 1_000_000)
    digits = f"{millis:012x}7{part * 4096 // 1_000_000:03x}a{os.urandom(8).hex()[1:]}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _check(fields: dict[str, Any]) -> None:
    for key in ("id", "type", "from", "to"):
        _name(fields[key])
    texts = [fields.get(key, "-") for key in HEADERS]
    is_odd = any(re.search(SPECIAL, it) or not 0 < len(it.encode()) <= 256 for it in texts)
    if is_odd or not 0 <= fields["priority"] <= 9 or not 0 <= fields.get("attempt", 0) < 1 << 32:
        raise QueueError("invalid", "a header or a number is not within its limits")
    for key in ("created_at", "expires_at"):
        _time(fields.get(key, NEVER))


def _measures(body: str) -> dict[str, Any]:
    raw = body.encode()
    return {"body_length": len(raw), "body_sha256": hashlib.sha256(raw).hexdigest()}


def _name(name: str) -> str:
    if not re.fullmatch(NAME, name):
        raise QueueError("invalid", f"{name!r} is no name")
    return name


def _quoted(text: str) -> str:
    text = json.dumps(text, ensure_ascii=False)
    return re.sub(SPECIAL, lambda found: f"\\u{ord(found[0]):04x}", text)


def _scalar(value: Any) -> str:
    return str(value) if not isinstance(value, str) or BARE.fullmatch(value) else _quoted(value)


def _small(path: Path) -> dict[str, str]:
    """The plain fields of a small file, as of settings or a message; none if it is missing."""
    text = path.read_text(errors="replace") if path.is_file() else ""
    # A comment may follow a number.
    return dict(re.findall(r"(?m)^(\w+): *\"?(\d+(?= *(?:#[^\"\n]*)?$)|[^\"\n]*)", text))


def _read(path: Path) -> bytes:
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise QueueError("malformed", "it is no regular file")
    with open(path, "rb") as file:
        return file.read(ENVELOPE_BYTES_MAX + 1)


def _age(path: Path, id: str) -> int:
    if UUID7.fullmatch(id):
        return int(id[:8] + id[9:13], 16)
    return int(os.lstat(path).st_mtime * 1000) if os.path.lexists(path) else 0


def _stamp() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _time(text: str) -> datetime:
    if not re.search(r"(Z|[+-]\d\d:\d\d)$", text):
        raise QueueError("invalid", f"the time {text} has no offset")
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
