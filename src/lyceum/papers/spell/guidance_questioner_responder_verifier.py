"""One model asks about documents, answers from them and judges the answers; no label is known (SPELL).

Source: SPELL, arXiv:2509.23863; Tongyi-Zhiwen/Qwen-Doc, SPELL/verl/verl/trainer/ppo/ray_spell_trainer.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import Field

from lyceum.core.component import require_keys
from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Grade, Message, Rollout, Task, TaskSource
from lyceum.guidance.base import TaskGuide, notes_of, own_prompt
from lyceum.papers.spell._facts import (
    VOTES,
    asked,
    document,
    read_question,
    terms_of,
    to_ask,
    to_judge,
    truth,
    value_of,
)
from lyceum.papers.spell._rewards import (
    FORMAT,
    UNGROUNDED,
    agreement,
    answer_reward,
    majority,
    questioner_reward,
    teaches,
    vote_rewards,
)
from lyceum.papers.spell.tasks_fact_documents import FACTS
from lyceum.utils.aio import gather
from lyceum.utils.errors import RecipeError
from lyceum.utils.numbers import mean


class QuestionerResponderVerifier(GuidanceSettings):
    """The drawn task gives its documents alone. The questioner reads some of them, and of those that earlier questions
    were about with these questions; it writes a question and its answer. One that is answered without documents is
    dropped; the others are answered from all documents, and each answer is judged by several votes.

        answer      1 where it is the reference to the letter or most votes say that it means the same, else 0
        questioner  exp(-(m - 1/2)^2 / (2 (1/6)^2)), m: mean of its answers, 0 for none or all of them; -1 without a
                    form, -1/2 where it is answered without documents
        vote        1 with the majority, 0 against it, -1 where it cannot be read; trained where the majority says what
                    the rule says
    """

    plays: ClassVar[tuple[str, ...]] = ("questioner", "responder", "verifier")

    kind: Literal["questioner-responder-verifier"] = "questioner-responder-verifier"
    questions: int = Field(default=2, ge=1, le=64)
    """Questions per drawn task; each is answered as often as the rollout samples."""
    facts: int = Field(default=2, ge=1, le=26)
    """Facts that a questioner reads, beside those of earlier questions."""
    memory: int = Field(default=3, ge=0, le=16)
    """Earlier questions that are kept for each task; 0 keeps none."""
    votes: int = Field(default=8, ge=1, le=64)
    """Votes per answer."""
    vote_groups: int = Field(default=1, ge=0, le=64)
    """Answers per question whose votes are trained, at most."""
    least_agreement: float = Field(default=0.51, ge=0, le=1)
    """Share of votes with the majority, below which votes are not trained."""
    most_agreement: float = Field(default=0.99, ge=0, le=1)
    """The same, above which they are not."""

    def check_tasks(self, source: TaskSource) -> None:
        if FACTS not in source[0].columns:
            raise RecipeError(f"guidance.{self.kind}: the tasks have no documents; allowed: tasks 'fact-documents'")

    def build(self, source: TaskSource, *, seed: int) -> QuestionerResponderVerifierGuide:
        return QuestionerResponderVerifierGuide(self)


@dataclass
class AboutDocuments(Note):
    """What became of a task's questions.

    Attributes:
        task: whose documents they are about.
        shown: facts that the questioner read.
        remembered: earlier questions that it read.
        written, form, ungrounded: questions, those that are none, and those that are answered without documents.
        terms: of each question that was answered.
        accepted: mean reward of the answers to each.
        references: whether the questioner's own answer is right, of each.
        exact, rescued, right: answers that are the reference to the letter, that votes alone accept, that are right.
        answers: how many.
        judged_right, judged: answers on which the majority says whether both mean the same, and all with a majority.
        agreement: of the votes on each answer.
        unread, trained: votes that cannot be read; groups of votes that are trained.
        solved: what the memory keeps: the letters that the questioner read, the question, its answer.
    """

    kind: ClassVar[str] = "questioner-responder-verifier"
    task: str
    shown: int = 0
    remembered: int = 0
    written: int = 0
    form: int = 0
    ungrounded: int = 0
    terms: list[int] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)
    references: list[bool] = field(default_factory=list)
    answers: int = 0
    exact: int = 0
    rescued: int = 0
    right: int = 0
    judged: int = 0
    judged_right: int = 0
    agreement: list[float] = field(default_factory=list)
    unread: int = 0
    trained: int = 0
    solved: list[list[str]] = field(default_factory=list)


class QuestionerResponderVerifierGuide(TaskGuide):
    """Its state: the memory of each task, the last questions that were answered."""

    tested = True  # its roles are sampled in every task

    def __init__(self, settings: QuestionerResponderVerifier) -> None:
        self.settings = settings
        self.memory: dict[str, deque[list[str]]] = {}

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        note, facts = AboutDocuments(context.task.id), context.task.columns[FACTS]
        context.tree.add_note(note)
        memory = list(self.memory.get(note.task, ()))
        rng = Random(context.seed(self.settings.kind))
        letters = self.letters(rng, list(facts), memory)
        note.shown, note.remembered = len(letters), len(memory)
        said = to_ask(document(facts, letters), [(question, answer) for _, question, answer in memory])
        questioner = context.acting("questioner")
        prompt = own_prompt(questioner, _messages(said), "questions")
        if prompt is None:
            return []
        questions = await rollout(questioner, prompt, self.settings.questions)
        note.written = len(questions)
        found = await gather([self.answered(rollout, context, leaf, n, letters, note) for leaf in questions])
        return [*questions, *(leaf for leaves in found for leaf in leaves)]

    def letters(self, rng: Random, all_letters: list[str], memory: Sequence[Sequence[str]]) -> list[str]:
        """The facts that a questioner reads, in the documents' order: those of earlier questions and some others."""
        earlier = {letter for letters, *_ in memory for letter in letters}
        left = [letter for letter in all_letters if letter not in earlier]
        new = rng.sample(left, min(self.settings.facts, len(left)))
        return [letter for letter in all_letters if letter in earlier or letter in new]

    async def answered(
        self,
        rollout: Rollout,
        context: Context,
        leaf: Node,
        n: int | None,
        letters: Sequence[str],
        note: AboutDocuments,
    ) -> list[Node]:
        """The answers to a question and the votes that are trained; grades all of them, and the question."""
        read = read_question(leaf.completion) if leaf.finish != "length" else None
        if read is None:
            note.form += 1
            leaf.grade = Grade(FORMAT, False, parts={"form": 0.0})
            return []
        question, reference = read
        facts = context.task.columns[FACTS]
        true = truth(question, facts)
        parts = {"form": 1.0}
        guesses = await self.responses(rollout, context, "", question, 1)
        if any(answer_in(guess) == reference for guess in guesses):
            note.ungrounded += 1
            leaf.grade = Grade(UNGROUNDED, False, parts=parts | {"grounded": 0.0})
            return []
        answers = await self.responses(rollout, context, document(facts, facts), question, n)
        judged = await gather([self.judged(rollout, context, question, reference, one) for one in answers])
        rewards, teaching = list[float](), list[tuple[bool, list[Node]]]()
        for answer, votes in zip(answers, judged, strict=True):
            said = [vote_in(vote) for vote in votes]
            rule = answer_in(answer) == reference
            right = true is not None and value_of(answer_in(answer)) == true
            rewards.append(answer_reward(rule, said))
            answer.grade = Grade(rewards[-1], right, parts={"rule": float(rule), "accepted": rewards[-1]})
            self.count(note, said, rule=rule, right=right, same=same_value(answer_in(answer), reference))
            if teaches(rule, said, self.settings.least_agreement, self.settings.most_agreement):
                teaching.append((rule, votes))
        if not rewards:
            leaf.grade = Grade.ungraded("no answer to the question was sampled")
            return []
        accuracy = mean(rewards)
        note.terms.append(terms_of(question))
        note.accepted.append(accuracy)
        note.references.append(true is not None and value_of(reference) == true)
        if accuracy > 0:
            note.solved.append(["".join(letters), question, reference])
        leaf.grade = Grade(questioner_reward(accuracy), note.references[-1], parts=parts | {"grounded": 1.0})
        rng = Random(context.seed(self.settings.kind, leaf.address))
        chosen = rng.sample(teaching, min(self.settings.vote_groups, len(teaching)))
        note.trained += len(chosen)
        for _, votes in chosen:
            for vote, reward in zip(votes, vote_rewards([vote_in(vote) for vote in votes]), strict=True):
                vote.grade = Grade(reward, reward == 1, parts={"vote": reward})
        return [*answers, *(vote for _, votes in chosen for vote in votes)]

    async def responses(
        self, rollout: Rollout, context: Context, documents: str, question: str, n: int | None
    ) -> list[Node]:
        """Answers to a question from documents, or from none; none where no token is left."""
        messages = _messages(asked(documents, question))
        responder = context.acting("responder", Task(f"question/{question}", messages, provenance="policy"))
        prompt = own_prompt(responder, messages, f"answers {documents}?{question}")
        return [] if prompt is None else await rollout(responder, prompt, n)

    async def judged(
        self, rollout: Rollout, context: Context, question: str, reference: str, answer: Node
    ) -> list[Node]:
        """Votes on an answer; none for a text without one."""
        said = answer_in(answer)
        if not said:
            return []
        verifier = context.acting("verifier")
        messages = _messages(to_judge(question, reference, said))
        prompt = own_prompt(verifier, messages, f"votes {answer.address}")
        return [] if prompt is None else await rollout(verifier, prompt, self.settings.votes)

    def count(self, note: AboutDocuments, votes: list[bool | None], *, rule: bool, right: bool, same: bool) -> None:
        note.answers += 1
        note.exact += rule
        note.right += right
        note.unread += votes.count(None)
        said = majority(votes)
        note.rescued += said is True and not rule
        if said is not None:
            note.judged += 1
            note.judged_right += said == same
            note.agreement.append(agreement(votes))

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, AboutDocuments)]
        for note in notes:
            kept = self.memory.setdefault(note.task, deque(maxlen=self.settings.memory))
            known = {(question, answer) for _, question, answer in kept}
            for letters, question, answer in note.solved:
                if (question, answer) not in known:
                    kept.append([letters, question, answer])
                    known.add((question, answer))
        self.memory = {task: kept for task, kept in self.memory.items() if kept}

        def total(name: str) -> int:
            return sum(getattr(note, name) for note in notes)

        def every(name: str) -> list[float]:
            return [float(one) for note in notes for one in getattr(note, name)]

        metrics: dict[str, float] = {
            "questions/all": total("written"),
            "questions/form": total("form"),
            "questions/ungrounded": total("ungrounded"),
            "questions/answered": len(every("terms")),
            "memory/read": total("remembered"),
            "memory/questions": sum(map(len, self.memory.values())),
            "answers/rescued": total("rescued"),
            "votes/groups": total("trained"),
            "votes/unread": total("unread"),
        }
        if notes:
            metrics["questions/facts"] = total("shown") / len(notes)
        named = {"questions/terms": "terms", "answers/accepted": "accepted", "references/right": "references"}
        for name, attribute in {**named, "votes/agreement": "agreement"}.items():
            if values := every(attribute):
                metrics[name] = mean(values)
        if total("answers"):
            metrics |= {f"answers/{name}": total(name) / total("answers") for name in ("exact", "right")}
        if total("judged"):
            metrics["verifier/right"] = total("judged_right") / total("judged")
        self._metrics = metrics

    def state_dict(self) -> dict[str, Any]:
        return {"memory": {task: list(kept) for task, kept in self.memory.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("guidance.questioner-responder-verifier", given=state, needed=self.state_dict())
        self.memory = {
            task: deque([list(one) for one in kept], maxlen=self.settings.memory)
            for task, kept in state["memory"].items()
        }


def answer_in(leaf: Node) -> str:
    """The answer that a completion states; empty for a truncated one, or one without."""
    return leaf.completion.rpartition("#")[2].strip() if leaf.finish != "length" and "#" in leaf.completion else ""


def vote_in(leaf: Node) -> bool | None:
    """What a vote says; None where it cannot be read."""
    return VOTES.get(leaf.completion.strip()) if leaf.finish != "length" else None


def same_value(one: str, other: str) -> bool:
    """Whether two answers mean the same number; equal texts do in any case."""
    return one == other or (value_of(one) is not None and value_of(one) == value_of(other))


def _messages(text: str) -> tuple[Message, ...]:
    return ({"role": "user", "content": text},)
