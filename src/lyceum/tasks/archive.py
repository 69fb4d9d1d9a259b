"""An archive to search: a question that passages answer together, of which a retriever (BM25) shows one at a time.

Each task has passages of its own, so that nothing can be learnt by heart. Environment ``archive`` answers commands::

    Who is the boss of the cousin of Ann?
    > search Ann
    The friend of Ann is Gus.
    > search cousin Ann
    The cousin of Ann is Bob.
    > search boss Bob
    The boss of Bob is Cleo.
    > answer Cleo

A search shows the passage that is most like its words; each is indexed under the name that it is about. The level is
the number of relations in the question. Worked episodes are those of somebody who knows what to do and mostly searches
for the name alone: a model that imitates them has all that it needs, and a habit that costs it most of the tasks.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Exchange, Grade, Grader, Split, Task
from lyceum.reward.base import each, verdict
from lyceum.tasks.base import GeneratedSource, draw, levels_within
from lyceum.utils.ranking import RankedTexts

PEOPLE = (
    "Ann", "Bob", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana", "Ivo", "Jill", "Kim", "Leo", "Mia", "Ned", "Olga",
    "Pia",
)  # fmt: skip
RELATIONS = ("boss", "cousin", "doctor", "friend", "neighbour", "teacher")
NOTHING = "Nothing."
OTHERS = 2
"""People in the passages beside those that lead to the answer."""
SEARCH, ANSWER = "search", "answer"


class Archive(TasksSettings):
    """Who is the boss of the cousin of Ann? Passages tell, one relation each; the level is the number of relations."""

    kind: Literal["archive"] = "archive"
    levels: tuple[int, ...] = (2, 3, 4)
    """Numbers of relations, 1 to 6; tasks cycle through them, so that every level has the same share."""
    vague: float = Field(0.7, ge=0, le=1)
    """Share of the commands of worked episodes that search for the last name alone, whatever there is to do."""
    turns: int = Field(8, ge=1)
    """Maximum commands of a worked episode, which may end there without an answer."""
    size: int = Field(100_000, ge=1)
    """Tasks in each split."""

    _levels_are_usable = levels_within(1, 6, "numbers of relations")

    def build(self, split: Split, seed: int) -> ArchiveSource:
        return ArchiveSource(self, split, seed)


class ArchiveSource(GeneratedSource[Archive]):
    """A question, with the passages of its archive, is always in the same split."""

    def __getitem__(self, index: int) -> Task:
        id, level = self.key(index), self.settings.levels[index % len(self.settings.levels)]
        return draw(id, self.split, lambda rng: make_task(id, rng, level), problem=_problem)

    def grader(self) -> Grader:
        return each(grade)

    def episode(self, task: Task) -> list[Exchange]:
        """Commands and what they are answered, to the end."""
        rng = random.Random(f"{task.id}/episode")
        return episode(papers_of(task), rng, self.settings.vague, self.settings.turns)


class Entry(NamedTuple):
    """The ``relation`` of ``of`` is ``who``."""

    relation: str
    of: str
    who: str

    def __str__(self) -> str:
        return f"The {self.relation} of {self.of} is {self.who}."


@dataclass(frozen=True)
class Papers:
    """What does not change.

    Attributes:
        entries: a passage each, in the archive's order; nobody has two people in one relation.
        name, relations: whom the question begins with, and what leads from there to the answer, in that order.
    """

    entries: tuple[Entry, ...]
    name: str
    relations: tuple[str, ...]


@dataclass(frozen=True)
class Findings:
    """What changes: numbers of the passages found, in the archive's order, and the answer, empty until there is one."""

    found: tuple[int, ...] = ()
    answer: str = ""


def make_task(id: str, rng: random.Random, level: int) -> Task:
    papers, answer = drawn_papers(rng, level)
    asked = "".join(f"the {relation} of " for relation in reversed(papers.relations))
    columns: dict[str, Any] = {
        "level": level,
        "entries": [list(entry) for entry in papers.entries],
        "name": papers.name,
        "relations": list(papers.relations),
    }
    message = {"role": "user", "content": f"Who is {asked}{papers.name}?"}
    return Task(id, (message,), answer, columns, provenance="archive")


