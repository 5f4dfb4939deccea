"""Options of the command line: ``--section.key value``, ``--section.key=value``, ``--flag``, ``--no-section.flag``.

Names are only brought into one form here (``train.learning_rate``, base keys bare); whether they exist is for `load`.
A boolean takes the next word only where that word says true or false; every other option takes the next word, even if
it looks like a negative number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from puffer_core.config.schema import SECTIONS, CommandConfig
from puffer_core.config.values import FALSE, TRUE, Kind, kinds
from puffer_core.config.values import parse as parse_value
from puffer_core.errors import OptionError, shortened

if TYPE_CHECKING:
    from puffer_core.specs import EnvSpec

SPELLINGS = {"episodes": "eval_episodes", "device": "train.device"}
"""Short options whose key has another name; ``--train.device`` is the full form of the one that has a section."""
COMMAND_KEYS = {
    "config": "config",
    "resume": "resume",
    "resume_schedule": "resume_schedule",
    "train.stop_at": "stop_at",
    "train.stop_at_score": "stop_at_score",
}
"""Options that belong to one call of ``run`` or ``train`` -> field of `CommandConfig`."""
PATHS = ("config", "resume", "runs_dir")
"""Options that name a file, a run or a folder, so that nothing, as an unset variable of a shell gives, is refused."""

_SEGMENTS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def parse(args: Sequence[str], env: str | EnvSpec | None = None) -> dict[str, str]:
    """Return the options in ``args``, key -> text; a later one wins, except that ``--logger`` adds up.

    Args:
        args: The words.
        env: Name or spec of the environment, which says which of its parameters are booleans.

    Raises:
        OptionError: If a word is no option, a name has an empty part, or an option lacks its value.
    """
    words, options = split(args, env)
    if words:
        raise OptionError(f"unexpected argument `{words[0]}`", hint=_word_hint(words[0]))
    return options


def split(args: Sequence[str], env: str | EnvSpec | None = None) -> tuple[list[str], dict[str, str]]:
    """Return the words of ``args`` that are no options, and the options as `parse` does."""
    known = {**_known(), **_params(env)} if any(word.startswith(("--env.", "--no-env.")) for word in args) else _known()
    words: list[str] = []
    options: dict[str, str] = {}
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            key, value = _read(word, rest, known)
            adds_up = key in options and known.get(key, Kind("any")).base == "names"
            options[key] = f"{options[key]},{value}" if adds_up else value
        elif word.startswith("-") and len(word) > 1:
            raise OptionError(f"unknown option `{word}`", hint="options are written `--section.key value`")
        else:
            words.append(word)
    return words, options


def split_command(options: Mapping[str, str]) -> tuple[CommandConfig, dict[str, str]]:
    """Return what belongs to this call of the command, and the options that are configuration keys."""
    values: dict[str, Any] = {}
    for key in PATHS:
        if key in options:
            require_text(key, options[key])
    for key, name in COMMAND_KEYS.items():
        if key in options:
            try:
                values[name] = parse_value(options[key], kinds(CommandConfig)[name])
            except ValueError as error:
                raise OptionError(f"`{spell(key)} {shortened(options[key])}` {error}") from None
    return CommandConfig(**values), {key: text for key, text in options.items() if key not in COMMAND_KEYS}


def require_text(key: str, text: str) -> None:
    """Check that an option which names something does.

    Raises:
        OptionError: If the text is empty.
    """
    if not text.strip():
        raise OptionError(f"`{spell(key)}` is empty", hint="give it a value, or leave it out")


def spell(key: str) -> str:
    """Return the option that sets ``key``, as ``--train.learning-rate``."""
    short = next((short for short, name in SPELLINGS.items() if name == key and "." not in key), key)
    return f"--{short.replace('_', '-')}"


def _read(word: str, rest: list[str], known: Mapping[str, Kind]) -> tuple[str, str]:
    """Return key and text of the option ``word``, taking its value off ``rest`` where it has one there."""
    name, equals, value = word[2:].partition("=")
    is_negated = name.startswith("no-")
    key = _normalise(name.removeprefix("no-") if is_negated else name, word)
    kind = known.get(key)
    if is_negated:
        if equals or (kind and kind.base != "bool"):
            raise OptionError(f"`{word}`: `--no-` is for switching a boolean off")
        return key, "false"
    if equals:
        return key, value
    if rest and not rest[0].startswith("--"):
        takes_next = kind is None or kind.base != "bool" or rest[0].lower() in (*TRUE, *FALSE, *kind.choices)
        if takes_next:
            return key, rest.pop(0)
    if kind and kind.base != "bool":
        raise OptionError(f"option `{word}` needs a value: {kind}")
    return key, "true"


def _normalise(name: str, word: str) -> str:
    key = name.replace("-", "_")
    if not _SEGMENTS.fullmatch(key):
        raise OptionError(f"`{word}` is not an option name", hint="options are written `--section.key value`")
    if key.startswith("base."):
        raise OptionError(f"`{word}`: keys of section base carry no section", hint=f"write `--{name[5:]}`")
    return SPELLINGS.get(key, key)


@cache
def _known() -> Mapping[str, Kind]:
    """Return the kinds of the options that every environment has."""
    table = {
        key if section == "base" else f"{section}.{key}": kind
        for section, cls in SECTIONS.items()
        for key, kind in kinds(cls).items()
    }
    command = kinds(CommandConfig)
    return table | {key: command[name] for key, name in COMMAND_KEYS.items()}


def _params(env: str | EnvSpec | None) -> Mapping[str, Kind]:
    """Return the kinds of an environment's own options; none where its parameters are open, or it is not known."""
    if env is None:
        return {}
    from puffer_core.config.sections import params_of
    from puffer_core.plugins import find_env

    spec = find_env(env)[0] if isinstance(env, str) else env
    return {f"env.{name}": kind for name, kind in params_of(spec).kinds.items()}


def _word_hint(word: str) -> str | None:
    return f"did you mean `--{word}`?" if "." in word or "=" in word else None
