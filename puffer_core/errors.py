"""Every error a person can cause: what was wrong with which value, and one hint with the way out."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class PufferError(Exception):
    """Raised when a person, not the program, can put it right; the command line prints it without a traceback.

    Args:
        message: What was wrong with which value, and what is allowed.
        hint: The next thing to do, in a few words.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the hint when the error crosses a process boundary."""
        return type(self), (str(self), self.hint)


class OptionError(PufferError, ValueError):
    """Raised when an option, a configuration key or a parameter has an unknown name or an illegal value."""


class UnknownNameError(PufferError, LookupError):
    """Raised when no plugin supplies an environment, policy, trainer, logger, backend or sweeper of that name."""


class PluginError(PufferError):
    """Raised when a plugin is broken, or when two of them claim the name that was asked for."""


class EnvError(PufferError, ValueError):
    """Raised when an environment, or a buffer it was given, breaks the environment contract."""


class ShapeError(EnvError):
    """Raised when the sizes of arrays disagree; the text gives all of them."""


class UsageError(PufferError, RuntimeError):
    """Raised when calls come in an order that is not allowed, as `step` before `reset` or any use after `close`."""


class WorkerError(PufferError, RuntimeError):
    """Raised when a worker process or actor fails: the text names the worker and carries its traceback or its exit."""


class RunError(PufferError):
    """Raised when a run directory or a checkpoint is missing, incomplete, or belongs to something else."""


class LostRankError(PufferError):
    """Raised when another process of the same run has failed or is gone; this one can't go on without it."""


class NonFiniteError(PufferError, ArithmeticError):
    """Raised when a loss, an observation or a reward is not finite; the text names tensor, environment and step."""


class RenderError(PufferError):
    """Raised when a picture can't be drawn, shown or encoded here."""


def closest(name: str, names: Iterable[str]) -> str | None:
    """Return the one of ``names`` that a person who typed ``name`` most likely meant, or None.

    Case and the choice between ``-`` and ``_`` do not count as a difference.
    """
    return next(iter(closest_names(name, names, 1)), None)


def closest_names(name: str, names: Iterable[str], count: int) -> list[str]:
    """Return up to ``count`` of ``names`` that are close to ``name``, best first."""
    folded = {fold(candidate): candidate for candidate in sorted(names, reverse=True)}
    return [folded[match] for match in get_close_matches(fold(name), folded, n=count, cutoff=0.6)]


def did_you_mean(name: str, names: Iterable[str]) -> str | None:
    """Return the hint "did you mean `x`?" for the closest of ``names``, or None when nothing is close."""
    match = closest(name, names)
    return None if match is None else f"did you mean `{match}`?"


def fold(name: str) -> str:
    """Return a name as it is compared: capitals and underscores make no difference."""
    return name.lower().replace("_", "-")


def shortened(value: object, limit: int = 80) -> str:
    """Return the text of a value as errors show it: the middle of a long one is left out."""
    try:
        text = str(value)
    except ValueError:
        return "an integer of thousands of digits" if isinstance(value, int) else type(value).__name__
    half = (limit - 3) // 2
    return text if len(text) <= limit else f"{text[:half]}...{text[-half:]}"


def text_of(error: BaseException) -> str:
    """Return what an exception says; one whose text can't be made must not hide where it came from."""
    try:
        return str(error)
    except Exception as mistake:
        return f"(its text can't be made: {type(mistake).__name__})"