def papers_of(task: Task) -> Papers:
    columns = task.columns
    entries = tuple(Entry(*entry) for entry in columns["entries"])
    return Papers(entries, columns["name"], tuple(columns["relations"]))


def drawn_papers(rng: random.Random, level: int) -> tuple[Papers, str]:
    """8 + 3 * level passages and the answer: those that lead to it, and others about the same people and a few more."""
    relations = rng.sample(RELATIONS, level)
    people = rng.sample(PEOPLE, level + 1 + OTHERS)
    way = people[: level + 1]
    who = dict(zip(zip(relations, way[:-1], strict=True), way[1:], strict=True))
    while len(who) < 8 + 3 * level:
        of, name = rng.sample(people, 2)
        who.setdefault((rng.choice(RELATIONS), of), name)
    entries = [Entry(relation, of, name) for (relation, of), name in who.items()]
    rng.shuffle(entries)
    return Papers(tuple(entries), way[0], tuple(relations)), way[-1]


def _problem(task: Task) -> str:
    papers = papers_of(task)
    return " ".join([papers.name, *papers.relations, *sorted(map(str, papers.entries))])


@lru_cache(maxsize=256)
def _index(entries: tuple[Entry, ...]) -> RankedTexts:
    return RankedTexts([f"{entry.of} {entry}" for entry in entries])


def found_by(papers: Papers, command: str) -> int | None:
    """Number of the passage that a command shows; None where it shows none."""
    verb, _, words = command.strip().partition(" ")
    places = _index(papers.entries).places(words, 1) if verb == SEARCH else []
    return places[0] if places else None


def after(papers: Papers, now: Findings, command: str) -> Findings:
    """What a command leads to: the same findings where it shows nothing new, or is none."""
    return with_found(now, command, found_by(papers, command))


def with_found(now: Findings, command: str, place: int | None) -> Findings:
    """The findings and what a command adds that shows this passage."""
    verb, _, words = command.strip().partition(" ")
    if verb == ANSWER:
        return replace(now, answer=words)
    return now if place is None else replace(now, found=tuple(sorted({*now.found, place})))


def played(papers: Papers, commands: Sequence[str]) -> Findings:
    """Where these commands lead; those after an answer change nothing."""
    now = Findings()
    for command in commands:
        if not now.answer:
            now = after(papers, now, command)
    return now


def text_of(papers: Papers, place: int | None) -> str:
    """What a command is answered that shows this passage."""
    return NOTHING if place is None else str(papers.entries[place])


def state_of(papers: Papers, now: Findings) -> str:
    """The passages found, whatever the order in which they were."""
    return "\n".join(["Found:", *(str(papers.entries[place]) for place in now.found)])


def choices(papers: Papers, now: Findings) -> list[str]:
    """The commands made of names and relations that were read: a search for a name alone, one for it with a relation of
    the question, and an answer."""
    read = [papers.name, *(name for place in now.found for name in papers.entries[place][1:])]
    names = list(dict.fromkeys(read))
    searches = [f"{SEARCH} {name}" for name in names]
    searches += [f"{SEARCH} {relation} {name}" for name in names for relation in papers.relations]
    return searches + [f"{ANSWER} {name}" for name in names[1:]]


def episode(papers: Papers, rng: random.Random, vague: float, turns: int) -> list[Exchange]:
    """What somebody does who goes from name to name by what they asked for, and has a habit."""
    who = {(relation, of): name for relation, of, name in papers.entries}
    name, left, exchanges = papers.name, list(papers.relations), list[Exchange]()
    while len(exchanges) < turns:
        if rng.random() < vague:
            command, then = f"{SEARCH} {name}", name
        elif left:
            relation = left.pop(0)
            command, then = f"{SEARCH} {relation} {name}", who[relation, name]
        else:
            return [*exchanges, Exchange(f"{ANSWER} {name}", "")]
        exchanges.append(Exchange(command, text_of(papers, found_by(papers, command))))
        name = then
    return exchanges


def grade(task: Task, leaf: Node) -> Grade:
    """Whether the answer is right, by the commands alone."""
    return verdict(played(papers_of(task), [turn.text for turn in leaf.written]).answer == task.answer)
