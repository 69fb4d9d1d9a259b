"""A Python interpreter: the programs that the policy writes are run in a sandbox, and what they print is answered."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lyceum.core.settings import Composition, EnvironmentSettings
from lyceum.core.tree import Node
from lyceum.core.types import Environment, GradingContext, Observation
from lyceum.environment._notation import AnswerSoFar, Notation, WithinTurn
from lyceum.reward.pool import WorkerError, shared_pool
from lyceum.sandbox.limits import ProgramLimits
from lyceum.sandbox.run import START_SECONDS, Printed, SandboxError, usable

MOST_CHARACTERS = 100_000
"""Maximum length of a program."""
NOTHING = "(nothing printed)"


class Python(EnvironmentSettings):
    """Runs each program that the policy writes in its answer, and writes what it printed below it.

    Every program starts anew: it does not see the names of those before it. A turn without a program ends the
    trajectory. What confines programs, and why they can do no harm: ``docs/sandbox.md``.

    Source: the notation of ToRL (arXiv:2503.23383); ReTool's (arXiv:2504.11536) is ``{begin: "<code>\\n```python\\n",
    end: "```\\n</code>", before: "<interpreter>\\n", after: "</interpreter>"}``.
    """

    kind: Literal["python"] = "python"
    step_timeout_seconds: float | None = Field(default=None, gt=0)
    """Time limit of the answer to a turn, in seconds; null, since programs have their own limit and may queue."""
    notation: Notation = Notation(begin="```python\n", end="```\n```output", before="\n", after="```\n")
    """How programs and what they print stand within the policy's text. ``end`` ends a turn wherever the policy writes
    it. A mark that also closes other blocks, such as ``` alone, would end turns that have no program."""
    max_characters: int = Field(default=1000, ge=1, le=20_000)
    """Maximum characters of what a program printed; the rest is cut, and the answer says so."""
    limits: ProgramLimits = ProgramLimits(seconds=4.0, cpu_seconds=2, output_kb=64)
    """What a program may use; one that exceeds a limit is ended, and the answer says which."""
    sandbox: Literal["auto", "bubblewrap", "unshare", "landlock"] = "auto"
    """What confines programs; ``auto``: the first of them that works here."""
    processes: int = Field(default=2, ge=1, le=64)
    """Programs that are run at the same time."""
    failed_reward: float = 0.0
    """Reward of each program that ends with an error or over a limit, read by the reward ``environment``."""

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.notation.end,)

    def check(self, stage: Composition) -> list[str]:
        try:
            usable(self.sandbox)
        except SandboxError as error:
            return [f"environment.sandbox: {error}; allowed: a machine on which one works (apt-get install bubblewrap)"]
        return []

    def build(self) -> Environment[AnswerSoFar]:
        return Interpreter(self)


class Interpreter(WithinTurn):
    def __init__(self, settings: Python) -> None:
        self.settings = settings
        limits = settings.limits
        self.pool = shared_pool(
            "lyceum.sandbox.worker:interpret",
            {
                "limits": limits.model_dump(),
                "backend": usable(settings.sandbox),
                "characters": settings.max_characters + 1,  # one more tells that it was cut
            },
            workers=settings.processes,
            timeout_seconds=limits.seconds + 2 * START_SECONDS,
        )

    async def step(
        self, state: AnswerSoFar, turn: Node, said: str, context: GradingContext
    ) -> Observation[AnswerSoFar]:
        program = self.settings.notation.query(state.text, said)
        if program is None:
            return Observation(state, end=True)
        printed = await self.run(program)
        failed = printed.error is not None or printed.limit is not None
        shown = self.shown(printed)
        answer = f"{self.settings.notation.before}{shown}{self.settings.notation.after}"
        after = state.then(said, answer)
        return Observation(
            after,
            tokens=tuple(context.encode_after(turn.path_tokens(), answer)),
            reward=self.settings.failed_reward * failed,
            key=f"{after.calls}:{shown}",
            calls=1,
            failed=int(failed),
        )

    async def run(self, program: str) -> Printed:
        if len(program) > MOST_CHARACTERS:
            return Printed("", f"the program has more than {MOST_CHARACTERS} characters", None)
        # Characters that are none (lone surrogates) cannot be sent, nor be in a program.
        sent = program.encode("utf-8", "replace").decode()
        try:
            return Printed(**await self.pool.run(sent))
        except WorkerError as error:
            return Printed("", f"the program could not be run: {error}", None)

    def shown(self, printed: Printed) -> str:
        """What the policy reads: what was printed, and what ended the program; ends with a line's end."""
        most = self.settings.max_characters
        text = printed.text if len(printed.text) <= most else f"{printed.text[:most]}..."
        ended = printed.error if printed.limit is None else f"over its limit: {printed.limit}"
        lines = [text.rstrip("\n"), f"error: {ended}" if ended is not None else ""]
        return "\n".join(filter(None, lines)) + "\n" if any(lines) else f"{NOTHING}\n"
