"""What components need of each other, and what they give each other: one vocabulary, and the checker that reads it.

A component names both, and what it does not go with, on its class::

    class GoodPrefixes(CurriculumSettings):
        gives: ClassVar = ("prefix-lengths",)
        requires: ClassVar = ("prefixes",)

    class Prefix(GuidanceSettings):
        gives: ClassVar = ("prefixes",)

so that no component names another one. What a class's bases declare holds for it too. Where the settings decide,
``Need("value", when=lambda own: own.rank == "value")`` stands for a name, as ``Gives`` does. ``Component.conflicts``
says which needs the stage, or the test-time search, does not meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from lyceum.core.component import Component, Settings
    from lyceum.core.settings import Composition

EngineOffer = Literal["model_logprob", "score", "top_logprobs", "entropy", "constraint"]
"""What an engine may give beyond tokens and ``behaviour_logprob``: ``Continuation.model_logprob``, ``Engine.score``,
``Continuation.top``, ``Continuation.entropy`` and a temperature that follows it; and ``Sampling.constraint``, a
transform of the logits that the learner repeats."""

Gift = (
    EngineOffer
    | Literal[
        # Of the stage itself.
        "teacher",  # a frozen model to learn from
        "average",  # the slow average of the policy's weights
        "reference",  # the policy as the stage began, or an average of models; made wherever something reads it
        "replay",  # recorded groups, trained beside the sampled ones
        "stored-groups",  # of the replay: the stage's own, written where later stages and other runs find them
        "roles",  # models that may play several roles
        # Of the tasks and the data.
        "rows",  # all of them can be held out
        "demonstrations",  # completions of a teacher (``Origin.TEACHER``), which cross-entropy trains
        # Of the curriculum.
        "end",  # it says when it is through: ``build`` gives an ``EndingCurriculum``
        "token-budgets",  # its tasks have a token budget
        "prefix-lengths",  # it says with how much of an earlier completion a task's completions begin
        # Of the guidance.
        "prefixes",  # completions begin where the curriculum says
        "played-roles",  # the policy plays several roles in a task
        # Of the rollout.
        "company",  # a task's group has several rows, which differ
        "equal-rows",  # all trajectories of a task are the same
        "samples",  # a number of samples per task that can be set
        "trajectories",  # a fixed number of trajectories per task
        "unfinished",  # trajectories that go on in the next step
        "state-values",  # each state of a trajectory, the prompt included, has the value model's value (``Node.value``)
        "constrained-tokens",  # sampling under a constraint
        "environment",  # something answers the policy's turns
        # Of the reward.
        "verifier",  # it can be asked on the way, which no test-time search can
        "tasks-verifier",  # it is the tasks' own
        "frozen-scores",  # it scores under the stage's frozen models
        # Of the value model.
        "value",  # there is one
        "judgements",  # it gives rewards: ``build`` gives a ``JudgingValue``
        "value-training",  # it learns from finished trees: ``build`` gives a ``TrainableValue``
        "value-online",  # it learns from each step of an online stage: ``build`` gives an ``ObservingValue``
        # Of the credit.
        "value-targets",  # targets for a value head
        "step-tokens",  # which of a trajectory's tokens are each step
        "relative-entropy",  # each token's entropy, relative to the others'
        "episode-advantages",  # rows of one episode have one advantage, and are compared with others once
        # Of the objective.
        "episode-weights",  # rows of one episode count as one
        "value-head",  # it trains one
        "pairs-alone",  # it learns from nothing but pairs of a task's trajectories
        "imitation",  # it learns from tokens as they are, without advantages
        # Of the learner and the engine.
        "processes",  # several processes that train together
        "process-group",  # torch.distributed, set up in this process
        "one-model",  # a process can hold only one that serves, and so one model
        "routing",  # an engine can record which experts each token went to: ``build`` gives a ``RecordsRouting``
        "interrupt",  # an engine's new weights may come while samples are under way: ``build`` gives a ``GoesOn``
    ]
)
"""What one component may give to another."""

OFFERS: frozenset[EngineOffer] = frozenset(get_args(EngineOffer))

FROZEN = frozenset[Gift]({"teacher", "average", "reference"})
"""The stage's models that no gradient changes."""

