#!/usr/bin/env python3
"""Installs what releases offer, each from local files into an empty environment, and exchanges a message with it.

    test.py --archives DIR [--wheel FILE] [--target TRIPLE]

--archives   the archives, as build.py makes them
--wheel      the wheel that pip is to install; without it, that check is left out
--target     the target that is tried [default: the first one of this machine]

`make test-packages` builds all of it first. `.ci/run` tries the program that the tests have built.
"""

import argparse
import functools
import http.server
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import generate

TEXT = "hello from the package"
PATH = "/usr/local/bin:/usr/bin:/bin"
# Programs that the install script needs beside one for digests.
NEEDED = ("sh", "uname", "mktemp", "rm", "cp", "mv", "mkdir", "chmod", "tar", "gzip", "curl", "cat")


def environment(home, *first):
    """An empty environment: a home without files, and a PATH with the given directories before the system's."""
    return {"HOME": str(home), "PATH": ":".join([*map(str, first), PATH]), "LANG": "C.UTF-8"}


def run(words, **options):
    done = subprocess.run([str(word) for word in words], text=True, capture_output=True, timeout=300, **options)
    return done


def expect(holds, what):
    if not holds:
        raise AssertionError(what)


def good(done):
    expect(done.returncode == 0, f"{done.args}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def exchange(program, env, directory):
    """A queue in a new project, one message through it, and an exit code that is passed on."""
    project = directory / "project"
    project.mkdir()
    ensemble = functools.partial(run, cwd=project, env=env)
    shown = good(ensemble([program, "--version"]))
    expect(generate.version() in shown, f"--version says {shown!r}")
    good(ensemble([program, "init"]))
    good(ensemble([program, "mailbox", "add", "worker-1"]))
    sent = good(ensemble([program, "send", "--to", "worker-1", "--as", "dispatch", "-m", TEXT])).strip()
    received = good(ensemble([program, "recv", "--as", "worker-1"]))
    expect(TEXT in received, f"recv says {received!r}")
    good(ensemble([program, "settle", sent, "--as", "worker-1"]))
    settled = [path.name for path in (project / "queue/mailbox/worker-1/done").iterdir()]
    expect(settled == [f"{sent}.yaml"], f"settled: {settled}, sent: {sent}")
    nothing = ensemble([program, "recv", "--as", "worker-1"])
    expect(nothing.returncode == 3, f"an empty mailbox: exit {nothing.returncode}")


class Checks:
    def __init__(self, options, directory):
        self.archives, self.wheel, self.target = options.archives, options.wheel, options.target
        self.directory, self.out = directory, directory / "out"

    def place(self, name):
        place = self.directory / name
        (place / "home").mkdir(parents=True)
        return place

    def pip_installs_the_wheel(self):
        place = self.place("pip")
        good(run([sys.executable, "-m", "venv", place / "venv"]))
        good(run([place / "venv/bin/pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check",
                  self.wheel], env=environment(place / "home")))
        exchange("ensemble", environment(place / "home", place / "venv/bin"), place)
        left = good(run([place / "venv/bin/pip", "show", "--files", "ensemble-broker"],
                        env=environment(place / "home")))
        expect(re.search(r"licenses?/.*LICENSE-MIT", left), f"the wheel has no licence text: {left}")

    def npm_installs_the_packages(self):
        place = self.place("npm")
        env = environment(place / "home")
        packed = []
        for name in (self.npm_name(), "ensemble-broker"):
            good(run(["npm", "pack", "--silent", self.out / "npm" / name], cwd=place, env=env))
        packed = sorted(place.glob("*.tgz"))
        expect(len(packed) == 2, f"packed: {packed}")
        app = place / "app"
        app.mkdir()
        good(run(["npm", "install", "--offline", "--no-audit", "--no-fund", "--omit=optional", "--prefix", app, *packed],
                 env=env))
        exchange("ensemble", environment(place / "home", app / "node_modules/.bin"), place)
        self.a_signal_reaches_the_program(place, app)
        shutil.rmtree(app / "node_modules/@ensemble-broker")
        missing = run(["ensemble", "--version"], env=environment(place / "home", app / "node_modules/.bin"))
        expect(missing.returncode == 5 and "is not installed" in missing.stderr, f"without a program: {missing}")

    def a_signal_reaches_the_program(self, place, app):
        """`ensemble admin watch` ends in order when its launcher is asked to end."""
        env = environment(place / "home", app / "node_modules/.bin")
        watch = subprocess.Popen(["ensemble", "watch"], cwd=place / "project", env=env, text=True,
                                 stderr=subprocess.PIPE)
        expect("watching" in watch.stderr.readline(), "the watcher does not say that it watches")
        watch.send_signal(signal.SIGTERM)
        code = watch.wait(timeout=60)
        watch.stderr.close()
        status = run(["ensemble", "status", "--json"], cwd=place / "project", env=env)
        expect(code == 0 and '"watcher":{"running":false' in status.stdout.replace(" ", ""),
               f"exit {code}, and then: {status.stdout}")

    def npm_name(self):
        return next(t["npm"]["name"] for t in generate.targets() if t["triple"] == self.target)

    def script(self, place, url, path=PATH):
        """Runs the install script as a user does."""
        env = {**environment(place / "home"), "PATH": path, "ENSEMBLE_DOWNLOAD_URL": url}
        return run(["/bin/sh", self.out / "install.sh"], env=env, cwd=place)

    def the_script_installs_and_installs_again(self):
        place = self.place("script")
        with Server(self.archives) as url:
            for _ in range(2):
                said = good(self.script(place, url))
                expect("installed ensemble" in said, said)
        programs = place / "home/.local/bin"
        expect([file.name for file in programs.iterdir()] == ["ensemble"], f"{list(programs.iterdir())}")
        exchange("ensemble", environment(place / "home", programs), place)

    def the_script_refuses_what_was_tampered_with(self):
        archive = self.archives / generate.archive_name(self.target)
        content = archive.read_bytes()
        middle = len(content) // 2
        for name, wrong in (("changed", content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1:]),
                            ("appended", content + b"x"), ("truncated", content[:middle]), ("empty", b"")):
            place = self.place(f"tampered-{name}")
            (place / "served").mkdir()
            (place / "served" / archive.name).write_bytes(wrong)
            with Server(place / "served") as url:
                self.refuses(place, self.script(place, url), "is not the file that was released")

    def the_script_refuses_without_a_file_or_a_digest(self):
        place = self.place("missing")
        (place / "served").mkdir()
        with Server(place / "served") as url:
            self.refuses(place, self.script(place, url), "cannot download")
        programs = place / "programs"
        programs.mkdir()
        for name in NEEDED:
            (programs / name).symlink_to(shutil.which(name, path=PATH))
        with Server(self.archives) as url:
            self.refuses(place, self.script(place, url, str(programs)), "cannot verify")

    def refuses(self, place, done, reason):
        """The script has failed, and the program that was there before is still the same."""
        expect(done.returncode == 1 and reason in done.stderr, f"{reason}: {done}")
        programs = place / "home/.local/bin"
        expect(not programs.exists() or not list(programs.iterdir()), f"installed: {list(programs.glob('*'))}")

    def a_program_stays_when_its_successor_is_refused(self):
        place = self.place("successor")
        programs = place / "home/.local/bin"
        programs.mkdir(parents=True)
        (programs / "ensemble").write_text("the one before")
        (place / "served").mkdir()
        (place / "served" / generate.archive_name(self.target)).write_bytes(b"not the archive")
        with Server(place / "served") as url:
            done = self.script(place, url)
        expect(done.returncode == 1, f"{done}")
        expect([file.read_text() for file in programs.iterdir()] == ["the one before"], "it was replaced")

    def the_formula_names_each_archive_with_its_digest(self):
        text = (self.out / "ensemble-broker.rb").read_text()
        named = dict(re.findall(r'url ".*/([^/"]+)"\n\s+sha256 "([0-9a-f]{64})"', text))
        sums = (line.split("  ") for line in (self.out / "SHA256SUMS").read_text().splitlines())
        expect(named == {name: digest for digest, name in sums} and named, f"{named}")
        expect("@" not in text.replace("any_of", ""), "a name of the template was left")
        if ruby := shutil.which("ruby"):
            good(run([ruby, "-c", self.out / "ensemble-broker.rb"]))

    def order(self):
        checks = [self.the_script_installs_and_installs_again, self.the_script_refuses_what_was_tampered_with,
                  self.the_script_refuses_without_a_file_or_a_digest,
                  self.a_program_stays_when_its_successor_is_refused,
                  self.the_formula_names_each_archive_with_its_digest, self.npm_installs_the_packages]
        return checks + ([self.pip_installs_the_wheel] if self.wheel else [])


class Server:
    """Serves a directory on loopback while it is open."""

    def __init__(self, directory):
        handler = functools.partial(Quiet, directory=str(directory))
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def this_machine():
    found = [target["triple"] for target in generate.targets()
             if target["system"] == platform.system() and platform.machine() in target["machines"]]
    if not found:
        raise SystemExit("test.py: targets.toml has no target for this machine")
    return found[0]


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--archives", type=Path, required=True)
    asked.add_argument("--wheel", type=Path)
    asked.add_argument("--target", default=this_machine())
    options = asked.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="packages.") as directory:
        checks = Checks(options, Path(directory).resolve())
        generate.generate(options.archives, checks.out, "https://example.invalid/release")
        for check in checks.order():
            name = check.__name__.replace("_", " ")
            try:
                check()
                print(f"ok: {name}")
            except (AssertionError, OSError, subprocess.SubprocessError) as error:
                failed += 1
                print(f"failed: {name}\n{error}")
    # The form that CI counts.
    print(f"{len(checks.order()) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    os.umask(0o022)
    main()
