"""A client of the Ensemble queue protocol, version 1, in one file of standard Python (3.9 or newer).

    queue = Queue("queue")
    queue.send("worker-1", "Count the lines of src/.\n", sender="dispatch", type="task")
    while (message := queue.receive("worker-1", holder="worker-1")) is not None:
        print(message.body)
        queue.settle(message.lease)

PROTOCOL.md specifies what is on disk. An envelope that is not in the canonical form becomes a dead letter.
"""

from __future__ import annotations

import fcntl, hashlib, json, os, re, stat, time
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Optional, Union

BODY_BYTES_MAX, ENVELOPE_BYTES_MAX, HEADER_BYTES_MAX = 61_440, 65_536, 256
RECEIPTS = {"new": "stored", "front": "stored", "cur": "acked", "done": "settled", "dead": "dead"}
NAME, NUMBER = "[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", "(0|[1-9][0-9]{0,18})"
NEW = re.compile(rf"({NAME})()()()\.yaml")
FRONT = re.compile(rf"({NAME})@p([0-9])@e{NUMBER}@t{NUMBER}\.yaml")
UUID7 = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
BARE = re.compile(r"(?!(?:true|false|yes|no|on|off|null|y|n)$)[a-z][a-z0-9._-]*|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)
SPECIAL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]")
HEADERS = ("correlation_id", "causation_id", "task_id", "source")
ORDER = ("version id type from to created_at correlation_id causation_id task_id attempt priority expires_at "
         "source attachment_sha256 attachment_bytes body_length body_sha256").split()


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
        return f"{_name(self.id)}@{_name(self.holder)}@{self.epoch}.yaml"


class Message(NamedTuple):
    """A received message; `fields` is its envelope without the body."""

    lease: Lease
    body: str
    fields: dict[str, Any]


