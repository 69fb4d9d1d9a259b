"""What components need of each other and give each other: one vocabulary, one checker, no component names another."""

import ast
from pathlib import Path
from typing import ClassVar, Literal, get_args

import lyceum
from lyceum.core import component
from lyceum.core.component import kinds
from lyceum.core.needs import GIVERS, LACKING, OPTIONAL, UNWANTED, Gift, Gives, Need, able, declared
from lyceum.core.settings import Composition, CreditSettings
from lyceum.credit.gae import GAE
from lyceum.credit.group import GroupRelative
from lyceum.objective.sft import SFT
from lyceum.papers.hapo.credit_hapo import TokenLevelGroup
from lyceum.papers.hapo.objective_hapo import HAPO
from lyceum.papers.kto.objective_kto import KTO
from lyceum.papers.pcurl.curriculum_difficulty_weight import DifficultyWeight
from lyceum.papers.qwenlong_l1.curriculum_phases import Phases
from lyceum.papers.rest_rl.curriculum_good_prefixes import GoodPrefixes
from lyceum.papers.rest_rl.guidance_prefix import Prefix
from lyceum.rollout.flat import Flat
from lyceum.rollout.turns import Turns

HERE = Path(lyceum.__file__).parent
GIFTS = {name for part in get_args(Gift) for name in (get_args(part) or (part,))}


def compared_kinds(tree):
    """Lines that compare the ``kind`` of something else than itself with a text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            kind = any(
                isinstance(side, ast.Attribute) and side.attr == "kind" and ast.unparse(side.value) != "self"
                for side in sides
            )
            named = [each for side in sides for each in getattr(side, "elts", [side])]
            if kind and any(isinstance(each, ast.Constant) for each in named):
                yield node.lineno


def test_no_component_names_the_kind_of_another():
    found = [
        f"{path.relative_to(HERE)}:{line}"
        for path in sorted(HERE.rglob("*.py"))
        if ".kind" in (text := path.read_text(encoding="utf-8"))
        for line in compared_kinds(ast.parse(text))
    ]
    assert found == []
    assert list(compared_kinds(ast.parse("a\nstage.rollout.kind == 'flat'\nself.kind == 'flat'"))) == [2]
    assert list(compared_kinds(ast.parse("part.kind in ('a', 'b')"))) == [1]


def test_every_need_has_a_giver_and_an_error_line():
    slots = ("credit", "objective", "rollout", "guidance", "reward", "engine", "learner", "data", "buffer", "stages")
    every = {cls for slot in slots for cls in kinds(slot).values()}
    required = {need.of for cls in every for need in declared(cls, "requires")}
    refused = {need.of for cls in every for need in declared(cls, "refuses")}
    assert required - LACKING.keys() == {"teacher", "average", "reference", "verifier"}  # the stage's own to say
    assert refused <= UNWANTED.keys()
    assert LACKING.keys() | UNWANTED.keys() == GIVERS.keys() <= GIFTS
    fields = Composition.__dataclass_fields__.keys()
    assert set(GIVERS.values()) | OPTIONAL <= fields
    for of in ("step-tokens", "relative-entropy"):
        assert able(kinds("credit"), of), of


def test_what_is_lacking_is_said_by_key_and_with_who_gives_it():
    (line,) = HAPO().conflicts(Composition(credit=GroupRelative()))
    assert line == (
        "credit.kind: got 'group', but objective.kind 'hapo' reads each token's relative entropy; allowed: hapo"
    )
    assert HAPO().conflicts(Composition(credit=TokenLevelGroup())) == []
    assert HAPO().conflicts(Composition()) == []  # nothing is known of the credit
    prefixes = GoodPrefixes()
    (line,) = prefixes.conflicts(Composition(curriculum=prefixes))
    assert line == (
        "guidance: got none of kind 'prefix', which curriculum.kind 'good-prefixes' needs for completions to begin "
        "where it says; allowed: guidance with {kind: prefix}"
    )
    assert prefixes.conflicts(Composition(curriculum=prefixes, guidance=(Prefix(),))) == []


def test_what_does_not_go_together_is_said_of_the_giver():
    (line,) = KTO().conflicts(Composition(credit=GAE()))
    assert (
        line == "credit.kind: got 'gae', whose value head objective.kind 'kto' does not train; allowed: another credit"
    )
    turns = Turns.model_validate({"environment": "calculator"})
    (line,) = turns.conflicts(Composition(curriculum=DifficultyWeight(draws=GoodPrefixes())))  # also inside of another
    assert line.startswith("curriculum.kind: got 'difficulty-weight' with rollout.kind 'turns', but a completion's ")


def test_what_a_class_declares_is_added_to_its_bases_and_may_depend_on_the_settings(monkeypatch):
    monkeypatch.setattr(component, "_registry", {slot: dict(of) for slot, of in component._registry.items()})

    class Own(CreditSettings):
        kind: Literal["own"] = "own"
        alone: bool = False

        requires: ClassVar = (Need("company", when=lambda own: not own.alone),)
        gives: ClassVar = (Gives("step-tokens", when=lambda own: own.alone),)

        def build(self):
            raise NotImplementedError

    class Further(Own):
        kind: Literal["further"] = "further"  # pyright: ignore
        requires: ClassVar = ("played-roles",)

    one = Composition(rollout=Flat(samples=1))
    assert Own(alone=True).conflicts(one) == []
    assert Own(alone=True).offers == {"step-tokens"}
    assert Own().offers == frozenset()
    assert [line.partition(":")[0] for line in Further().conflicts(one)] == ["rollout.samples", "credit.kind"]
    assert Further().needed == {"company", "played-roles"}


def test_a_curriculum_gives_what_it_holds_gives():
    phases = Phases(lengths=(5, 9), every_steps=1)
    assert "end" in phases.offers
    assert "end" in DifficultyWeight(draws=phases).offers
    assert "imitation" in SFT().offers
