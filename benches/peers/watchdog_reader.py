"""Python watchdog: prints a stamp (CLOCK_MONOTONIC, ns) and the name of each file that lands."""

import os
import sys
import time

from watchdog.events import FileSystemEventHandler
from watchdog.observers import Observer


class Landed(FileSystemEventHandler):
    # watchdog reports a file that arrives from an unwatched directory as created.
    def on_created(self, event):
        self.report(event.src_path)

    def on_moved(self, event):
        self.report(event.dest_path)

    def report(self, path):
        stamp = time.monotonic_ns()
        os.write(1, f"{stamp} {os.path.basename(path)}\n".encode())


observer = Observer()
observer.schedule(Landed(), sys.argv[1], recursive=False)
observer.start()
os.write(1, b"0 ready\n")
# The parent process ends this script by closing its input.
sys.stdin.read()
os._exit(0)
