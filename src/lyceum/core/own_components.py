"""Components of the user's own: classes outside lyceum, which recipes name by file and class (``my_adv.py:Median``).

Such a name is code to run: it is imported only where :func:`trusting` allows it, or from a folder of papers that the
user has named (``core/paper_folders.py``). What this process has loaded already, which the user did, any recipe may
name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from lyceum.core import paper_folders
from lyceum.core.own_code import load_module, split_spec
from lyceum.utils.errors import RecipeError, nearest

CLASS = "FILE.py:CLASS or package.module:CLASS of one's own"
"""How a recipe names one, for messages."""

_CODE = re.compile(r".+\.py:\w+|[\w.]+:[A-Z]\w*")
_SESSION = "__main__"
"""In the place of a file: the class is of a notebook, of the script that runs, or within a function."""

_loaded: dict[str, type[Any]] = {}
"""What this process has, by :func:`name_of`."""
_trusted: ContextVar[Container[str]] = ContextVar("lyceum_trusted_components", default=())


def is_code(kind: object) -> bool:
    """Whether a kind names a class. A module's class begins with a capital, as ``reasoning-gym:NAME`` does not."""
    return isinstance(kind, str) and _CODE.fullmatch(kind) is not None


def is_own(component: type[Any]) -> bool:
    """Whether a component's class does not come with lyceum."""
    return component.__module__.partition(".")[0] != "lyceum"


def file_of(component: type[Any]) -> str | None:
    """The file that a class was defined in; None in a notebook."""
    file = getattr(sys.modules.get(component.__module__), "__file__", None)
    return None if file is None else str(Path(file).resolve())


def own_file(component: type[Any]) -> str | None:
    """The file of a class of the user's own; None for lyceum's, and for one of a notebook."""
    return file_of(component) if is_own(component) else None


def name_of(component: type[Any]) -> str:
    """What a resolved recipe calls it: its file and class, by the module where that is installed, or ``__main__:CLASS``
    where no other process could import it."""
    file, module = file_of(component), component.__module__
    if file is None or not file.endswith(".py") or module == _SESSION or "." in component.__qualname__:
        return f"{_SESSION}:{component.__name__}"
    installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
    return f"{module if installed else file}:{component.__name__}"


def remember(component: type[Any]) -> None:
    """Let recipes of this process name a class that has just been defined."""
    _loaded[name_of(component)] = component


class _Everything:
    def __contains__(self, name: object) -> bool:
        return True


@contextmanager
def trusting(names: Iterable[str], *, everything: bool = False) -> Iterator[None]:
    """Import the classes that recipes read inside name, where the user has typed the name too.

    Args:
        names: what the user has typed.
        everything: whatever the name is (``trust_code=true``).
    """
    token = _trusted.set(_Everything() if everything else {_absolute(name) for name in names if is_code(name)})
    try:
        yield
    finally:
        _trusted.reset(token)


def is_trusted(kind: str) -> bool:
    """Whether :func:`load` gives what a kind names."""
    absolute = _absolute(kind)
    place = absolute.rpartition(":")[0]
    return absolute in _trusted.get() or absolute in _loaded or paper_folders.is_trusted(place)


def _absolute(kind: str) -> str:
    """The name with its file's whole path, by which a run's recipe has it."""
    try:
        return ":".join(split_spec(kind, key="kind"))
    except RecipeError:  # it cannot be one, which load() says
        return kind


def load(kind: str) -> object:
    """What a kind ``FILE.py:NAME`` names.

    Raises:
        RecipeError: it is not trusted, cannot be imported, or is not there; the lines begin without a key.
    """
    place, name = split_spec(kind, key="kind")
    if not is_trusted(kind):
        raise RecipeError(
            f"kind: the recipe wants to run {kind}; look at it, then give trust_code=true or the name itself on the "
            "command line"
        )
    if (known := _loaded.get(f"{place}:{name}")) is not None:
        return known
    if place == _SESSION:
        raise RecipeError(
            f"kind: got {kind!r}, a class that was defined in a notebook, a script or a function of another process; "
            f"allowed: the class in a file of its own, and FILE.py:{name} in the place of this kind"
        )
    module = load_module(place, key="kind")
    if not hasattr(module, name):
        own = [*_loaded.values()]
        names = [each for each, value in vars(module).items() if value in own]
        raise RecipeError(
            f"kind: {place!r} has no class {name!r}{nearest(name, names)}; it has {', '.join(names) or 'no component'}"
        )
    return getattr(module, name)
