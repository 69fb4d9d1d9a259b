"""Which groups may begin, and which a step trains, so that none is trained too late: a bound that waiting keeps.

Versions count the stage's updates: step v trains the weights of version v. A group that begins under version h may be
trained in the steps h .. h + k, where k is the bound on staleness: its *deadline* is h + k. Nothing is discarded for
its age: a step waits rather than leave groups to later steps that these could not all train in time.

    may begin       b + r < min(k + 1, s - v) * B      b, r: groups that have begun, and that wait to be trained
    may be trained  for each later step u:  |{groups left with deadline <= u}| <= (u - v) * B

with B groups per step and s steps. What begins sooner than it is needed only grows old, so none begins while two steps'
groups are finished, and no more than a step's wait for a place in a worker.

By the first rule the second can be met: the groups with deadlines until u are never more than (u - v + 1) * B, so that
the B earliest deadlines, once all groups have ended, leave few enough. AReaL (arXiv:2505.24298, section 5.1) has the
first rule alone, under which a group that others overtake exceeds the bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate


def may_begin(outstanding: int, version: int, *, steps: int, size: int, staleness: int) -> int:
    """How many groups may begin now.

    Args:
        outstanding: groups that have begun and are neither trained nor dropped: one that is dropped gives its place
            back, and those of a step count until its update is done.
        version: updates of the stage that are done.
        steps: updates with which the stage ends: none begins that could not be trained.
        size: groups per step.
        staleness: bound, in updates.
    """
    return max(0, min(staleness + 1, steps - version) * size - outstanding)


STORE = 2
"""Finished groups, in steps, with which no more begin. Simulated over bounds of 1 to 16 (``benchmarks/asynchrony.py
--parts lengths``, rules ready and eager), a step takes at most 9 % longer than without a limit, and what it trains is 3
to 4 updates old at bounds of 8 and 16, not 8 to 15."""


def should_begin(may: int, ready: int, waiting: int, *, size: int) -> int:
    """How many of the groups that may begin do.

    Args:
        may: :func:`may_begin`.
        ready: groups that are finished and not trained.
        waiting: groups that have begun as far as the run is concerned, and wait for a place in a worker.
    """
    return 0 if ready >= STORE * size else max(0, min(may, size - waiting))


def to_train(
    ready: Sequence[int], running: Sequence[int], version: int, *, size: int, least: int | None = None
) -> list[int] | None:
    """Which groups the step of this version trains; None where it has to wait for others.

    Those with the earliest deadlines, ties in the order given: whichever others it trained instead would leave more
    groups with early deadlines. So if these may not be trained now, no others may.

    Args:
        ready: deadline of each group that is finished.
        running: deadlines of those under way.
        size: groups per step.
        least: with how many groups the step is satisfied; None: ``size``.
    Returns:
        Indices into ``ready``, in order.
    """
    if len(ready) < (size if least is None else least):
        return None
    by_deadline = sorted(range(len(ready)), key=lambda i: ready[i])
    left = [*(ready[i] for i in by_deadline[size:]), *running]
    return sorted(by_deadline[:size]) if in_time(left, version + 1, size=size) else None


def in_time(deadlines: Sequence[int], version: int, *, size: int) -> bool:
    """Whether steps from this version on can train so many groups, each by its deadline."""
    due = Counter(deadlines)
    counts = zip(sorted(due), accumulate(due[deadline] for deadline in sorted(due)), strict=True)
    return all(count <= (deadline - version + 1) * size for deadline, count in counts)
