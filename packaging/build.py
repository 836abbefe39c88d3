#!/usr/bin/env python3
"""Builds the wheel and the archive of one target.

    build.py [--target TRIPLE] [--out DIR] [-- CARGO_ARGUMENT...]

maturin, cargo-zigbuild and Zig come from PyPI in the versions of requirements.txt, into an environment below cargo's
target directory. Zig is the C compiler, so no cross compiler is needed. The target's standard library comes from
`rustup target add`. Linux programs are linked by the toolchain's own `rust-lld`, which lays functions of the same code
upon one another. The wheel has the same program as the archive.
"""

import argparse
import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from archive import archive
from generate import HERE, ROOT

LINUX = "x86_64-unknown-linux-musl"
# The goal for the program with all features. A larger one is no reason to leave a person without packages.
PROGRAM_BYTES_GOAL = 15 << 20
# What the last step of a static Linux program is given: musl and its start files come with the standard library. The
# program is independent of its position; packed, its relocations have 10 kB instead of 600. A panic ends it, so it needs no
# tables for unwinding, which have 2.4 MB.
LINKED = ["-C", "linker=rust-lld", "-C", "linker-flavor=ld.lld", "-C", "link-self-contained=yes",
          "-C", "link-arg=--icf=all", "-C", "link-arg=--pack-dyn-relocs=relr",
          "-C", "link-arg=--no-eh-frame-hdr", "-C", f"link-arg={HERE / 'no_tables.ld'}"]
# Parts of SQLite that no table of ours uses: searches of texts and of areas, JSON, statistics, and extensions, whose
# table holds every function of the library.
SQLITE_FLAGS = " ".join(
    [f"-USQLITE_ENABLE_{part}"
     for part in ("FTS3", "FTS3_PARENTHESIS", "FTS5", "RTREE", "DBSTAT_VTAB", "STAT4", "LOAD_EXTENSION")] +
    ["-USQLITE_SOUNDEX", "-DSQLITE_OMIT_LOAD_EXTENSION=1", "-DSQLITE_OMIT_JSON=1"])
# Nothing unwinds: a panic ends the program.
C_FLAGS = "-fno-asynchronous-unwind-tables -fno-unwind-tables"


def target_directory():
    asked = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    return Path(json.loads(subprocess.check_output(asked, cwd=ROOT))["target_directory"])


def tools(below):
    """The programs of requirements.txt; gives the directory that has them."""
    venv = below / "packaging/venv"
    wanted = (HERE / "requirements.txt").read_text()
    stamp = venv / "requirements.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        subprocess.run([venv / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r",
                        HERE / "requirements.txt"], check=True)
        stamp.write_text(wanted)
    return venv / "bin"


def add_standard_library(triple):
    """Asks rustup for the target; a toolchain of a distribution has it already or cannot get it."""
    try:
        subprocess.run(["rustup", "target", "add", triple], check=True, cwd=ROOT)
    except FileNotFoundError:
        print(f"build.py: there is no rustup, so {triple} must be installed already", file=sys.stderr)


def for_glibc_too(wheel):
    """Names the systems with glibc as well: a static program needs no C library. Gives the new path."""
    machine = wheel.stem.rsplit("musllinux_1_2_", 1)[-1]
    both = f"manylinux_2_17_{machine}.musllinux_1_2_{machine}"
    new = wheel.with_name(wheel.name.replace(f"musllinux_1_2_{machine}", both))
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as to:
        meta = next(name for name in old.namelist() if name.endswith(".dist-info/WHEEL"))
        text = old.read(meta).decode()
        tag = next(line for line in text.splitlines() if line.startswith("Tag: "))
        text = text.replace(tag, f"{tag}\n{tag.replace('musllinux_1_2', 'manylinux_2_17')}").encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
        for item in old.infolist():
            data = old.read(item)
            if item.filename == meta:
                data = text
            elif item.filename.endswith(".dist-info/RECORD"):
                rows = data.decode().splitlines()
                row = f"{meta},sha256={digest},{len(text)}"
                data = ("\n".join(row if it.startswith(f"{meta},") else it for it in rows) + "\n").encode()
            to.writestr(item, data, zipfile.ZIP_DEFLATED)
    wheel.unlink()
    return new


def build(triple, out, arguments=()):
    """Gives the paths of the wheel and of the archive."""
    below = target_directory()
    programs = tools(below)
    add_standard_library(triple)
    wheels = out / "wheels" / triple
    for old in wheels.glob("*.whl"):
        old.unlink()
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "LIBSQLITE3_FLAGS": SQLITE_FLAGS}
    if "musl" in triple:
        environment[f"CFLAGS_{triple.replace('-', '_')}"] = C_FLAGS
    zig = [] if "apple" in triple and sys.platform == "darwin" else ["--zig"]
    linked = ["--", *LINKED] if "musl" in triple else []
    subprocess.run([programs / "maturin", "build", "--release", "--locked", "--target", triple, *zig,
                    "--manifest-path", ROOT / "ensemble-cli/Cargo.toml", "--out", wheels, *arguments, *linked],
                   check=True, cwd=ROOT, env=environment)
    program = below / triple / "release/ensemble"
    if triple.startswith(f"{os.uname().machine}-unknown-linux"):
        subprocess.run([program, "--version"], check=True, stdout=subprocess.DEVNULL)
    if program.stat().st_size > PROGRAM_BYTES_GOAL:
        print(f"note: the program has {program.stat().st_size} bytes; the goal is {PROGRAM_BYTES_GOAL}", file=sys.stderr)
    wheel = next(wheels.glob("*.whl"))
    if "musl" in triple:
        wheel = for_glibc_too(wheel)
    return wheel, archive(program, triple, out / "archives")


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--target", default=LINUX)
    asked.add_argument("--out", type=Path)
    asked.add_argument("cargo", nargs="*")
    options = asked.parse_args()
    out = options.out or target_directory() / "packaging"
    for path in build(options.target, out, options.cargo):
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
