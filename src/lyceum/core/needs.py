"""What components need of each other, and what they give each other: one vocabulary, and the checker that reads it.

A component declares both on its class; what its bases declare holds for it too::

    class GoodPrefixes(CurriculumSettings):
        requires = (Need("prefixes", " of kind 'prefix', which {who} needs for ...", "guidance with {kind: prefix}"),)

    class PrefixGuide(GuidanceSettings):
        gives = (Gives("prefixes"),)

so that neither names the other. ``component.lines_of`` writes a line for each need that the stage, or the test-time
search, does not meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
        "roles",  # models that may play several roles
        "stored-groups",  # of the replay: the stage's own, written where later stages and other runs find them
        # Of the tasks and the data.
        "rows",  # all of them can be held out
        "demonstrations",  # completions of a teacher, which cross-entropy trains
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
        # Of the objective.
        "value-head",  # it trains one
        "pairs-alone",  # it learns from nothing but pairs of a task's trajectories
        "imitation",  # it learns from tokens as they are, without advantages
        # Of the learner and the engine.
        "processes",  # several processes that train together
        "process-group",  # torch.distributed, set up in this process
        "one-model",  # a process can hold only one that serves, and so one model
    ]
)
"""What one component may give to another."""

GIVERS: Mapping[Gift, str] = {
    **dict.fromkeys(("model_logprob", "score", "top_logprobs", "entropy", "constraint"), "engine"),
    **dict.fromkeys(("process-group", "one-model"), "engine"),
    **{name: name for name in ("teacher", "average", "reference", "replay", "roles", "value")},
    "rows": "tasks",
    "demonstrations": "data",
    **dict.fromkeys(("end", "token-budgets", "prefix-lengths"), "curriculum"),
    **dict.fromkeys(("prefixes", "played-roles"), "guidance"),
    **dict.fromkeys(("company", "equal-rows", "samples", "trajectories", "unfinished"), "rollout"),
    **dict.fromkeys(("state-values", "constrained-tokens"), "rollout"),
    **dict.fromkeys(("verifier", "tasks-verifier", "frozen-scores"), "reward"),
    **dict.fromkeys(("judgements", "value-training", "value-online"), "value"),
    **dict.fromkeys(("value-targets", "step-tokens", "relative-entropy"), "credit"),
    **dict.fromkeys(("value-head", "pairs-alone", "imitation"), "objective"),
    "processes": "learner",
    "stored-groups": "replay",
}
"""The field of ``Composition`` that gives each."""

OPTIONAL = frozenset({"guidance", "value", "teacher", "average", "reference", "replay", "roles"})
"""Fields that a stage may leave empty: it then lacks what they would give. Where another field is empty, as in a search
that has no credit, nothing is known of it and nothing is refused."""


OF_STAGE = frozenset[Gift]({"teacher", "average", "reference", "verifier"})
"""What a stage makes, or says itself that it lacks, once for all that read it."""

OFFERS: frozenset[EngineOffer] = frozenset(get_args(EngineOffer))

WITHOUT_OFFER = ", which as set gives no {offer}, and {{who}} reads it"
WITH_OFFER = "an engine that gives it, such as 'embedded'"


def always(own: Any) -> bool:
    return True


@dataclass(frozen=True)
class Gives:
    """What a component gives.

    Attributes:
        when: whether it does with the settings that it has.
    """

    of: Gift
    when: Callable[[Any], bool] = always


@dataclass(frozen=True)
class Need:
    """What a component needs, and the words of the error line where the stage lacks it.

        KEY: got GIVEN WHY; allowed: ALLOWED

    where KEY and GIVEN are the giver's (``rollout.kind: got 'flat'``) unless ``key`` is one of its own.

    Attributes:
        why: text after what was given, or a function of the settings that gives it; ``{who}`` is the component that
            needs it, ``{given}`` what is in the giver's place.
        when: whether it needs it with the settings that it has.
        key: the key of its own that is to be changed instead, whose value is its kind.
    """

    of: Gift
    why: str | Callable[[Any], str] = ""
    allowed: str = ""
    when: Callable[[Any], bool] = always
    key: str = ""


@dataclass(frozen=True)
class Without(Need):
    """What a component does not go with: a line for each part of the stage that gives it."""


@cache
def declared(kind: type[Settings], name: Literal["requires", "gives"]) -> tuple[Any, ...]:
    """What a class and its bases declare, the bases' first."""
    return tuple(each for base in reversed(kind.__mro__) for each in vars(base).get(name, ()))


def needs_of(part: Settings) -> Iterator[Need]:
    """What it needs as it is set, and what it does not go with."""
    return (need for need in declared(type(part), "requires") if need.when(part))


def unmet(settings: Settings, part: Component, outer: Component, stage: Composition) -> list[str]:
    """A line for each need that the stage does not meet.

    Args:
        settings: those of a component, or some inside of it that are no component.
        part: the component.
        outer: the component of the stage that it is, or is part of.
    """
    lines: list[str] = []
    for need in needs_of(settings):
        words = need.why if isinstance(need.why, str) else need.why(settings)
        if need.of in OFFERS:
            words, need = WITHOUT_OFFER.format(offer=need.of), replace(need, allowed=WITH_OFFER)
        who = named(outer if need.of in OFFERS else part)
        lines += _lines(need, words.replace("{who}", who), part, stage)
    return lines


def _lines(need: Need, why: str, part: Component, stage: Composition) -> list[str]:
    if need.of == "company":
        return stage.without_company(why, allowed=need.allowed)
    place = GIVERS[need.of]
    held = stage.held(place)
    if (need.of in OF_STAGE and not isinstance(need, Without)) or (not held and place not in OPTIONAL):
        return []
    giving = [each for each in held if need.of == place or need.of in each.offers]
    if isinstance(need, Without):
        wrong: Sequence[Settings | None] = giving
    else:
        wrong = [] if giving else [None if place == "guidance" else next(iter(held), None)]
    lines: list[str] = []
    for each in wrong:
        kind = getattr(each, "kind", None)
        key, got = (need.key, repr(part.kind)) if need.key else _given(need.of, place, each)
        given = f"no {'value model' if place == 'value' else place}" if kind is None else f"{place}.kind '{kind}'"
        lines.append(f"{key}: got {got}{why.replace('{given}', given)}; allowed: {_allowed(need)}")
    return lines


def _allowed(need: Need) -> str:
    """With the kinds of the giver where the need names them."""
    if "{kinds}" not in need.allowed:
        return need.allowed
    from lyceum.core.component import kinds  # here: it imports this module, and all of the slot

    return need.allowed.replace("{kinds}", ", ".join(kinds(GIVERS[need.of])))


def _given(of: Gift, place: str, given: Any) -> tuple[str, str]:
    """The key of what is in the giver's place, and what it is."""
    if given is None:
        return place, "none"
    if of == "constrained-tokens":
        return "rollout.sampling.constraint", repr(given.sampling.constraint.kind)
    kind = getattr(given, "kind", None)
    if kind is None:
        return place, "one"
    return (place if of in OFFERS or place in OPTIONAL else f"{place}.kind"), repr(kind)


def named(part: Component) -> str:
    """A component in an error line."""
    return f"stage '{part.kind}'" if part.slot == "stages" else f"{part.slot}.kind '{part.kind}'"
