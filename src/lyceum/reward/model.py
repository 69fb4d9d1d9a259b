"""What a learned model says: process rewards of a trajectory's steps, or its outcome, by the stage's value model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from lyceum.core.settings import RewardSettings
from lyceum.core.spans import TokenEnds
from lyceum.core.steps import Steps, step_ends
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, JudgedStep, Judgement, MarkedPath, Origin, Task, TaskSource
from lyceum.reward.extract import WHOLE, Extract
from lyceum.utils.numbers import mean


class ModelReward(RewardSettings):
    """The judgement of the stage's ``value`` model, trained by an earlier stage (``value.from_stage``), read from a
    folder (``value.path``), or learning meanwhile (``value.online``).

    A trained process model gives each step the probability that it is right, an implicit one the log-ratio of its
    tokens. ``weight`` multiplies both outcome and steps.
    """

    requires: ClassVar = ("judgements",)

    kind: Literal["model"] = "model"
    outcome: bool = False
    """Add the model's own outcome to the reward; false: its process rewards alone, which some credits read."""
    cut: Literal["none", "tokens", "step", "turns"] = "none"
    """Where process rewards are given: nowhere, at every token, at the ends of steps by ``step``, or where the policy
    ended a turn."""
    step: Steps | None = None
    """For ``cut: step``: where a step ends, as in rollouts."""
    shown: Extract = WHOLE
    """The part of a completion that the model is shown below the prompt: ``whole``, or the answer alone, without the
    reasoning before it; where there is none, nothing. For ``cut: none``, and a model that was trained alike."""
    turn_bonus: float = Field(default=0.0)
    """For ``cut: turns``: added to the reward of each turn that the environment answered without an error
    (``Node.reward`` of 0 or more), before ``weight``."""

    @model_validator(mode="after")
    def _cuts_where_it_says(self) -> ModelReward:
        if (self.cut == "step") != (self.step is not None):
            raise ValueError(f"step: got {self.step} with cut '{self.cut}'; allowed: one with 'step', none with others")
        if self.step is not None and self.step.by == "entropy":
            raise ValueError("step.by: got 'entropy', which not every trajectory can be cut by; allowed: another one")
        if self.cut == "none" and not self.outcome:
            raise ValueError("cut: got 'none' with outcome false, which rewards nothing; allowed: one of them")
        if self.shown.form != "whole" and self.cut != "none":
            raise ValueError(
                f"shown: got {self.shown.form!r} with cut '{self.cut}', whose steps are not shown then; allowed: 'none'"
            )
        if self.turn_bonus and self.cut != "turns":
            raise ValueError(f"turn_bonus: got {self.turn_bonus:g} with cut '{self.cut}'; allowed: 0, or cut 'turns'")
        return self

    def build(self, source: TaskSource) -> Grader:
        return self.grade

    async def grade(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        if self.shown.form != "whole":
            return await self.of_answers(leaves, context)
        ends = TokenEnds(context.decode)
        asked = [Cut(leaf, self.ends(leaf, context)) for leaf in leaves]
        said = await context.judge([self.marked(one) for one in asked])
        return [self.graded(one, judged, ends.of(one.leaf)) for one, judged in zip(asked, said, strict=True)]

    async def of_answers(self, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        """The outcomes of the answers alone."""
        prompts = [len(leaf.root.tokens) for leaf in leaves]
        paths = [answer_path(leaf, self.shown, context.encode) for leaf in leaves]
        said = await context.judge([MarkedPath(*each, ()) for each in zip(paths, prompts, strict=True)])
        shown = [float(len(path) - prompt) for path, prompt in zip(paths, prompts, strict=True)]
        return [
            Grade(one.outcome, parts={"outcome": one.outcome, "shown": tokens})
            for one, tokens in zip(said, shown, strict=True)
        ]

    def marked(self, cut: Cut) -> MarkedPath:
        starts = [start for _, start, _ in turn_spans(cut.leaf)] if self.cut == "turns" else ()
        return MarkedPath(cut.leaf.path_tokens(), cut.prompt, cut.ends, starts)

    def ends(self, leaf: Node, context: GradingContext) -> list[int]:
        """Ends of the steps, in tokens of the path."""
        prompt = len(leaf.root.tokens)
        below = leaf.path_tokens()[prompt:]
        match self.cut:
            case "tokens":
                return list(range(prompt + 1, prompt + len(below) + 1))
            case "turns":
                return [end for _, end in turns(leaf)]
            case "step" if self.step is not None:
                return [prompt + end for end in step_ends(below, (), self.step, context.decode)]
            case _:
                return []

    def graded(self, cut: Cut, judged: Judgement, ends: Sequence[int]) -> Grade:
        rewards = list(judged.steps)
        if self.turn_bonus:
            paid = [node.reward >= 0 for node, _ in turns(cut.leaf)]
            rewards = [reward + self.turn_bonus * good for reward, good in zip(rewards, paid, strict=True)]
        steps = spans([end - cut.prompt for end in cut.ends], rewards, ends)
        parts = {"outcome": judged.outcome, "steps": float(len(rewards))}
        parts |= {**({"process": mean(rewards)} if rewards else {}), **judged.parts}
        return Grade(judged.outcome if self.outcome else 0.0, steps=steps, parts=parts)


def answer_path(leaf: Node, shown: Extract, encode: Callable[[str], list[int]]) -> list[int]:
    """The prompt's tokens, and those of the part of the completion that is shown; none where it is not there.

    Args:
        encode: a text's tokens, with the end of sequence.
    """
    return [*leaf.root.tokens, *encode(shown(leaf.completion) or "")]


@dataclass(frozen=True)
class Cut:
    """A trajectory, and where its steps end, in tokens of its path."""

    leaf: Node
    ends: Sequence[int]

    @property
    def prompt(self) -> int:
        return len(self.leaf.root.tokens)


def turns(leaf: Node) -> list[tuple[Node, int]]:
    """What the policy wrote last before anyone else did, or before the end, and the path's tokens up to there."""
    return [(node, end) for node, _, end in turn_spans(leaf)]


def turn_spans(leaf: Node) -> list[tuple[Node, int, int]]:
    """The last node of each turn, and where the turn begins and ends, in tokens of the path."""
    found: list[tuple[Node, int, int]] = []
    at = start = 0
    path = leaf.path()
    for before, node, after in zip([None, *path], path, [*path[1:], None], strict=False):
        wrote = node.origin is Origin.POLICY
        if wrote and (before is None or before.origin is not Origin.POLICY):
            start = at
        at += len(node.tokens)
        if wrote and (after is None or after.origin is not Origin.POLICY):
            found.append((node, start, at))
    return found


def spans(stops: Sequence[int], reward: Sequence[float], ends: Sequence[int]) -> tuple[JudgedStep, ...]:
    """Steps of tokens as spans of the text. A step that adds no text is judged with the next one that does, or else
    with the last.

    Args:
        stops: end of each step, in tokens below the prompt.
        ends: of :class:`~lyceum.core.spans.TokenEnds`.
    """
    found: list[JudgedStep] = []
    before, waiting = 0, 0.0
    for stop, value in zip(stops, reward, strict=True):
        waiting += value
        if ends[stop] > before:
            found.append(JudgedStep(before, ends[stop], waiting))
            before, waiting = ends[stop], 0.0
    if waiting and found:
        found[-1] = found[-1]._replace(reward=found[-1].reward + waiting)
    return tuple(found)
