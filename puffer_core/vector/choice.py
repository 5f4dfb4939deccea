"""Which backend: the one that is named, or for ``auto`` the one of highest priority that can run the environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from puffer_core.errors import OptionError
from puffer_core.specs import BackendSpec, VectorJob


def choose(backend: str, job: VectorJob) -> tuple[Callable[..., Any], str, str]:
    """Return what makes the vector, the name of the backend, and a note on the choice.

    Raises:
        OptionError: If the backend that is named can't run the job, or none can; the text gives the reasons.
        UnknownNameError: If there is no such backend.
    """
    from puffer_core.plugins import manager, resolve

    registry = manager().backends
    if backend != "auto":
        spec = registry.get(backend)
        reason = _reason(spec, job)
        if reason:
            raise OptionError(f"backend {backend} can't run {job.env_name}: {reason}")
        return resolve(spec.make), spec.name, ""
    passed: list[str] = []
    for spec in sorted(registry.specs(), key=lambda spec: -spec.priority):
        make, reason = _ask(spec, job)
        if make is not None:
            return make, spec.name, " (auto)"
        passed.append(f"{spec.name}: {reason}")
    raise OptionError(f"no backend that is installed can run {job.env_name}: {'; '.join(passed) or 'there is none'}")


def _ask(spec: BackendSpec, job: VectorJob) -> tuple[Callable[..., Any] | None, str]:
    """Return what makes the vector, or why this backend is passed over: one that is broken must not stop the rest."""
    from puffer_core.isolation import describe, raises_plugin_errors
    from puffer_core.plugins import resolve

    try:
        reason = _reason(spec, job)
        return (None, reason) if reason else (resolve(spec.make), "")
    except (Exception, SystemExit) as error:
        if raises_plugin_errors():
            raise
        return None, f"it can't be asked: {describe(error)}"


def _reason(spec: BackendSpec, job: VectorJob) -> str | None:
    """Return what ``supports`` answers."""
    from puffer_core.plugins import resolve

    reason = None if spec.supports is None else resolve(spec.supports)(job)
    return None if reason is None else str(reason)