class Queue:
    """An open queue. With `durability="process"` a power cut may lose what was stored."""

    def __init__(self, root: Union[str, os.PathLike[str]], durability: str = "power") -> None:
        self.root, self.power = Path(root), durability == "power"

    def send(self, to: str, body: str, *, sender: str = "unknown", type: str = "message",
             id: Optional[str] = None, priority: int = 0, not_before_ms: int = 0, **fields: Any) -> str:
        """Stores a message and returns its id. `fields` are more fields of the envelope, such as `task_id`.

        The same chosen `id` is stored once; with another type or body it is a conflict.
        """
        box, chosen, id = self._box(to), id is not None, _name(id or new_id())
        content = encode({"id": id, "type": type, "from": sender, "to": to, "priority": priority, **fields}, body)
        is_urgent = priority > 0 or not_before_ms > 0
        target = box / (f"front/{id}@p{priority}@e0@t{not_before_ms}.yaml" if is_urgent else f"new/{id}.yaml")
        capacity = int(_scalars(box / "mailbox.yaml").get("capacity", 0))
        if not chosen and not capacity:
            self._write(target, content, self.power)
            return id
        with self._lock(box, fcntl.LOCK_EX):
            stored = self._find(box, id)
            if stored:
                if decode(_read(stored), id)[1:] != (type, body):
                    raise QueueError("conflict", f"another message has the id {id}")
                self._sync(stored, stored.parent)
            elif capacity and sum(1 for _ in self._waiting(box, 1 << 62)) >= capacity:
                refused = int(_scalars(box / "overflow.yaml").get("refused", 0)) + 1
                note = f'refused: {refused}\nlast_at: "{_stamp()}"\nlast_from: "{sender}"\n'
                self._write(box / "overflow.yaml", note.encode(), False)
                raise QueueError("full", f"the mailbox {to} has room for {capacity} messages")
            else:
                self._write(target, content, self.power)
        return id

    def receive(self, mailbox: str, holder: str) -> Optional[Message]:
        """Takes the next due message, if there is one. Unreadable and expired ones become dead letters."""
        box = self._box(mailbox)
        for path, id, epoch in self._waiting(box, int(time.time() * 1000)):
            lease = Lease(mailbox, id, holder, epoch)
            try:
                os.rename(path, box / "cur" / lease.file)
            except FileNotFoundError:
                continue  # Another consumer has it.
            try:
                fields, _, body = decode(_read(box / "cur" / lease.file), id)
                if _time(fields.get("expires_at", "9999-01-01T00:00:00Z")) > datetime.now(timezone.utc):
                    return Message(lease, body, fields)
                reason = "expired"
            except FileNotFoundError:
                continue  # This process stood still, and its lease is over.
            except QueueError as error:
                reason = f"malformed: {error}"
            self.dead_letter(lease, reason)
        return None

    def settle(self, lease: Lease) -> None:
        """Marks the work as done. A request that has no decision is refused."""
        box = self._box(lease.mailbox)
        asked = self.root / "requests" / re.sub(r"\.(request|remind-.*)$", "", _name(lease.id))
        if (asked / "request.yaml").exists() and not (asked / "decision.yaml").exists():
            raise QueueError("refused", f"the request {asked.name} has no decision")
        self._move(box, lease, f"done/{lease.id}.yaml")

    def release(self, lease: Lease, delay_ms: int = 0) -> None:
        """Gives a message back. After its last attempt it becomes a dead letter."""
        box = self._box(lease.mailbox)
        reason = _scalars(box / "dead" / f"{lease.id}@reason.yaml")
        attempts = lease.epoch - (int(reason["epoch"]) if reason.get("redriven") == "true" else 0)
        if attempts >= int(_scalars(box / "mailbox.yaml").get("attempts_max", 5)):
            return self.dead_letter(lease, f"released after {attempts} attempts")
        due = int(time.time() * 1000) + delay_ms if delay_ms else 0
        with self._lock(box, fcntl.LOCK_SH):
            if not (box / "cur" / lease.file).exists():
                raise _lost(lease)
            priority = decode(_read(box / "cur" / lease.file), lease.id)[0]["priority"]
            self._move(box, lease, f"front/{lease.id}@p{priority}@e{lease.epoch}@t{due}.yaml")

    def extend(self, lease: Lease, seconds: int) -> None:
        """Lets the lease run for so many seconds from now."""
        box = self._box(lease.mailbox)
        side, held = box / "lease" / f"{lease.id}@{lease.epoch}.yaml", box / "cur" / lease.file
        if not held.exists():
            raise _lost(lease)
        sequence = int(_scalars(side).get("sequence", 0)) + 1
        self._write(side, f"sequence: {sequence}\nlease_seconds: {seconds}\n".encode(), False)
        if not held.exists():
            side.unlink(missing_ok=True)
            raise _lost(lease)

    def dead_letter(self, lease: Lease, reason: str) -> None:
        """Gives a message up, with a reason for people."""
        box, text = self._box(lease.mailbox), json.dumps(SPECIAL.sub("", reason)[:1000], ensure_ascii=False)
        note = f'reason: {text}\nat: "{_stamp()}"\nholder: "{lease.holder}"\nepoch: {lease.epoch}\nredriven: false\n'
        with self._lock(box, fcntl.LOCK_EX):
            if not os.path.lexists(box / "cur" / lease.file):
                raise _lost(lease)
            self._write(box / "dead" / f"{lease.id}@reason.yaml", note.encode(), self.power)
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
                raise QueueError("refused", f"{place} is no directory, or every user may write to it")
        for place in (self.root / "tmp", box / "lease", *(box / state for state in RECEIPTS)):
            place.mkdir(mode=0o700, exist_ok=True)
        return box

    def _waiting(self, box: Path, now: int) -> Iterator[tuple[Path, str, int]]:
        found = [(path, match) for state, form in (("front", FRONT), ("new", NEW)) for path in (box / state).iterdir()
                 if (match := form.fullmatch(path.name)) and int(match[4] or 0) <= now]
        for path, match in sorted(found, key=lambda it: (it[0].parent.name, -int(it[1][2] or 0), _age(*it))):
            yield path, match[1], int(match[3] or 0) + 1

    def _find(self, box: Path, id: str) -> Optional[Path]:
        for state in (*RECEIPTS, "front"):  # The last look finds what was released without a lock.
            for path in (box / state).iterdir() if state in ("front", "cur") else [box / state / f"{id}.yaml"]:
                if path.name.split("@")[0] in (id, f"{id}.yaml") and os.path.lexists(path):
                    return path
        return None

    def _write(self, target: Path, content: bytes, durable: bool) -> None:
        temporary = self.root / "tmp" / f"{target.name}.{os.getpid()}.{time.monotonic_ns()}"
        try:
            with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            os.rename(temporary, target)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        if durable:
            self._sync(target.parent)

    def _move(self, box: Path, lease: Lease, target: str) -> None:
        try:
            os.rename(box / "cur" / lease.file, box / target)
        except FileNotFoundError:
            raise _lost(lease) from None
        (box / "lease" / f"{lease.id}@{lease.epoch}.yaml").unlink(missing_ok=True)
        self._sync((box / target).parent)

    def _sync(self, *paths: Path) -> None:
        for path in paths if self.power else ():
            os.fsync(file := os.open(path, os.O_RDONLY))
            os.close(file)

    @contextmanager
    def _lock(self, box: Path, kind: int) -> Iterator[None]:
        with open(os.open(box / "gate.lock", os.O_CREAT | os.O_RDWR, 0o600), "rb") as gate:
            fcntl.flock(gate, kind)
            yield


def encode(fields: dict[str, Any], body: str) -> bytes:
    """The canonical form of an envelope."""
    raw = body.encode()
    fields = {"version": 1, "created_at": _stamp(), **fields, "body_length": len(raw)}
    fields["body_sha256"] = hashlib.sha256(raw).hexdigest()
    _check(fields, "invalid")
    lines = [f"{key}: {_scalar(fields[key])}" for key in ORDER if key in fields]
    rows = body.removesuffix("\n").split("\n")
    exact = all(row.strip() == row or row.strip() for row in rows) and body.strip() and not body.endswith("\n\n")
    if exact and not any(SPECIAL.search(row) for row in rows):
        lines += ["body: |2+" if body.endswith("\n") else "body: |2-", *(row and f"  {row}" for row in rows)]
    else:
        lines.append(f"body: {_quoted(body)}")
    content = ("\n".join(lines) + "\n...\n").encode()
    if len(raw) > BODY_BYTES_MAX or len(content) > ENVELOPE_BYTES_MAX:
        raise QueueError("too_large", f"the body has {len(raw)} bytes")
    return content


