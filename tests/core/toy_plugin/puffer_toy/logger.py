"""A logger that writes one line per epoch into the run directory."""

from __future__ import annotations


class TextLogger:
    def __init__(self, run):
        self.file = (run.directory / "toy-log.txt").open("w")

    def log(self, step, metrics):
        self.file.write(f"{step} {len(metrics)}\n")

    def close(self):
        self.file.close()
