import pytest
from fake_task import roll
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat
from pydantic import ValidationError

from lyceum.core.settings import Composition
from lyceum.core.types import Continuation, Grade
from lyceum.papers.critique_rl.guidance_critique import Critique

SAYS = {"says_correct": "ok", "says_wrong": "no", "ask": "?", "refine": "{critique}!"}


class Debate(FakeContext):
    """The actor's answers are ``a0``, ``a1``, ...; critiques are said in the order of ``critiques``; what the actor
    makes of a critique is graded by ``after[critique]``."""

    def __init__(self, critiques, *, answer=WRONG, after=None, **how):
        super().__init__(**how)
        self.critiques, self.answer, self.after = critiques, answer, dict(after or {})
        self.asked_as = []

    async def extend(self, node, n, sampling=None, *, keep=False):
        self.asked_as.append((self.role, node.root.text, n, sampling.temperature))
        said, grade = [f"a{i}" for i in range(n)], self.answer
        if self.role == "critic":
            said, grade = self.critiques[:n], None
        elif node.root.text.endswith("!"):
            said, grade = ["again"] * n, self.after[node.root.text.splitlines()[-1][:-1]]
        drawn = [node.add_drawn(Continuation([7], [-1.0], [-1.0], [0], "stop"), text, role=self.role) for text in said]
        for leaf in drawn:
            leaf.stats["grade"] = grade
        self.spend(n)
        self.tree.sampled_tokens += n
        return drawn


def criticised(context, **settings):
    guide = Critique(**SAYS, **settings).build(Source(), seed=0)
    tree = roll(guide(flat(len(context.critiques))), context, ask("Q"))
    guide.observe([tree])
    return tree, guide.metrics()


def outcomes(tree):
    return [leaf.grade.outcome for leaf in tree.chosen]


def test_first_a_critique_earns_by_its_verdict_alone():
    # The answer is wrong: "no" is right, "ok" is not, and neither is what says both or nothing.
    context = Debate(["no", "ok", "ok, no", "hm"], progress=0.0)
    tree, metrics = criticised(context)
    assert outcomes(tree) == [1.0, -1.0, -1.0, -1.0]
    assert [leaf.grade.correct for leaf in tree.chosen] == [True, False, False, False]
    assert {leaf.role for leaf in tree.chosen} == {"critic"}, "the actor is not trained"
    assert [role for role, *_ in context.asked_as] == ["actor", "critic"], "and nothing is revised"
    assert metrics["critiques/silent"] == 2
    assert metrics["right/share"] == 0.25
    tree, _ = criticised(Debate(["no", "ok"], answer=RIGHT, progress=0.0))
    assert outcomes(tree) == [-1.0, 1.0]


def test_then_by_the_revised_answer_and_a_wrong_verdict_still_costs_all():
    # Answer wrong. "no 1" mends it: 1 + 0.2. "no 2" does not: 0.2. "ok" mends it with a wrong verdict: -1.
    after = {"no 1": RIGHT, "no 2": WRONG, "ok": RIGHT}
    context = Debate([*after], after=after, progress=0.5)
    tree, metrics = criticised(context)
    assert outcomes(tree) == [1.2, 0.2, -1.0]
    assert [leaf.grade.parts for leaf in tree.chosen] == [
        {"right": 1.0, "refined": 1.0, "improved": 1.0},
        {"right": 1.0, "refined": 0.0, "improved": 0.0},
        {"right": 0.0, "refined": 1.0, "improved": 1.0},
    ]
    assert (metrics["refined/all"], metrics["refined/rescued"], metrics["refined/lost"]) == (3, 2, 0)
    revised = [(prompt, temperature) for role, prompt, _, temperature in context.asked_as[2:] if role == "actor"]
    assert revised == [("Q\na0\nno 1!", 0.0), ("Q\na0\nno 2!", 0.0), ("Q\na0\nok!", 0.0)]
    # Improved: a correct answer that stays correct is worth 0, one that is spoilt -1.
    after = {"ok 1": RIGHT, "ok 2": WRONG}
    tree, metrics = criticised(Debate([*after], answer=RIGHT, after=after), helps="improved")
    assert outcomes(tree) == [0.2, -0.8]
    assert metrics["refined/lost"] == 1


def test_critiques_are_compared_with_those_of_the_same_answer_alone():
    tree, _ = criticised(Debate(["no", "ok"], progress=0.0), answers=2)
    assert [leaf.root.text for leaf in tree.chosen] == ["Q\na0\n?"] * 2 + ["Q\na1\n?"] * 2
    assert len({leaf.root.key for leaf in tree.chosen}) == 2


def test_what_cannot_be_graded_is_ungraded_and_an_ungraded_answer_is_not_criticised():
    tree, _ = criticised(Debate(["no"], after={"no": Grade.ungraded("broken")}))
    assert outcomes(tree) == [None]
    tree, metrics = criticised(Debate(["no"], answer=Grade.ungraded("broken")))
    assert (tree.chosen, metrics["critiques/all"]) == ([], 0)


def test_without_budget_nothing_is_criticised_or_revised():
    tree, _ = criticised(Debate(["no"], budget=1))
    assert tree.chosen == []
    tree, _ = criticised(Debate(["no"], budget=2))
    assert tree.chosen[0].grade.reason == "the revised answer was not graded, or no token was left for it"


def test_verdicts_that_contain_each_other_and_a_prompt_without_the_critique_are_refused():
    with pytest.raises(ValidationError, match="none contains the other"):
        Critique(says_correct="ok", says_wrong="not ok")
    with pytest.raises(ValidationError):
        Critique(refine="again")
    assert "in a stage 'online'" in Critique().conflicts(Composition())[0]
