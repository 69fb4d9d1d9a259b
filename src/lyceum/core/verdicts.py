"""Which answers are correct, where rewards are plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lyceum.core.types import Grade


def verdict_reader(grades: Iterable[Grade | None]) -> Callable[[Grade | None], bool | None]:
    """How grades are read as verdicts, decided by all grades of an evaluation, a step or a group.

    A grade's own ``correct`` counts. Without it the numbers of a part are verdicts (1 is correct) where all of them are
    0 or 1; a part with any other number shapes the reward and judges nothing: an accuracy of the samples that happen to
    have exactly 0 or 1 would be biased. Correct is what every part that judges says.
    """
    binary: dict[str, bool] = {}
    for grade in grades:
        for name, number in ({} if grade is None else grade.numbers).items():
            binary[name] = binary.get(name, True) and number in (0.0, 1.0)

    def read(grade: Grade | None) -> bool | None:
        if grade is None or grade.correct is not None:
            return None if grade is None else grade.correct
        said = [number == 1.0 for name, number in grade.numbers.items() if binary.get(name)]
        return all(said) if said else None

    return read