def decode(content: bytes, id: str) -> tuple[dict[str, Any], str, str]:
    """Fields, type and body of a canonical envelope."""
    try:
        text = content.decode()
        head, rest = re.split(r"^body: ", text, maxsplit=1, flags=re.MULTILINE)
        form, _, block = rest.removesuffix("...\n").partition("\n")
        rows = block.split("\n")[:-1]
        if len(content) > ENVELOPE_BYTES_MAX or not rest.endswith("\n...\n"):
            raise ValueError("it is too large, or has no end mark")
        if form in ("|2+", "|2-") and all(not row or row.startswith("  ") for row in rows):
            body = "\n".join(row[2:] for row in rows) + ("\n" if form == "|2+" else "")
        elif form.startswith('"') and not rows:
            body = json.loads(form)
        else:
            raise ValueError("the body is not canonical")
        pairs = [line.split(": ", 1) for line in head.splitlines()]
        fields: dict[str, Any] = {"version": 1, "id": id, "type": "message", "from": "unknown", "to": "unknown",
                                  "priority": 0, **{key: _value(value) for key, value in pairs}}
        raw, digest = body.encode(), hashlib.sha256(body.encode()).hexdigest()
        is_whole = fields.get("body_length", len(raw)) == len(raw) and fields.get("body_sha256", digest) == digest
        if not is_whole or len(dict(pairs)) < len(pairs) or fields["version"] > 1 or fields["id"] != id:
            raise ValueError("it was altered, a field is doubled, the version is newer, or the id is another one")
        _check(fields, "malformed")
        return fields, fields["type"], body
    except (ValueError, TypeError, AttributeError) as error:
        raise QueueError("malformed", str(error)) from error


def new_id() -> str:
    """A fresh UUIDv7; the ids of one process sort by creation."""
    now = time.time_ns()
    millis, rest = f"{now // 1_000_000:012x}", os.urandom(8).hex()
    return f"{millis[:8]}-{millis[8:]}-7{now % 1_000_000 * 4096 // 1_000_000:03x}-a{rest[:3]}-{rest[3:15]}"


def _check(fields: dict[str, Any], code: str) -> None:
    names = all(re.fullmatch(NAME, str(fields[key])) for key in ("id", "type", "from", "to"))
    texts = [str(fields[key]) for key in HEADERS if key in fields]
    are_short = all(0 < len(text.encode()) <= HEADER_BYTES_MAX and not SPECIAL.search(text) for text in texts)
    if not names or not are_short or not 0 <= fields["priority"] <= 9 or not 0 <= fields.get("attempt", 0) < 1 << 32:
        raise QueueError(code, "a name, a header, the priority or the attempt is not within its limits")
    _time(fields.get("created_at", _stamp())), _time(fields.get("expires_at", _stamp()))


def _name(name: str) -> str:
    if not re.fullmatch(NAME, name):
        raise QueueError("invalid", f"{name!r} is no name")
    return name


def _quoted(text: str) -> str:
    return SPECIAL.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))


def _scalar(value: Any) -> str:
    return str(value) if not isinstance(value, str) or BARE.fullmatch(value) else _quoted(value)


def _value(text: str) -> Any:
    if text.startswith('"') or re.fullmatch(NUMBER, text):
        return json.loads(text)
    if not BARE.fullmatch(text) and not re.fullmatch("[A-Za-z][A-Za-z0-9._-]*", text):
        raise ValueError(f"{text[:40]!r} is not canonical")
    return text


def _scalars(path: Path) -> dict[str, str]:
    """The fields of a small file of settings, a reason or a lease; none if it is missing."""
    text = path.read_text(errors="replace") if path.exists() else ""
    return dict(re.findall(r"^(\w+): *\"?([^\"\n]*)", text, re.MULTILINE))


def _read(path: Path) -> bytes:
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise QueueError("malformed", "it is no regular file")
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        return file.read(ENVELOPE_BYTES_MAX + 1)


def _age(path: Path, name: re.Match[str]) -> int:
    match = UUID7.fullmatch(name[1])
    if match or not os.path.lexists(path):
        return int(match[1] + match[2], 16) if match else 0
    return int(os.lstat(path).st_mtime * 1000)


def _stamp() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _time(text: str) -> datetime:
    if not re.search(r"(Z|[+-]\d\d:\d\d)$", text):
        raise ValueError(f"{text} has no offset")
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _lost(lease: Lease) -> QueueError:
    return QueueError("lease_lost", f"{lease.id} is not held by {lease.holder} in delivery {lease.epoch}")
