"""A proposer writes tasks and a solver answers them: the proposer earns what the solver can learn from its task.

Source: Absolute Zero, arXiv:2505.03335, section 3: learnability and the penalty of format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree, solved
from lyceum.core.types import Context, Grade, ProposedSource, Rollout, Task, TaskSource
from lyceum.guidance.base import TaskGuide, answers_to, notes_of, writable
from lyceum.utils.aio import gather
from lyceum.utils.numbers import mean

Earned = Literal["learnability", "difficulty", "diversity"]


class ProposerSolver(GuidanceSettings):
    """The drawn task is only an example: the proposer writes others, and these are what the solver answers. A proposal
    is parsed by a rule, which also computes its answer; what is no task is rejected, counted, and not solved."""

    plays: ClassVar[tuple[str, ...]] = ("proposer", "solver")

    kind: Literal["proposer-solver"] = "proposer-solver"
    proposals: int = Field(default=4, ge=1, le=256)
    """Proposals per drawn task; each is answered as often as the rollout samples."""
    earns: Earned = "learnability"
    """What a proposal earns, where m is the solver's accuracy on it: ``learnability`` 1 - m, but 0 at m = 0 and at
    m = 1 (Absolute Zero); ``difficulty`` 1 - m (Search Self-play, arXiv:2510.18821); ``diversity`` 4 m (1 - m), the
    variance of the answers' outcomes over the largest that there is (Syn-GRPO, arXiv:2511.19343)."""
    rejected: float = Field(default=-1.0, ge=-100, le=100)
    """What a rejected proposal earns."""

    def check_tasks(self, source: TaskSource) -> None:
        writable(self.kind, source)

    def build(self, source: TaskSource, *, seed: int) -> ProposerSolverGuide:
        return ProposerSolverGuide(self, writable(self.kind, source))


@dataclass
class Proposals(Note):
    """What became of a group of proposals.

    Attributes:
        rejected: reason -> how many.
        accuracy: the solver's, on each accepted one that was graded.
        distinct: different accepted tasks.
        proposed: all proposals.
    """

    kind: ClassVar[str] = "proposer-solver"
    proposed: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    accuracy: list[float] = field(default_factory=list)
    distinct: int = 0


class ProposerSolverGuide(TaskGuide):
    """Has no state."""

    tested = True  # its roles are sampled in every task

    def __init__(self, settings: ProposerSolver, source: ProposedSource) -> None:
        self.settings, self.source = settings, source

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        proposer = context.acting("proposer")
        tokens = proposer.render(self.source.to_propose(context.task))
        prompt = proposer.tree.add_prompt(tokens, proposer.decode(tokens))
        proposals = await rollout(proposer, prompt, self.settings.proposals)
        read = [self.read(leaf, context.task) for leaf in proposals]
        answers = await gather([self.solve(rollout, context, task, n) for task in read])
        note = Proposals(len(proposals))
        context.tree.add_note(note)
        for leaf, task, leaves in zip(proposals, read, answers, strict=True):
            leaf.grade = self.grade(task, leaves, note)
        note.distinct = len({task.id for task in read if isinstance(task, Task)})
        return [*proposals, *(leaf for leaves in answers for leaf in leaves)]

    def read(self, proposal: Node, like: Task) -> Task | str:
        """The proposed task, or why it is none."""
        return "truncated" if proposal.finish == "length" else self.source.proposed(proposal.completion, like)

    async def solve(self, rollout: Rollout, context: Context, task: Task | str, n: int | None) -> list[Node]:
        """The solver's graded answers; none to what is no task, or where no token is left."""
        if isinstance(task, str):
            return []
        return await answers_to(rollout, context.acting("solver", task), task.messages, task.id, n)

    def grade(self, task: Task | str, answers: Sequence[Node], note: Proposals) -> Grade:
        """A proposal's grade; its verdict is whether it is a task."""
        if isinstance(task, str):
            note.rejected[task] += 1
            return Grade(self.settings.rejected, False, parts={"rejected": 1.0})
        accuracy = solved(answers)
        if accuracy is None:
            return Grade.ungraded("no answer to the proposed task was graded")
        note.accuracy.append(accuracy)
        earned = earned_by(accuracy, self.settings.earns)
        return Grade(earned, True, parts={"rejected": 0.0, self.settings.earns: earned})

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, Proposals)]
        accuracy = [share for note in notes for share in note.accuracy]
        rejected = sum((Counter(note.rejected) for note in notes), Counter[str]())
        metrics: dict[str, float] = {
            "proposals/all": sum(note.proposed for note in notes),
            "proposals/solved_between": sum(0 < share < 1 for share in accuracy),
            "proposals/distinct_in_group": sum(note.distinct for note in notes),
            "proposals/rejected": rejected.total(),
            **{f"rejected/{reason}": times for reason, times in sorted(rejected.items())},
        }
        if accuracy and self.settings.earns == "diversity":
            metrics["proposals/diversity"] = mean([earned_by(share, "diversity") for share in accuracy])
        self._metrics = metrics


def earned_by(accuracy: float, how: Earned) -> float:
    """What a proposal earns where the solver has this accuracy: 1 - m; as learnability 0 where m is 0 or 1; as
    diversity 4 m (1 - m)."""
    if how == "diversity":
        return 4 * accuracy * (1 - accuracy)
    return 0.0 if how == "learnability" and accuracy in (0.0, 1.0) else 1.0 - accuracy
