"""Run cases in a child process, so that a crash or a hang costs one case and names it.

A child works through many cases; when it dies or stalls, the case it had begun is blamed and a new child goes on with
the next. The child says when it is ready, so that the time to import a framework is nobody's.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import IO

_CHILD = "import sys; from puffer_core.testing import isolated; isolated._work(sys.argv[1])"
_START_S = 60.0


@dataclass(frozen=True)
class Outcome:
    """What became of one case."""

    status: str
    """``ok``, ``raised``, ``crashed`` or ``hung``."""
    detail: str
    """The value returned (as text), the exception, or the child's last words."""
    classes: tuple[str, ...] = ()
    """Names of the exception's class and its bases, where one was raised."""


def run_isolated(
    target: str,
    cases: Sequence[object],
    *,
    case_timeout_s: float = 20.0,
    max_hung: int | None = None,
    on_start: Callable[[int], None] | None = None,
) -> list[Outcome]:
    """Return the outcome of ``target(case)`` for every case, in order.

    Args:
        target: ``"module:function"`` of one argument; what it returns is kept as text.
        cases: Anything that can be pickled.
        case_timeout_s: A case that takes longer has hung.
        max_hung: After as many that have hung the others count as hung untried.
        on_start: Called with the position of each case when it is begun.
    """
    outcomes: list[Outcome] = []
    while len(outcomes) < len(cases):
        if max_hung is not None and sum(outcome.status == "hung" for outcome in outcomes) >= max_hung:
            untried = Outcome("hung", f"not tried after {max_hung} that gave no answer within {case_timeout_s} s")
            return outcomes + [untried] * (len(cases) - len(outcomes))
        first = len(outcomes)
        told = None if on_start is None else partial(_tell, on_start, first)
        outcomes.extend(_run_child(target, cases[first:], case_timeout_s, told))
    return outcomes


def _tell(on_start: Callable[[int], None], first: int, position: int) -> None:
    on_start(first + position)


def _run_child(
    target: str, cases: Sequence[object], case_timeout_s: float, on_start: Callable[[int], None] | None
) -> list[Outcome]:
    """Return the outcomes of one child's life: all cases, or those up to the one that ended it."""
    command = [sys.executable, "-c", _CHILD, target]
    outcomes: list[Outcome] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        lines: queue.Queue[bytes | None] = queue.Queue()
        words: list[bytes] = []
        readers = [
            threading.Thread(target=_forward, args=(child.stdout, lines), daemon=True),
            threading.Thread(target=lambda pipe=child.stderr: words.append(pipe.read()), daemon=True),
        ]
        for reader in readers:
            reader.start()
        _send(child.stdin, cases)
        is_ready = False
        while len(outcomes) < len(cases):
            if is_ready and on_start is not None:
                on_start(len(outcomes))
            timeout_s = case_timeout_s if is_ready else max(_START_S, case_timeout_s)
            try:
                line = lines.get(timeout=timeout_s)
            except queue.Empty:
                outcomes.append(Outcome("hung", f"no answer within {timeout_s} s"))
                break
            if line is None:
                readers[1].join()
                text = b"".join(words).decode(errors="replace")[-2000:]
                outcomes.append(Outcome("crashed", f"exit status {child.wait()}: {text}"))
                break
            answer = json.loads(line)
            if not is_ready:
                is_ready = True
                continue
            outcomes.append(Outcome(answer["status"], answer["detail"], tuple(answer["classes"])))
        child.kill()
        for reader in readers:
            reader.join()
    return outcomes


def _send(pipe: IO[bytes], cases: Sequence[object]) -> None:
    """Write the cases; a child that has died already is noticed by its silence."""
    try:
        pickle.dump(list(cases), pipe)
        pipe.close()
    except BrokenPipeError:
        return


def _forward(pipe: IO[bytes], lines: queue.Queue[bytes | None]) -> None:
    """Pass on the child's answers, then None."""
    for line in pipe:
        lines.put(line)
    lines.put(None)


def _work(target: str) -> None:
    """Answer every case on the parent's pipe, one JSON line each; what the case prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, attribute = target.split(":")
    function = getattr(import_module(module), attribute)
    _say(answers, "ready")
    for case in pickle.load(sys.stdin.buffer):
        try:
            answer = {"status": "ok", "detail": str(function(case)), "classes": []}
        except Exception as error:
            classes = [kind.__name__ for kind in type(error).__mro__]
            answer = {"status": "raised", "detail": f"{type(error).__name__}: {error}", "classes": classes}
        _say(answers, answer)


def _say(answers: IO[str], answer: object) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
