#!/usr/bin/env python3
"""Makes the archive of one target, byte for byte the same for the same program.

    archive.py PROGRAM --target TRIPLE --out DIR

cargo-dist makes archives of the same form for releases; see dist-workspace.toml.
"""

import argparse
import gzip
import io
import tarfile
from pathlib import Path

from generate import ROOT, archive_name

BESIDE = ("README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE")


def archive(program, triple, out):
    out.mkdir(parents=True, exist_ok=True)
    place = out / archive_name(triple)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        files = [(ROOT / name, name, 0o644) for name in BESIDE] + [(program, "ensemble", 0o755)]
        for path, name, mode in files:
            entry = tarfile.TarInfo(f"ensemble-broker-{triple}/{name}")
            entry.size, entry.mode = path.stat().st_size, mode
            with path.open("rb") as file:
                tar.addfile(entry, file)
    with place.open("wb") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
        packed.write(content.getvalue())
    return place


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("program", type=Path)
    asked.add_argument("--target", required=True)
    asked.add_argument("--out", type=Path, required=True)
    options = asked.parse_args()
    print(archive(options.program, options.target, options.out))


if __name__ == "__main__":
    main()
