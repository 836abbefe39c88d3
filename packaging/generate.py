#!/usr/bin/env python3
"""Writes what releases need besides archives: the install script, the Homebrew formula and the npm packages.

    generate.py --archives DIR --out DIR [--url URL]

The archives are ensemble-broker-TRIPLE.tar.gz, as cargo-dist or packaging/archive.py makes them. A target of
targets.toml without an archive is left out. The script and the formula contain the digest of each archive.
"""

import argparse
import hashlib
import json
import re
import shutil
import tarfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
HOMEPAGE = "https://github.com/ensemble-broker/ensemble"
SCOPE = "@ensemble-broker"
DESCRIPTION = "A message queue for coding agents, in a plain directory"
LICENSE = "MIT OR Apache-2.0"


def version():
    """The version of the workspace."""
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def targets():
    return tomllib.loads((HERE / "targets.toml").read_text())["target"]


def archive_name(triple):
    return f"ensemble-broker-{triple}.tar.gz"


def fill(template, **values):
    """The template with each `@NAME@` replaced; a name without a value is an error."""
    text = (HERE / "templates" / template).read_text()
    return re.sub(r"@([A-Z]+)@", lambda found: values[found[1]], text)


def install_script(found, url):
    """One `case` for each archive: system and machines, then what is true of it."""
    cases = []
    for target in found:
        patterns = "|".join(f"{target['system']}/{machine}" for machine in target["machines"])
        cases.append(f"    {patterns})\n"
                     f"        triple={target['triple']}\n"
                     f"        sha256={target['sha256']}\n"
                     f"        seen={target['seen']}\n"
                     f"        ;;")
    return fill("install.sh", VERSION=version(), URL=url, CASES="\n".join(cases))


def formula(found, url):
    blocks = []
    for system, word in (("Darwin", "macos"), ("Linux", "linux")):
        inner = []
        for target in (target for target in found if target["system"] == system):
            cpu = "arm" if target["npm"]["cpu"] == "arm64" else "intel"
            note = "      # Built, and never seen running by its authors.\n" if target["seen"] == "never" else ""
            inner.append(f"    on_{cpu} do\n{note}"
                         f"      url \"{url}/{archive_name(target['triple'])}\"\n"
                         f"      sha256 \"{target['sha256']}\"\n"
                         f"    end")
        if inner:
            blocks.append(f"  on_{word} do\n" + "\n".join(inner) + "\n  end")
    return fill("ensemble-broker.rb", VERSION=version(), BLOCKS="\n\n".join(blocks))


def manifest(name, **more):
    return {"name": name, "version": version(), "description": DESCRIPTION, "homepage": HOMEPAGE,
            "repository": {"type": "git", "url": f"git+{HOMEPAGE}.git"}, "license": LICENSE, **more}


def write_package(place, package):
    place.mkdir(parents=True)
    (place / "package.json").write_text(json.dumps(package, indent=2) + "\n")
    for licence in ("LICENSE-MIT", "LICENSE-APACHE"):
        shutil.copy(ROOT / licence, place)


def npm_packages(found, archives, out):
    """The root package, which names the others as optional, and one package with a binary for each system."""
    optional = {}
    for target in found:
        npm = target["npm"]
        name = f"{SCOPE}/{npm['name']}"
        optional[name] = version()
        place = out / "npm" / npm["name"]
        write_package(place, manifest(name, os=[npm["os"]], cpu=[npm["cpu"]], files=["bin"],
                                      preferUnplugged=True))
        note = "" if target["seen"] != "never" else " Its authors have built it but never run it."
        (place / "README.md").write_text(f"The program `ensemble` of [ensemble-broker]({HOMEPAGE}) for"
                                         f" {npm['os']} on {npm['cpu']}.{note}\n")
        (place / "bin").mkdir()
        with tarfile.open(archives / archive_name(target["triple"])) as archive:
            program = archive.extractfile(f"ensemble-broker-{target['triple']}/ensemble").read()
        (place / "bin/ensemble").write_bytes(program)
        (place / "bin/ensemble").chmod(0o755)
    place = out / "npm" / "ensemble-broker"
    write_package(place, manifest("ensemble-broker", bin={"ensemble": "ensemble.js"}, files=["ensemble.js"],
                                  engines={"node": ">=18"}, optionalDependencies=optional,
                                  keywords=["agents", "message-queue", "tmux", "orchestration"]))
    shutil.copy(HERE / "npm/ensemble.js", place)
    shutil.copy(ROOT / "ensemble-cli/README.md", place / "README.md")


def with_digests(archives):
    """The targets that have an archive, each with the archive's digest."""
    found = []
    for target in targets():
        path = archives / archive_name(target["triple"])
        if path.exists():
            found.append({**target, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()})
    if not found:
        raise SystemExit(f"generate.py: no archive in {archives}")
    return found


def generate(archives, out, url):
    found = with_digests(archives)
    out.mkdir(parents=True, exist_ok=True)
    (out / "install.sh").write_text(install_script(found, url))
    (out / "install.sh").chmod(0o755)
    (out / "ensemble-broker.rb").write_text(formula(found, url))
    lines = [f"{target['sha256']}  {archive_name(target['triple'])}\n" for target in found]
    (out / "SHA256SUMS").write_text("".join(lines))
    shutil.rmtree(out / "npm", ignore_errors=True)
    npm_packages(found, archives, out)


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--archives", type=Path, required=True)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--url", default=f"{HOMEPAGE}/releases/download/v{version()}")
    options = asked.parse_args()
    generate(options.archives, options.out, options.url)


if __name__ == "__main__":
    main()
