import pytest
from leaves import Source, leaf, task
from pydantic import ValidationError

from lyceum.core.settings import Composition
from lyceum.core.types import Grade
from lyceum.papers.barfi.credit_by_part import ByPart
from lyceum.papers.drm.reward_drm import Drm, DrmGrader
from lyceum.recipe.schema import load_recipe
from lyceum.reward.base import standardised
from lyceum.utils.aio import run_async


class Fixed:
    """A scorer that gives each completion the number that its reasoning is, and abstains on others."""

    def __init__(self, times=1.0, fails=False):
        self.times, self.fails, self.calls = times, fails, 0

    async def __call__(self, task, reasonings, context):
        self.calls += 1
        if self.fails:
            raise OSError("no judge")
        return [
            Grade(self.times * float(of.reasoning)) if of.reasoning.isdigit() else Grade.ungraded("no number")
            for of in reasonings
        ]

    def metrics(self):
        return {"calls": self.calls}

    def state_dict(self):
        return {"calls": self.calls}

    def load_state_dict(self, state):
        self.calls = state["calls"]


SETTINGS = {"confidence": {"scorer": "policy", "weight": 2}, "relevance": {"scorer": "lexical", "weight": 0.5}}


def graded(scorers, *texts, **settings):
    settings = Drm.model_validate({**SETTINGS, "coherence": None, **settings})
    grader = DrmGrader(settings, scorers)
    return run_async(grader(task(), [leaf(text) for text in texts], None)), grader


def test_the_score_is_the_weighted_sum_and_each_dimension_is_named():
    # 2 * 3 + 0.5 * 30 = 21
    [grade], _ = graded({"confidence": Fixed(), "relevance": Fixed(10)}, "3#a")
    assert (grade.outcome, grade.correct) == (21.0, None)
    assert grade.parts == {"confidence": 3.0, "relevance": 30.0}


def test_standardised_scores_count_alike_whatever_their_unit():
    # 1 and 3 are -1 and 1 around their mean, and so are 10 and 30: 2.5 and -2.5.
    grades, _ = graded({"confidence": Fixed(), "relevance": Fixed(10)}, "3#a", "1#a", normalise="group")
    assert [grade.outcome for grade in grades] == [2.5, -2.5]
    assert grades[0].parts["relevance/raw"] == 30.0
    assert [grade.outcome for grade in standardised([Grade(0.1), Grade(0.1), Grade.ungraded("x")])] == [0, 0, None]


def test_a_dimension_that_abstains_or_fails_leaves_no_score_unless_it_is_only_logged():
    [abstains], grader = graded({"confidence": Fixed(), "relevance": Fixed()}, "x#a")
    assert abstains.reason == "confidence: no number; relevance: no number"
    grader.observe([])
    assert grader.metrics() == {"abstained/share": 1.0, "confidence/calls": 1, "relevance/calls": 1}
    [fails], _ = graded({"confidence": Fixed(), "relevance": Fixed(fails=True)}, "3#a")
    assert fails.reason == "relevance: OSError: no judge"
    logged = {"scorer": "lexical", "weight": 0}
    [stands], _ = graded({"confidence": Fixed(), "relevance": Fixed(fails=True)}, "3#a", relevance=logged)
    assert (stands.outcome, stands.parts) == (6.0, {"confidence": 3.0})


def test_a_completion_without_an_answer_abstains_or_has_a_score_of_its_own():
    scorers = {"confidence": Fixed(), "relevance": Fixed()}
    assert graded(scorers, "3")[0][0].outcome is None
    assert [grade.outcome for grade in graded(scorers, "3", "#a", "3#", unanswered=-1)[0]] == [-1, -1, -1]


def test_its_scorers_state_is_in_a_checkpoint():
    _, first = graded({"confidence": Fixed(), "relevance": Fixed()}, "3#a")
    second = DrmGrader(first.settings, {"confidence": Fixed(), "relevance": Fixed()})
    second.load_state_dict(first.state_dict())
    of_scorers = {"confidence": {"calls": 1}, "relevance": {"calls": 1}}
    assert second.state_dict() == {**of_scorers, "tally": {"graded": 1, "abstained": 0}}


def test_nothing_to_score_is_refused():
    with pytest.raises(ValidationError, match="got no dimension with a weight"):
        Drm.model_validate({"confidence": None, "relevance": None, "coherence": {"scorer": "lexical", "weight": 0}})
    with pytest.raises(ValidationError, match="leaves no reasoning"):
        Drm.model_validate({"extract": "whole"})


def test_what_its_scorers_read_of_engine_and_models_is_declared():
    causal = {"scorer": {"kind": "causal", "model": "average"}}
    drm = Drm.model_validate({"coherence": causal})
    assert drm.needed == {"average", "model_logprob"}
    assert [part.kind for part in drm.components()] == ["policy", "lexical", "causal"]


def test_the_recipe_compares_the_score_by_itself_and_the_other_one_chooses_pairs_by_it():
    added, paired = load_recipe("drm", []).stages[0], load_recipe("drm-dpo", []).stages[0]
    assert {part.kind: part.weight for part in added.composition().reward} == {"task": 1, "drm": 0}
    assert isinstance(added.composition().credit, ByPart)
    assert {part.kind: part.weight for part in paired.composition().reward} == {"task": 0, "drm": 1}
    assert ByPart.model_validate({"parts": {"task": 1}}).conflicts(Composition(reward=added.composition().reward)) == []


def test_the_default_scorers_need_tasks_with_demonstrations():
    with pytest.raises(ValueError, match=r"scorer.step-consistency: no demonstration"):
        Drm().build(Source(task()))
