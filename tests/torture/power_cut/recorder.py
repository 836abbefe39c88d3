"""Serves an image as one file through FUSE, and keeps a record of every write and flush, for `recorded.rs`.

    recorder.py IMAGE AT RECORD     IMAGE is served at the empty file AT until that is unmounted

A record is `time kind offset bytes`, four 64-bit numbers, and what was written. Times are of the monotonic clock, taken
when the request came.
"""

import os
import struct
import subprocess
import sys
import time

WRITE, FLUSH = 1, 2
INIT, GETATTR, SETATTR, OPEN, READ, WRITES, RELEASE, SYNC = 26, 3, 4, 14, 15, 16, 18, 20
SILENT = {2, 36, 42}  # FORGET, INTERRUPT, BATCH_FORGET
NOT_KNOWN = 38  # ENOSYS
REQUEST_MAX = 1 << 18
WRITE_MAX = 1 << 17

image_path, at, record_path = sys.argv[1:]
image = os.open(image_path, os.O_RDWR)
size = os.fstat(image).st_size
record = open(record_path, "wb", buffering=0)
fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=100000,user_id=0,group_id=0,allow_other"
mount = ["mount", "-i", "-t", "fuse", "-o", options, "recorder", at]
subprocess.run(mount, pass_fds=[fuse], check=True)
print("serving", flush=True)


def keep(kind, offset=0, content=b""):
    record.write(struct.pack("<QQQQ", time.monotonic_ns(), kind, offset, len(content)) + content)


def attributes():
    attr = struct.pack("<QQQQQQIIIIIIIIII", 1, size, size // 512, 0, 0, 0, 0, 0, 0, 0o100600, 1, 0, 0, 0, 4096, 0)
    return struct.pack("<QII", 3600, 0, 0) + attr


def answer(opcode, body):
    if opcode == INIT:
        big_writes, max_pages = 1 << 5, 1 << 22
        flags = big_writes | max_pages
        return struct.pack("<IIIIHHIIHHI28x", 7, 31, WRITE_MAX, flags, 16, 12, WRITE_MAX, 1, WRITE_MAX // 4096, 0, 0)
    if opcode in (GETATTR, SETATTR):
        return attributes()
    if opcode == OPEN:
        return struct.pack("<QII", 1, 0, 0)
    if opcode == READ:
        _, offset, count = struct.unpack_from("<QQI", body)
        return os.pread(image, count, offset)
    if opcode == WRITES:
        _, offset, count = struct.unpack_from("<QQI", body)
        content = body[40 : 40 + count]
        keep(WRITE, offset, content)
        os.pwrite(image, content, offset)
        return struct.pack("<II", count, 0)
    if opcode == SYNC:
        keep(FLUSH)
        return b""
    return b"" if opcode == RELEASE else None


while True:
    try:
        request = os.read(fuse, REQUEST_MAX)
    except OSError:
        break  # It was unmounted.
    length, opcode, unique = struct.unpack_from("<IIQ", request)
    if opcode in SILENT:
        continue
    said = answer(opcode, request[40:length])
    error, said = (-NOT_KNOWN, b"") if said is None else (0, said)
    os.write(fuse, struct.pack("<IiQ", 16 + len(said), error, unique) + said)
