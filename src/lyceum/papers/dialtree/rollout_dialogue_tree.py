"""A dialogue as a tree: several next turns from each state, what is malformed pruned, a few states kept (DialTree-RPO).

Source: DialTree-RPO, arXiv:2510.02286: tree rollouts with pruning; all leaves of a tree are one group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.tree import Node, Tree, is_correct
from lyceum.rollout._growth import by_counter
from lyceum.rollout.turns import Conversation, Turns, TurnStart
from lyceum.utils.aio import gather
from lyceum.utils.numbers import mean

NOTE = "dialogue-tree"


class DialogueTree(Turns):
    """From each state of a dialogue several next turns are drawn. A turn that is malformed, or the same as another one
    from that state, is pruned before the environment sees it; of the states after the others at most ``width`` are
    kept, at random. Where every turn from a state is malformed, one of them ends the dialogue there, as a failure.
    Pruned turns are not trained."""

    turns_branch: ClassVar = True

    kind: Literal["dialogue-tree"] = "dialogue-tree"  # pyright: ignore[reportIncompatibleVariableOverride]
    samples: int = Field(default=16, ge=1)
    """Maximum dialogues per task, unless the curriculum sets the number: the first that end."""
    branch: int = Field(default=3, ge=2, le=64)
    """Turns drawn from each state."""
    width: int = Field(default=4, ge=1, le=256)
    """States that are kept after each turn."""
    characters: str | None = Field(default=None, min_length=1, max_length=200)
    """The characters that a turn may have; one with another is malformed. null: any."""
    longest: int | None = Field(default=None, ge=1)
    """Maximum characters of a turn; a longer one is malformed, and so is an empty one. null: any number."""

    def well_formed(self, turn: Node) -> bool:
        said = turn.text.strip()
        known = self.characters is None or not set(said) - set(self.characters)
        return turn.finish == "stop" and bool(said) and known and (self.longest is None or len(said) <= self.longest)

    async def talked(self, talk: Conversation, samples: int) -> list[Node]:
        """Notes on the tree how many turns were drawn, how many were malformed or there already, and how many states
        were one too many."""
        [(begin, _)] = await talk.begins(1)
        states, finished = [begin], list[Node]()
        counts: dict[str, int] = dict.fromkeys(("turns", "malformed", "equal", "over_width"), 0)
        while states and len(finished) < samples:
            drawn = await gather(talk.extend(place, self.branch) for place in states)
            going = [
                (place, turn) for place, turns in zip(states, drawn, strict=True) for turn in self.pruned(turns, counts)
            ]
            after = await gather(talk.after(place, turn) for place, turn in going)
            finished += [turn for (_, turn), place in zip(going, after, strict=True) if place is None]
            states = self.kept([place for place in after if place is not None], talk, counts)
        talk.context.tree.record(NOTE, counts)
        return finished[:samples]

    def pruned(self, turns: Sequence[Node], counts: dict[str, int]) -> list[Node]:
        """The turns from one state that go on: the well-formed ones, each text once; else the first."""
        formed = [turn for turn in turns if self.well_formed(turn)]
        distinct = list({turn.text: turn for turn in reversed(formed)}.values())[::-1]
        counts["turns"] += len(turns)
        counts["malformed"] += len(turns) - len(formed)
        counts["equal"] += len(formed) - len(distinct)
        return distinct or list(turns[:1])

    def kept(self, states: Sequence[TurnStart], talk: Conversation, counts: dict[str, int]) -> list[TurnStart]:
        """At most ``width`` of the states, drawn at random, in the order in which they were."""
        order = sorted(states, key=lambda place: by_counter(talk.context, NOTE, place.node.address).random())
        chosen = {id(place) for place in order[: self.width]}
        counts["over_width"] += max(0, len(states) - self.width)
        return [place for place in states if id(place) in chosen]

    def metrics(self, trees: Sequence[Tree]) -> dict[str, float]:
        """Beside those of ``turns``: the counts of :meth:`talked`, and how many different dialogues of a task reach the
        goal, on average."""
        noted = [tree.metadata[NOTE] for tree in trees if NOTE in tree.metadata]
        counts = sum((Counter(note) for note in noted), Counter[str]())
        ways = [len({leaf.completion for leaf in tree.trajectories if is_correct(leaf)}) for tree in trees]
        return {**super().metrics(trees), **counts, "strategies": mean(list(map(float, ways))) if ways else 0.0}
