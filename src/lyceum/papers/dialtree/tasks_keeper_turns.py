"""Turns of dialogues with keepers to imitate, as people talk, mostly in vain: any approach, whatever was said."""

from __future__ import annotations

import random
from typing import Literal

from pydantic import Field

from lyceum.core.types import Split, Task
from lyceum.papers.dialtree.tasks_keepers import APPROACHES, GIVES_WAY, Keepers, KeepersSource, asked, replied, ways_of


class KeeperTurns(Keepers):
    """The next approach in a dialogue that has not been won, in ``columns["demonstration"]``: for fine-tuning only."""

    kind: Literal["keeper-turns"] = "keeper-turns"  # pyright: ignore[reportIncompatibleVariableOverride]
    turns: int = Field(default=4, ge=1, le=16)
    """Maximum turns of a dialogue."""

    def build(self, split: Split, seed: int) -> KeeperTurnsSource:
        return KeeperTurnsSource(self, split, seed)


class KeeperTurnsSource(KeepersSource):
    """``source[i]`` depends on (seed, split, i) alone."""

    def __getitem__(self, index: int) -> Task:
        settings = self.settings
        assert isinstance(settings, KeeperTurns)
        id = self.key(index)
        rng = random.Random(id)
        level = settings.levels[index % len(settings.levels)]
        messages, before = [*asked(level)], None
        for _ in range(rng.randrange(settings.turns)):
            said = rng.choice(APPROACHES)
            answer, before = replied(ways_of(level), before, said)
            if answer == GIVES_WAY:
                break
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": answer}]
        columns = {"level": level, "demonstration": rng.choice(APPROACHES)}
        return Task(id, tuple(messages), columns=columns, provenance="keeper-turns")