GIVERS: Mapping[Gift, str] = {
    **dict.fromkeys(OFFERS, "engine"),
    "replay": "replay",
    "roles": "roles",
    "demonstrations": "data",
    **dict.fromkeys(("token-budgets", "prefix-lengths"), "curriculum"),
    **dict.fromkeys(("prefixes", "played-roles"), "guidance"),
    **dict.fromkeys(
        ("company", "samples", "trajectories", "state-values", "unfinished", "constrained-tokens", "environment"),
        "rollout",
    ),
    **dict.fromkeys(("value", "judgements", "value-training"), "value"),
    **dict.fromkeys(("step-tokens", "relative-entropy", "value-targets", "episode-advantages"), "credit"),
    **dict.fromkeys(("imitation", "episode-weights"), "objective"),
    "reference": "reference",
    "average": "average",
    "frozen-scores": "reward",
    "process-group": "engine",
    "routing": "engine",
}
"""Who gives what a component may need or refuse: a field of ``Composition``."""

LACKING: Mapping[Gift, str] = {
    **{
        offer: f"{{got}}, which as set gives no {offer}, and {{who}} reads it; allowed: an engine that gives it, such "
        "as 'embedded'"
        for offer in OFFERS
    },
    "replay": "{got}, but {who} imitates recorded groups; allowed: such as own",
    "roles": "{own}, which plays several roles; allowed: in a stage 'online'",
    "demonstrations": "{own}, which trains demonstrations, but {given} has none; allowed: another objective, such as "
    "'mpo' with its generation loss alone",
    "token-budgets": "{own} with {given}, whose tasks have no budget; allowed: curriculum {able}, or budget_tokens",
    "prefixes": "{got} of kind '{able}', which {who} needs for completions to begin where it says; allowed: guidance "
    "with {{kind: {able}}}",
    "played-roles": "{own} in a stage without roles; allowed: another kind, such as reinforce",
    "company": "{who} compares the samples of a task",
    "samples": "{got} with {who}, which sets the number of samples; allowed: one with samples, such as 'flat'",
    "trajectories": "{got} with {who}, which says how each trajectory begins; allowed: a rollout with a number of "
    "samples or trajectories",
    "environment": "{own} with {given}, which has no environment; allowed: a rollout with one, such as 'turns'",
    "state-values": "{got}, which does not have every state valued, as {who} reads it; allowed: {able} with others "
    "'value'",
    "value": "{got}, but {who} reads it; allowed: {kinds}",
    "judgements": "{own} in a stage with {given}; allowed: value.kind 'model' or 'implicit' beside it",
    "value-training": "{got}, which learns nothing; allowed: {able}",
    "step-tokens": "{got}, but {who} reads which tokens are a step; allowed: {able}",
    "relative-entropy": "{got}, but {who} reads each token's relative entropy; allowed: {able}",
    "imitation": "{got}, but {who} has no advantages; allowed: {able}",
    "routing": "{got}, which does not say which experts each token went to, as {own} with replay_routing reads it; "
    "allowed: {able}",
    **dict.fromkeys(
        ("episode-advantages", "episode-weights"),
        "{got}, which takes each row for a trajectory, but {who} may leave several for one; allowed: {able}",
    ),
}
"""The error line where nothing gives it: ``{got}`` is what is in the giver's place, ``{own}`` what needs it, each with
its key; ``{given}`` and ``{who}`` are the same without; ``{able}`` are the kinds that give it, ``{kinds}`` all of the
giver's. What is not here is only asked for, or the stage says it once for all that read it."""

UNWANTED: Mapping[Gift, str] = {
    "replay": "{got} with {who}, which trains each token once, in the step that draws it; allowed: none, or another "
    "credit",
    "reference": "{got}, an average of models, which {who} does not make; allowed: none, or learner.kind=local",
    "average": "{got}, which {who} does not keep; allowed: none, or learner.kind=local",
    "prefix-lengths": "{got} with {who}, but a completion's beginning lacks the environment's answers; allowed: "
    "another curriculum",
    "unfinished": "{got}, whose trajectories go on in the next step, but {who} needs whole ones; allowed: a rollout "
    "whose trajectories end in the step in which they began",
    "state-values": "{got}, which ends next steps without a verdict, but {who} learns from verdicts; allowed: another "
    "rollout",
    "constrained-tokens": "{got}, which {who} does not repeat; allowed: none, or learner.kind=local",
    "frozen-scores": "{got}, which scores under models of the stage, of which {who} has a share in each process; "
    "allowed: another reward, or learner.kind=local",
    "value-targets": "{got}, whose value head {who} does not train; allowed: another credit",
    "process-group": "{got}, which sets up torch.distributed for itself in this process, as {who} does; allowed: "
    "embedded, or learner.kind=local",
}
"""The same where something gives what a component does not go with."""

