"""Files that survive a kill and a full disk: text that is whole or absent, JSON lines of which only the last is cut."""

from __future__ import annotations

import errno
import json
import math
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import IO, Any

from puffer_core.errors import RunError

_BLOCK = 4096


def replace_text(path: Path, text: str) -> None:
    """Write a text file under a temporary name, flush it to disk, and rename it."""
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def append_json(path: Path, row: Mapping[str, Any]) -> None:
    """Add a line of JSON; a line that a kill or a full disk has cut off is removed, then or at once.

    Raises:
        RunError: If it can't be written.
    """
    line = f"{to_json(row)}\n".encode()
    try:
        with path.open("r+b" if path.exists() else "w+b", buffering=0) as file:
            end = _end_of_lines(file)
            file.truncate(end)
            file.seek(end)
            try:
                if file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                with suppress(OSError):
                    file.truncate(end)
                raise
    except OSError as error:
        raise RunError(f"can't write `{path}`: {error.strerror or error}") from error


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines; a last line that is cut off is left out, and so is a missing file.

    Raises:
        RunError: If another line is damaged.
    """
    rows, damaged = salvage_jsonl(path)
    if damaged:
        raise RunError(f"{path}:{damaged[0]}: the line is damaged")
    return rows


def salvage_jsonl(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the rows that can be read, and the numbers of the lines that can't, as far as they are not cut off."""
    lines = path.read_bytes().split(b"\n") if path.is_file() else [b""]
    rows: list[dict[str, Any]] = []
    damaged: list[int] = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            damaged.append(number)
    return rows, damaged


def to_json(value: object) -> str:
    """Return one line of JSON; NaN and infinities become null, arrays lists, paths text."""
    return json.dumps(_plain(value), allow_nan=False)


def sync(path: Path) -> None:
    """Have the system write a file, or the names in a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "tolist"):  # numpy and torch, neither of which is imported for it
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _end_of_lines(file: IO[bytes]) -> int:
    """Return the size of a file without a last line that lacks its end."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - _BLOCK)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
