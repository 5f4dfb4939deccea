"""An environment that is given as text: a name that a plugin declares, or where a person's own class is."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from puffer_core.emulation.forms import import_from_here
from puffer_core.errors import EnvError, OptionError, UnknownNameError, did_you_mean
from puffer_core.testing.contract import described

_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
_FILE = re.compile(r"(.+\.py):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")


def find_target(text: str) -> Any:
    """Return what ``text`` names: the name itself, or the class or factory that it leads to.

    Args:
        text: ``maze/small``, ``module:attribute`` or ``path/to/file.py:Class``. Modules are looked up from the current
            folder too, as ``python -m`` does.

    Raises:
        PufferError: If there is nothing of that name, or it can't be loaded.
    """
    if found := _FILE.fullmatch(text):
        return _attribute(_load_file(Path(found[1])), found[2], text)
    found = _MODULE.fullmatch(text)
    if found is None or _is_declared(text):
        from puffer_core.plugins import find_env

        find_env(text)
        return text
    return _attribute(_load_module(found[1]), found[2], text)


def is_declared(text: str) -> bool:
    """Return whether ``text`` is a name, and no place of a class."""
    return _FILE.fullmatch(text) is None and (_MODULE.fullmatch(text) is None or _is_declared(text))


def _is_declared(text: str) -> bool:
    from puffer_core.plugins import find_env

    try:
        find_env(text)
    except UnknownNameError:
        return False
    return True


def _load_module(name: str) -> ModuleType:
    try:
        return import_from_here(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise EnvError(f"module `{name}` can't be imported: {described(error)}") from error
        hint = "give module:Class, or path/to/file.py:Class"
        raise OptionError(f"there is no module `{error.name}` here", hint=hint) from error
    except (Exception, SystemExit) as error:
        raise EnvError(f"module `{name}` can't be imported: {described(error)}") from error


def _load_file(path: Path) -> ModuleType:
    """Load a file once; its own folder is on the path then, as for a script."""
    if not path.is_file():
        raise OptionError(f"there is no file `{path}`", hint="give path/to/file.py:Class")
    name = re.sub(r"\W", "_", path.stem)
    if (known := sys.modules.get(name)) and getattr(known, "__file__", None) == str(path.resolve()):
        return known
    spec = spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    if str(path.resolve().parent) not in sys.path:
        sys.path.insert(0, str(path.resolve().parent))
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if before is None:
            sys.modules.pop(name)
        raise EnvError(f"`{path}` can't be loaded: {described(error)}") from error
    return module


def _attribute(module: ModuleType, name: str, text: str) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = [known for known, value in vars(found).items() if callable(value)]
            raise OptionError(f"`{text}`: there is no `{part}` in it", hint=did_you_mean(part, names))
        found = getattr(found, part)
    if not callable(found):
        raise OptionError(f"`{text}` is a {type(found).__name__}, not a class or a factory")
    return found
