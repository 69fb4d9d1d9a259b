"""DRM: the quality of a reasoning along confidence, relevance and coherence, without the reference answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from lyceum.core.component import Component, Settings, require_keys, slot
from lyceum.core.settings import RewardSettings, ScorerSettings
from lyceum.core.tallies import TALLY, Tally
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Grade, Grader, GradingContext, Reasoned, Scorer, State, Task, TaskSource
from lyceum.reward.base import BaseGrader, add_up, ask_part, standardised
from lyceum.reward.extract import Extract
from lyceum.reward.scorer.base import question_of

Name = Literal["confidence", "relevance", "coherence"]


class Dimension(Settings):
    """A scorer and its weight; a scorer's kind alone has weight 1."""

    scorer: Annotated[ScorerSettings, slot("scorer")]
    """What scores it."""
    weight: float = 1.0
    """Weight in the score; 0 only logs it."""

    @model_validator(mode="before")
    @classmethod
    def _scorer_alone(cls, value: Any) -> Any:
        bare = isinstance(value, str) or (isinstance(value, Mapping) and "kind" in value)
        return {"scorer": value} if bare else value


class Drm(RewardSettings):
    """The weighted sum of three dimensions of a reasoning's quality, each by a scorer of its own.

        s = w_confidence s_confidence + w_relevance s_relevance + w_coherence s_coherence

    Confidence: how certain the policy was of reasoning and answer. Relevance: whether the reasoning is about the
    question and the task's documents, and the answer follows from it; each of the three terms has a weight in its
    scorer. Coherence: whether the steps follow from each other. Each is logged per trajectory. Where a dimension with a
    weight abstains, so does the score.

    Beside a verifier: ``reward: [task, {kind: drm, weight: 0}]`` with ``credit: {kind: by-part, parts: {task: 1,
    drm: 1}}``, which adds its advantage to the verifier's; alone as the outcome it chooses the pairs of ``objective:
    dpo``.

    Source:
        DRM, arXiv:2510.11457, as far as its opening, a published summary with the terms of confidence and relevance,
        and its reviews on OpenReview (MjJrhfAmRG) say. The repository that the paper names, Benson0704/DRM on GitHub,
        has a README and no code. How scores are normalised and weighted was not to be found: both are settings.
    """

    asks_model: ClassVar[bool] = True

    kind: Literal["drm"] = "drm"
    confidence: Dimension | None = Field(default="policy", validate_default=True)  # pyright: ignore[reportAssignmentType]
    """How certain the policy was; by default scorer ``policy`` with weight 1, null leaves the dimension out."""
    relevance: Dimension | None = Field(default="lexical", validate_default=True)  # pyright: ignore[reportAssignmentType]
    """Whether question, reasoning and answer belong together; by default scorer ``lexical``, null leaves it out."""
    coherence: Dimension | None = Field(default="step-consistency", validate_default=True)  # pyright: ignore[reportAssignmentType]
    """Whether the reasoning is consistent with itself; by default scorer ``step-consistency``, null leaves it out."""
    extract: Extract = Extract.model_validate({"after": "#"})
    """Where a completion has its answer: boxed, {after: MARK} or {tags: NAME}; the text before it is the reasoning."""
    unanswered: float | None = None
    """Score of a completion without reasoning and an answer in that place; null abstains."""
    normalise: Literal["none", "group"] = "none"
    """Each dimension as it is, in its scorer's unit, or standardised over a task's trajectories graded together, before
    weights: scores in nats and cosines then count alike."""

    @model_validator(mode="after")
    def _something_is_scored(self) -> Drm:
        if not any(dimension.weight for dimension in self.dimensions.values()):
            raise ValueError("got no dimension with a weight; allowed: one or more of confidence, relevance, coherence")
        if self.extract.form in ("whole", "json"):
            raise ValueError(
                "extract: got a form that leaves no reasoning; allowed: boxed, {after: MARK}, {tags: NAME}"
            )
        return self

    @property
    def dimensions(self) -> dict[Name, Dimension]:
        found: dict[Name, Dimension | None] = {name: getattr(self, name) for name in get_args(Name)}
        return {name: dimension for name, dimension in found.items() if dimension is not None}

    def components(self) -> Iterator[Component]:
        yield from (dimension.scorer for dimension in self.dimensions.values())

    def build(self, source: TaskSource) -> Grader:
        return DrmGrader(self, {name: each.scorer.build(source) for name, each in self.dimensions.items()})

    def split(self, leaf: Node, question: str) -> Reasoned | None:
        """Reasoning and answer of a completion; None where one of them is missing."""
        text = leaf.completion
        answer = self.extract(text)
        reasoning = None if answer is None else self.extract.before(text)
        return Reasoned(leaf, question, reasoning, answer) if answer and reasoning and reasoning.strip() else None


class DrmGrader(BaseGrader):
    """Asks the scorers of all dimensions together."""

    def __init__(self, settings: Drm, scorers: Mapping[Name, Scorer]) -> None:
        self.settings, self.scorers = settings, scorers
        self.tally = Tally("graded", "abstained")
        """Trajectories since the step before."""
        self.share: float | None = None

    async def __call__(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        question = question_of(task.messages)
        split = [self.settings.split(leaf, question) for leaf in leaves]
        asked = [each for each in split if each is not None]
        found = await asyncio.gather(*(ask_part(scorer, task, asked, context) for scorer in self.scorers.values()))
        if self.settings.normalise == "group":
            found = [standardised(grades) for grades in found]
        weights = [dimension.weight for dimension in self.settings.dimensions.values()]
        scored = iter([add_up(dict(zip(self.scorers, of, strict=True)), weights) for of in zip(*found, strict=True)])
        grades = [self.without_answer() if each is None else next(scored) for each in split]
        self.tally.count(graded=len(grades), abstained=sum(grade.outcome is None for grade in grades))
        return grades

    def without_answer(self) -> Grade:
        if self.settings.unanswered is None:
            return Grade.ungraded("the completion has no reasoning and an answer where drm.extract looks for them")
        return Grade(self.settings.unanswered)

    def observe(self, trees: Sequence[Tree]) -> None:
        of = self.tally.taken()
        self.share = of["abstained"] / of["graded"] if of["graded"] else None

    def metrics(self) -> dict[str, float]:
        abstained = {} if self.share is None else {"abstained/share": self.share}
        return abstained | {
            f"{name}/{key}": n for name, scorer in self.scorers.items() for key, n in scorer.metrics().items()
        }

    def state_dict(self) -> State:
        return {**{name: scorer.state_dict() for name, scorer in self.scorers.items()}, TALLY: dict(self.tally)}

    def load_state_dict(self, state: State) -> None:
        require_keys("reward.drm", given=state, needed=self.state_dict())
        self.tally.update(state[TALLY])
        for name, scorer in self.scorers.items():
            scorer.load_state_dict(state[name])
