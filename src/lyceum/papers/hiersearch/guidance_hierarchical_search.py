"""A planner asks agents that were trained before it, and gets the evidence that they found, refined.

Source: HierSearch, arXiv:2508.08088; plageon/HierSearch: agents for a local and a web store are trained first; their
searches are refined for the planner, whose training follows and leaves them as they are.
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
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Origin, Rollout, Sampling, Task, TaskSource
from lyceum.guidance.base import TaskGuide, notes_of, own_prompt
from lyceum.papers.hiersearch._refiner import Found, refined
from lyceum.papers.hiersearch._stores import ASK, BETWEEN, END, SIGNS, asked, passage, right, searched, written
from lyceum.papers.hiersearch.environment_fact_store import AGENT
from lyceum.papers.hiersearch.tasks_store_questions import question
from lyceum.utils.aio import gather


class HierarchicalSearch(GuidanceSettings):
    """The planner's turn ends with a question to an agent (``37+8+2a?``, ``47-5b?``). The stage's rollout is the
    agent's, with its own tools; the planner reads what is kept of the passages that the agent got. It alone is trained:
    with a model of their own (``roles: {models: [planner, agents], play: {planner: planner, local: agents, web:
    agents}}``) the agents stay what the stages before made them."""

    requires: ClassVar = (
        Need(
            "environment",
            line="{own} with {given}, in which agents have nothing to search; allowed: a rollout with an environment, "
            "such as 'turns'",
        ),
    )
    plays: ClassVar[tuple[str, ...]] = ("planner", "local", "web")

    kind: Literal["hierarchical-search"] = "hierarchical-search"
    samples: int = Field(default=8, ge=1, le=256)
    """The planner's trajectories per task, unless the curriculum sets the number."""
    keep: float | None = Field(default=0.3, ge=0, le=1)
    """Share of passages that the refiner keeps, of each search by what the agent wrote before it and of the others by
    its conclusion; null: the planner reads the agent's whole text, its conclusion included."""
    most_questions: int = Field(default=8, ge=1, le=64)
    """Maximum questions per trajectory; one that asks more is truncated."""
    sampling: Sampling = Sampling()
    """How the planner's tokens are sampled; ``max_completion_tokens`` is for all its turns together."""

    def build(self, source: TaskSource, *, seed: int) -> HierarchicalSearchGuide:
        return HierarchicalSearchGuide(self)


@dataclass
class AskedAgents(Note):
    """What agents were asked in a task, and what became of it.

    Attributes:
        times: agent -> questions; ``none`` those that no agent could read.
        misasked: questions with an operation that the agent's store does not know.
        right: of the other questions those whose agent came to the right conclusion.
        found, kept: passages that agents got, and that the planner read.
        needed, needed_kept: searches whose passages had the operation that was looked for, and whether it was kept.
    """

    kind: ClassVar[str] = "hierarchical-search"
    times: Counter[str] = field(default_factory=Counter)
    misasked: int = 0
    right: int = 0
    found: int = 0
    kept: int = 0
    needed: int = 0
    needed_kept: int = 0


class HierarchicalSearchGuide(TaskGuide):
    """Has no state."""

    def __init__(self, settings: HierarchicalSearch) -> None:
        self.settings = settings

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        note = AskedAgents()
        context.tree.add_note(note)
        planner, sampling = context.acting("planner"), self.settings.sampling
        most = min(sampling.max_completion_tokens, planner.budget_left, planner.tokens_left(start))
        if most < 1:
            return []
        first = sampling.model_copy(update={"max_completion_tokens": most, "stop": (*sampling.stop, ASK)})
        turns = await planner.extend(start, n or self.settings.samples, first, keep=True)
        return await gather([self.to_end(rollout, context, turn, first, note) for turn in turns])

    async def to_end(
        self, rollout: Rollout, context: Context, turn: Node, sampling: Sampling, note: AskedAgents
    ) -> Node:
        """The rest of a trajectory: answers to its questions until it asks none."""
        planner = context.acting("planner")
        for _ in range(self.settings.most_questions):
            if turn.finish != "stop" or not turn.text.endswith(ASK):
                return turn
            text = await self.evidence(rollout, context, turn.text, note)
            tokens = planner.encode_after(turn.path_tokens(), text)
            left = min(sampling.max_completion_tokens - turn.policy_tokens, planner.budget_left)
            left = min(left, planner.tokens_left(turn) - len(tokens))
            if left < 1:
                break
            answer = turn.add(tokens, Origin.TOOL, text)
            then = sampling.model_copy(update={"max_completion_tokens": left})
            [turn] = await planner.extend(answer, 1, then, keep=True)
        if turn.finish == "stop" and turn.text.endswith(ASK):
            turn.finish = "length"
        return turn

    async def evidence(self, rollout: Rollout, context: Context, said: str, note: AskedAgents) -> str:
        """What the planner reads after a question."""
        read = asked(said)
        if read is None:
            note.times["none"] += 1
            return END
        agent, start, operations = read
        messages = question(agent, start, operations)
        acting = context.acting(agent, Task(f"asked/{messages[0]['content']}", messages, columns={AGENT: agent}))
        prompt = own_prompt(acting, messages, f"asked {messages[0]['content']}")
        if prompt is None:
            return END
        [leaf] = await rollout(acting, prompt, 1)
        note.times[agent] += 1
        conclusion = leaf.completion.rpartition("#")[2].strip() if "#" in leaf.completion else ""
        if any(operand * SIGNS[agent] < 0 for operand in operations):
            note.misasked += 1
        else:
            note.right += conclusion == right(start, operations)
        searches = searches_of(leaf)
        if self.settings.keep is None:
            return "".join(node.text for node in leaf.path()[1:]) + END
        kept = refined(searches, conclusion, self.settings.keep)
        note.found += sum(len(search.passages) for search in searches)
        note.kept += len(kept)
        for search in searches:
            looked_for = searched(search.hypothesis)
            meant = [one for one in search.passages if looked_for and one == passage(*looked_for)]
            note.needed += len(meant)
            note.needed_kept += sum(one in kept for one in meant)
        return written(kept)

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, AskedAgents)]
        times = sum((Counter(note.times) for note in notes), Counter[str]())
        names = ("misasked", "right", "found", "kept", "needed", "needed_kept")
        total = {name: sum(getattr(note, name) for note in notes) for name in names}
        well = times["local"] + times["web"] - total["misasked"]
        metrics: dict[str, float] = {f"questions/{agent}": times[agent] for agent in (*SIGNS, "none")}
        metrics |= {"questions/misasked": total["misasked"]}
        metrics |= {f"evidence/{name}": total[name] for name in ("found", "kept")}
        if well:
            metrics["agents/right"] = total["right"] / well
        if total["needed"]:
            metrics["evidence/needed_kept"] = total["needed_kept"] / total["needed"]
        self._metrics = metrics


def searches_of(leaf: Node) -> list[Found]:
    """An agent's searches: what it wrote before each answer of its tool, and the passages of the answer."""
    searches, said = list[Found](), ""
    for node in leaf.path()[1:]:
        if node.origin is Origin.TOOL:
            searches.append(Found(said, tuple(one for one in node.text.removesuffix(END).split(BETWEEN) if one)))
            said = ""
        else:
            said += node.text
    return searches
