"""Code of the user's own that a recipe or a command names: ``path/to/file.py:name`` or ``package.module:name``."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from lyceum.core.user_files import describe
from lyceum.utils.errors import RecipeError
from lyceum.utils.tracebacks import exit_in_words, user_traceback

_RELATIVE = "attempted relative import"
"""What Python says of ``from .utils import ...`` in a file that is loaded alone."""


def split_spec(spec: str, *, key: str, default_name: str | None = None) -> tuple[str, str]:
    """``path/to/file.py:name`` or ``package.module:name`` in its two parts, a file's path made absolute."""
    place, colon, name = spec.rpartition(":")
    if spec.endswith(".py") and default_name is not None:
        place, colon, name = spec, ":", default_name
    if not colon or not place or not name.isidentifier() or "\0" in place:
        raise RecipeError(f"{key}: got {spec!r}; allowed: path/to/file.py:name or package.module:name")
    # Not Path.expanduser, which raises where there is no such user.
    return (str(Path(os.path.expanduser(place)).resolve()) if place.endswith(".py") else place), name


def load_module(place: str, *, key: str) -> ModuleType:
    """A file, or a module by its name, whose code is run if it is not loaded yet.

    Raises:
        RecipeError: it is missing, or fails on import.
    """
    if place.endswith(".py") and not os.path.isfile(place):  # Path.is_file raises for names that are too long
        raise RecipeError(f"{key}: {place!r} does not exist; allowed: path/to/file.py:name or package.module:name")
    try:
        with _not_ending_the_process():
            return _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    except Exception as error:
        where = (user_traceback(error) or "").splitlines()
        cure = (
            "; allowed: package.module:name for a file of a package" if _RELATIVE in str(error) else _to_install(error)
        )
        raise RecipeError([f"{key}: {place!r} cannot be imported: {describe(error)}{cure}", *where]) from error


def _to_install(error: Exception) -> str:
    """What to do about a package that is missing as a whole."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or "." in error.name:
        return ""
    return f"; allowed: a package that is installed (pip install {error.name}), or a file in this folder"


def _load_module(name: str) -> ModuleType:
    _also_search(Path.cwd())  # as `python -m` does; `lyceum` is a script, which searches its own folder
    return importlib.import_module(name)


def _also_search(folder: Path) -> None:
    """Let modules of this folder be imported; last, so that they do not shadow a library."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _load_file(path: Path) -> ModuleType:
    try:
        return _load_alone(path)
    except ImportError as error:
        if _RELATIVE not in str(error) or not (path.parent / "__init__.py").is_file():
            raise
    # It imports `.utils`: a module of a package, whose name the folders with an __init__.py make.
    names, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        names, folder = [folder.name, *names], folder.parent
    _also_search(folder)
    name = ".".join(names)
    module = importlib.import_module(name)
    if Path(module.__file__ or "").resolve() != path:
        raise ImportError(f"{name} is another file, {module.__file__}")
    return module


def _load_alone(path: Path) -> ModuleType:
    # Registered under a unique name: two files named reward.py must not be one module, and dataclasses and
    # functools look a function's module up by its name.
    name = f"lyceum_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _also_search(path.parent)  # it may import files beside it
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _not_ending_the_process() -> Iterator[None]:
    """``sys.exit`` is an ImportError, and so is ``os._exit``, which would end a run as if it had succeeded.

    A process that is forked meanwhile ends as it wants to: it would go on as a second run.
    """
    kept, own = os._exit, os.getpid()

    def leave(status: int = 0) -> NoReturn:
        if os.getpid() == own:
            sys.exit(status)
        kept(status)

    os._exit = leave
    try:
        yield
    except SystemExit as error:
        if os.getpid() != own:
            kept(error.code if isinstance(error.code, int) else int(error.code is not None))
        raise ImportError(f"the file ends the program as it is imported ({exit_in_words(error)})") from None
    finally:
        os._exit = kept
