"""A proposer searches and asks what its documents answer, a solver searches for the answer; both are trained (SSP).

Source: Search Self-play, arXiv:2510.18821: difficulty pays the proposer, and a question counts only where its own
documents answer it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.needs import Need
from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree, solved
from lyceum.core.types import Context, Grade, Hint, Origin, ProposedSource, Rollout, Sampling, Task, TaskSource
from lyceum.guidance.base import TaskGuide, answers_to, notes_of, own_prompt, writable
from lyceum.utils.aio import gather
from lyceum.utils.numbers import mean


class SearchSelfPlay(GuidanceSettings):
    """The drawn task is only an example. The proposer's trajectory, with the stage's own tools, ends in a question;
    what the tools answered in it are its documents. A question that a rule reads is answered by the solver without
    tools and with these documents: where too few of these answers are right, it is dropped. What is left the solver
    answers with tools and without documents. The proposer earns 1 - m, m being the solver's accuracy, and ``rejected``
    for a question that was not answered."""

    requires: ClassVar = (
        Need(
            "environment",
            line="{own} with {given}, which has no environment to search in; allowed: a rollout with one, such as "
            "'turns'",
        ),
    )
    plays: ClassVar[tuple[str, ...]] = ("proposer", "solver")
    kind: Literal["search-self-play"] = "search-self-play"
    questions: int = Field(default=4, ge=1, le=256)
    """Questions per drawn task; each is answered as often as the rollout samples."""
    mark: str = Field(default="Question:", min_length=1, max_length=100)
    """What a question stands behind, in the proposer's own text."""
    ends: str = Field(default="", max_length=20)
    """Text that is put behind a question."""
    checks: int = Field(default=2, ge=1, le=64)
    """Answers with the documents."""
    least_right: float = Field(default=0.5, ge=0, le=1)
    """Share of them that has to be right."""
    documents: str = Field(default="{documents}", pattern=r"\{documents\}")
    """The hint that documents make."""
    between: str = Field(default="\n", max_length=20)
    """Text between documents."""
    sampling: Sampling = Sampling(max_completion_tokens=256)
    """How answers with the documents are sampled."""
    rejected: float = Field(default=0.0, ge=-100, le=100)
    """What a question earns that is none, or that its documents do not answer."""

    def check_tasks(self, source: TaskSource) -> None:
        writable(self.kind, source)

    def build(self, source: TaskSource, *, seed: int) -> SearchSelfPlayGuide:
        return SearchSelfPlayGuide(self, source, writable(self.kind, source))


@dataclass
class Searched(Note):
    """What became of a task's questions.

    Attributes:
        asked: all of them.
        searches: documents that their proposers found.
        rejected: reason -> how many.
        accuracy: the solver's, on each question that was answered and graded.
    """

    kind: ClassVar[str] = "search-self-play"
    asked: int = 0
    searches: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    accuracy: list[float] = field(default_factory=list)


class SearchSelfPlayGuide(TaskGuide):
    """Has no state."""

    tested = True  # its roles are sampled in every task

    def __init__(self, settings: SearchSelfPlay, source: TaskSource, written: ProposedSource) -> None:
        self.settings, self.source, self.written = settings, source, written

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        note, proposer = Searched(), context.acting("proposer")
        context.tree.add_note(note)
        prompt = own_prompt(proposer, self.written.to_propose(context.task), "questions")
        if prompt is None:
            return []
        leaves = await rollout(proposer, prompt, self.settings.questions)
        note.asked = len(leaves)
        answers = await gather([self.answered(rollout, context, leaf, n, note) for leaf in leaves])
        return [*leaves, *(answer for of in answers for answer in of)]

    async def answered(
        self, rollout: Rollout, context: Context, question: Node, n: int | None, note: Searched
    ) -> list[Node]:
        """The solver's graded answers to a question, which is graded by them; none where it is dropped."""
        found = [node.text for node in question.path() if node.origin is Origin.TOOL and node.text]
        note.searches += len(found)
        task = self.read(question, context.task)
        if isinstance(task, Task) and not await self.documented(context, task, found):
            task = "documents"
        if isinstance(task, str):
            note.rejected[task] += 1
            question.grade = Grade(self.settings.rejected, False, parts={"rejected": 1.0})
            return []
        leaves = await answers_to(rollout, context.acting("solver", task), task.messages, task.id, n)
        accuracy = solved(leaves)
        if accuracy is None:
            question.grade = Grade.ungraded("no answer to the question was graded")
            return leaves
        note.accuracy.append(accuracy)
        question.grade = Grade(1 - accuracy, True, parts={"rejected": 0.0, "difficulty": 1 - accuracy})
        return leaves

    def read(self, question: Node, like: Task) -> Task | str:
        """The question that a trajectory ends in, as a task; or why it is none."""
        _, mark, text = question.completion.rpartition(self.settings.mark)
        if question.finish == "length" or not mark:
            return "truncated" if question.finish == "length" else "unmarked"
        return self.written.proposed(f"{text.strip()}{self.settings.ends}", like)

    async def documented(self, context: Context, task: Task, documents: Sequence[str]) -> bool:
        """Whether a question's own documents answer it: answers with them, which are neither trained nor kept."""
        solver, of = context.acting("solver", task), self.settings
        hint = Hint("documents", of.documents.replace("{documents}", of.between.join(documents)))
        prompt = Node.prompt(solver.render(self.source.hinted(task, hint).messages))
        most = min(of.sampling.max_completion_tokens, solver.budget_left, solver.tokens_left(prompt))
        if most < 1 or not documents:
            return False
        sampling = of.sampling.model_copy(update={"max_completion_tokens": most})
        drawn = await solver.ask(prompt.tokens, of.checks, sampling, key=(of.kind, task.id))
        leaves = [prompt.add_drawn(one, solver.decode(one.tokens)) for one in drawn]
        await solver.grade(leaves)
        return (solved(leaves) or 0.0) >= of.least_right

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, Searched)]
        accuracy = [share for note in notes for share in note.accuracy]
        rejected = sum((Counter(note.rejected) for note in notes), Counter[str]())
        metrics: dict[str, float] = {
            "questions/all": sum(note.asked for note in notes),
            "questions/answered": len(accuracy),
            "searches/proposer": sum(note.searches for note in notes),
            **{f"rejected/{reason}": times for reason, times in sorted(rejected.items())},
        }
        if accuracy:
            metrics["accuracy/mean"] = mean(accuracy)
        self._metrics = metrics
