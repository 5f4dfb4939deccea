"""Pictures and texts of environments that were made without saying how they will be shown."""

from __future__ import annotations

from typing import Any

from puffer_core.emulation.forms import accepts
from puffer_core.errors import RenderError

_PREFERRED = ("rgb_array", "ansi")


def render(env: Any, mode: str | None = None) -> Any:
    """Return what an environment of another framework draws.

    One that was made without a ``render_mode`` gets the one that is asked for now, if it has it: environments draw when
    they are told to, and look at the mode then.

    Args:
        env: The environment.
        mode: ``rgb_array`` or ``ansi``; None takes what it was made with, else a picture, else a text.

    Raises:
        RenderError: If it has no such view, or something that drawing needs is missing.
    """
    kind = type(getattr(env, "unwrapped", env)).__name__
    if not hasattr(env, "render"):
        raise RenderError(f"{kind} does not render")
    takes_mode = accepts(env.render, "mode", in_kwargs=False)
    inner = None if takes_mode else _choose(env, mode, kind)
    try:
        frame = env.render(mode=mode or _PREFERRED[0]) if takes_mode else env.render()
    except Exception as error:
        reason = _reason(error, kind, inner)
        if reason is None:
            raise
        raise reason from error
    if frame is None and mode is not None:
        raise RenderError(f"{kind} drew no {mode} view", hint=f"make it with render_mode={mode!r}")
    return frame


def _choose(env: Any, mode: str | None, kind: str) -> Any:
    """Set the mode of an environment that has none yet; return the environment whose mode was set, or None."""
    inner = getattr(env, "unwrapped", env)
    modes = tuple((getattr(inner, "metadata", None) or {}).get("render_modes") or ())
    if getattr(inner, "render_mode", "unknown") is not None or not modes:
        return None
    found = mode if mode is not None else next((name for name in _PREFERRED if name in modes), None)
    if found not in modes:
        raise RenderError(f"{kind} has no {found or _PREFERRED[0]} view: it has {', '.join(modes)}")
    inner.render_mode = found
    return inner


def _reason(error: Exception, kind: str, inner: Any) -> RenderError | None:
    """Return what an error while drawing means: where the mode was set only now, that is the likely cause."""
    if isinstance(error, ImportError) or type(error).__name__ == "DependencyNotInstalled":
        msg = f"{kind} can't be drawn, something that it needs is missing: {error}"
        return RenderError(msg, hint='pip install "puffer-core[window]"')
    if inner is None:
        return None
    mode, inner.render_mode = inner.render_mode, None
    msg = f"{kind} has to be made for drawing: {type(error).__name__}: {error}"
    return RenderError(msg, hint=f"make it with render_mode={mode!r}, or --env.render-mode {mode}")
