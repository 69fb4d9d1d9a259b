"""Worker process that makes and grades reasoning-gym's entries (called by ``reasoning_gym``).

An entry depends on its place alone: every worker process has the same hash seed (``reward/pool.py``), and the global
random generators, from which some datasets and verifiers draw, are seeded by the place before each use.

Some of reasoning-gym's verifiers pass an answer to Python's ``eval``, or to sympy's parser, which evaluates it: there,
an answer is read as a literal, or must be plain mathematics (see ``shield``). A model's text is never run.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import io
import json
import random
import re
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any

EVALUATED = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")
"""Datasets whose verifier evaluates an answer that should be a Python list."""
PARSED_BY_SYMPY = (
    "countdown",
    "intermediate_integration",
    "polynomial_multiplication",
    "puzzle24",
    "simple_integration",
)
"""Datasets whose verifier passes an answer to sympy's parser, which evaluates it as Python."""

DATASETS_KEPT, ENTRIES_KEPT = 64, 1024
"""Kept in memory: some datasets take seconds to make, and so do some entries, each graded once per answer."""

# A number, a single letter, a function or an operator: no attribute, no string, no index, no other name.
_TOKEN = re.compile(
    r"\d+(?:\.\d*)?|\.\d+|(?:sin|cos|tan|exp|log|ln|sqrt|asin|acos|atan|sinh|cosh|tanh|pi|[A-Za-z])(?![\w.])"
    r"|[-+*/^()\s]"
)


def worker() -> Callable[[dict[str, Any]], Any]:
    """The function that runs a job: what to ``do``, and the place (``source``, ``try``, ``index``) of the entry.

    ``source`` is JSON of a source's dataset, config, key and size. Each try is a separate dataset: some end at their
    size.
    """
    import reasoning_gym  # noqa: F401  # takes a second, which counts as process start and not as a job's time

    def work(job: dict[str, Any]) -> Any:
        if job["do"] == "fields":
            return fields()
        place = job["source"], job["try"], job["index"]
        return score(*place, job["answer"]) if job["do"] == "score" else entry_or_refusal(*place)

    return work


def fields() -> dict[str, list[str]]:
    """Names of each dataset's own settings."""
    from reasoning_gym.factory import DATASETS

    return {
        name: [field.name for field in dataclasses.fields(config) if field.name not in ("seed", "size")]
        for name, (_, config) in sorted(DATASETS.items())
        if name != "composite"
    }


@functools.lru_cache(DATASETS_KEPT)
def dataset_of(source: str, number: int) -> tuple[Any, Callable[[str], bool]]:
    """The dataset of a try, and a filter of answers that its verifier may see. Raises reasoning-gym's errors for
    invalid settings."""
    from reasoning_gym import create_dataset

    given = json.loads(source)
    place = f"{given['key']}/{number}"
    reseed(place)
    # reasoning-gym draws entry i from seed + i: seeds must lie far apart, or two tries share entries.
    dataset = create_dataset(given["dataset"], **given["config"], seed=_number(place) >> 1, size=given["size"])
    without_clock(given["dataset"], dataset)
    return dataset, shield(given["dataset"], dataset)


@functools.lru_cache(ENTRIES_KEPT)
def entry_of(source: str, number: int, index: int) -> dict[str, Any]:
    dataset, _ = dataset_of(source, number)
    reseed(f"{source}/{number}/{index}")
    with contextlib.redirect_stdout(io.StringIO()):  # bf's compiler prints a dot at each step
        return dataset[index]


def entry_or_refusal(source: str, number: int, index: int) -> dict[str, Any]:
    """An entry in JSON types, or under ``refused`` the error that reasoning-gym raised."""
    try:
        entry = entry_of(source, number, index)
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"[:300]}
    return {"question": entry["question"], "answer": entry["answer"], "metadata": plain(entry["metadata"])}


def score(source: str, number: int, index: int, answer: str | None) -> float:
    """The dataset's own score of an answer (None: no answer), in 0 .. 1.

    An answer on which the verifier raises (a word where it reads numbers) scores 0 if the entry's own answer can be
    graded: then the model's answer is unreadable.
    """
    dataset, readable = dataset_of(source, number)
    entry = entry_of(source, number, index)
    reseed(f"{source}/{number}/{index}")
    try:
        return float(dataset.score_answer(answer if answer is None or readable(answer) else None, entry))
    except (MemoryError, RecursionError):
        raise  # a resource limit was hit, which says nothing about the answer
    except Exception:
        dataset.score_answer(entry["answer"], entry)  # raises if the verifier or the entry is at fault
        return 0.0


def reseed(place: str) -> None:
    """Seed the global random generators from a place."""
    import numpy as np
    import sympy.core.random

    for seed in (random.seed, np.random.seed, sympy.core.random.seed):
        seed(_number(place))


def without_clock(name: str, dataset: Any) -> None:
    """Keep a dataset's entries independent of the current date."""
    if name == "time_intervals":
        # It parses its own times of day again, and a time without a date defaults to today.
        from dateutil import parser

        parse = functools.partial(parser.parse, default=datetime(2000, 1, 1))
        vars(sys.modules[type(dataset).__module__])["parser"] = SimpleNamespace(parse=parse)


def shield(name: str, dataset: Any) -> Callable[[str], bool]:
    """Keep a dataset's verifier from evaluating a model's text; returns a filter of answers that it may see.

    Where it calls ``eval``, the name is replaced in its module by one that reads literals and nothing else. Where it
    calls sympy's parser, an answer must be plain mathematics; anything else counts as no answer.
    """
    if name in EVALUATED:
        vars(sys.modules[type(dataset).__module__])["eval"] = ast.literal_eval
    if name in PARSED_BY_SYMPY:
        return _is_mathematics
    return lambda answer: True


def _is_mathematics(text: str) -> bool:
    """Whether a text is tokens of mathematics and nothing else.

    Token by token, since one pattern of repeated tokens takes exponential time on a long number before an invalid
    character, and the possessive repeats that would not are wrong in Python before 3.11.5: they let ``os`` through.
    """
    place = 0
    while token := _TOKEN.match(text, place):
        place = token.end()
    return place == len(text)


def plain(value: Any) -> Any:
    """The value in JSON types; anything else as its text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return str(value)


def _number(place: str) -> int:
    return int.from_bytes(blake2b(place.encode(), digest_size=4).digest(), "big")
