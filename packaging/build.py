#!/usr/bin/env python3
"""Builds the wheel and the archive of one target.

    build.py [--target TRIPLE] [--out DIR] [-- CARGO_ARGUMENT...]

maturin, cargo-zigbuild and Zig come from PyPI in the versions of requirements.txt, into an environment below cargo's
target directory. Zig is the C compiler and the linker, so no other cross compiler is needed. The target's standard
library comes from `rustup target add`. The wheel has the same program as the archive.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from archive import archive
from generate import HERE, ROOT

LINUX = "x86_64-unknown-linux-musl"
# The largest released program, with all features.
PROGRAM_BYTES_MAX = 20_000_000


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


def build(triple, out, arguments=()):
    """Gives the paths of the wheel and of the archive."""
    below = target_directory()
    programs = tools(below)
    add_standard_library(triple)
    wheels = out / "wheels" / triple
    for old in wheels.glob("*.whl"):
        old.unlink()
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    zig = [] if "apple" in triple and sys.platform == "darwin" else ["--zig"]
    subprocess.run([programs / "maturin", "build", "--release", "--locked", "--target", triple, *zig,
                    "--manifest-path", ROOT / "ensemble-cli/Cargo.toml", "--out", wheels, *arguments],
                   check=True, cwd=ROOT, env=environment)
    program = below / triple / "release/ensemble"
    if program.stat().st_size > PROGRAM_BYTES_MAX:
        sys.exit(f"build.py: {program} has {program.stat().st_size} bytes, and may have {PROGRAM_BYTES_MAX}")
    return next(wheels.glob("*.whl")), archive(program, triple, out / "archives")


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