OPTIONAL = frozenset({"guidance", "value", "average", "reference", "replay", "roles"})
"""Fields that a stage may leave empty: it then lacks what they would give. Where another one is empty, as in a search,
which has no credit, nothing is known of it and nothing is refused."""


def always(own: Any) -> bool:
    return True


@dataclass(frozen=True)
class Gives:
    """What a component gives, where ``when`` says so of its settings."""

    of: Gift
    when: Callable[[Any], bool] = always


@dataclass(frozen=True)
class Need:
    """What a component needs, or does not go with.

    Attributes:
        when: whether it does as it is set.
        line: in place of the usual error line.
    """

    of: Gift
    when: Callable[[Any], bool] = always
    line: str = ""


@cache
def declared(kind: type[Settings], name: Literal["requires", "refuses", "gives"]) -> tuple[Any, ...]:
    """What a class and its bases declare, the bases' first."""
    found = [each for base in reversed(kind.__mro__) for each in vars(base).get(name, ())]
    usual: Any = Gives if name == "gives" else Need
    return tuple(usual(each) if isinstance(each, str) else each for each in found)


def able(kinds: Mapping[str, type[Settings]], of: Gift) -> list[str]:
    """The kinds that may give it."""
    return [kind for kind, each in kinds.items() if any(gives.of == of for gives in declared(each, "gives"))]


def unmet(settings: Settings, part: Component, outer: Component, stage: Composition) -> list[str]:
    """A line for each need that the stage does not meet, and for each part of it that does not go with this one.

    Args:
        settings: those of a component, or some inside of it that are no component.
        part: the component.
        outer: the component of the stage that it is, or is part of.
    """
    lines: list[str] = []
    for need in (each for each in declared(type(settings), "refuses") if each.when(settings)):
        lines += [_line(need, UNWANTED[need.of], each, part, outer) for each in _givers(need.of, stage)]
    for need in (each for each in declared(type(settings), "requires") if each.of in LACKING and each.when(settings)):
        held = stage.held(place := GIVERS[need.of])
        if need.of == "company":
            why = (need.line or LACKING[need.of]).format(who=named(part), part=part)
            lines += stage.without_company(why, other=", or credit.kind 'reinforce'" if part.slot == "credit" else "")
        elif not _givers(need.of, stage) and (held or place in OPTIONAL):
            giver = None if place == "guidance" or not held else held[0]
            lines.append(_line(need, LACKING[need.of], giver, part, outer))
    return lines


def _givers(of: Gift, stage: Composition) -> list[Settings]:
    return [each for each in stage.held(GIVERS[of]) if of == GIVERS[of] or of in each.offers]


def _line(need: Need, usual: str, giver: Any, part: Component, outer: Component) -> str:
    line, of, place = need.line or usual, need.of, GIVERS[need.of]
    kind = getattr(giver, "kind", None)
    got = "none" if giver is None else "one" if kind is None else repr(kind)
    if giver is not None and of == "constrained-tokens":
        got = f"rollout.sampling.constraint: got {giver.sampling.constraint.kind!r}"
    else:
        got = f"{place if kind is None or place == 'replay' or of in OFFERS else f'{place}.kind'}: got {got}"
    kinds: Mapping[str, type[Settings]] = {}
    if "{kinds}" in line or "{able}" in line:
        from lyceum.core import component  # here: it imports this module, and all of the slot

        kinds = component.kinds(place)
    return line.format(
        got=got,
        own=f"{part.slot}.kind: got {part.kind!r}",
        given=f"{place}.kind '{kind}'" if kind else f"no {'value model' if place == 'value' else place}",
        who=named(outer if of in OFFERS else part),
        kinds=", ".join(kinds),
        able=", ".join(able(kinds, of)),
        part=part,
    )


def named(part: Component) -> str:
    """A component in an error line."""
    if part.slot in ("stages", "guidance"):
        return f"{part.slot.removesuffix('s')} '{part.kind}'"
    return f"{part.slot}.kind '{part.kind}'"
