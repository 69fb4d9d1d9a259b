import math

from reasonings import TASK, Characters, leaf, reasoned

from lyceum.core.types import Origin, Reasoned
from lyceum.papers.drm.scorer_policy import PolicyScorer
from lyceum.utils.aio import run_async


def score(of, context=None, **settings):
    return run_async(PolicyScorer(**settings).build(None)(TASK, [of], context or Characters()))[0]


# Five characters of reasoning at -1, -2, -3, -4, -5 (mean -3), the mark at -7, two of the answer at -0.5 and -1.5.
ONE = reasoned("1+1=2#43", [-1.0, -2, -3, -4, -5, -7, -0.5, -1.5])


def test_the_mean_of_the_reasoning_and_the_sum_of_the_answer_are_added():
    grade = score(ONE)
    assert (grade.outcome, grade.parts) == (-5.0, {"reasoning": -3.0, "answer": -2.0})
    assert score(ONE, of_answer="mean").outcome == -4.0
    assert score(ONE, reasoning=2, answer=0.5).outcome == -7.0


def test_what_a_prefix_wrote_is_no_confidence_of_the_policy():
    prompt = leaf("x").root
    given = prompt.add([ord(c) for c in "1+1"], Origin.PREFIX, "1+1")
    rest = leaf("=2#43", [-4.0, -5, -7, -0.5, -1.5])
    rest.parent = given
    assert score(Reasoned(rest, "", "1+1=2", "43")).parts == {"reasoning": -4.5, "answer": -2.0}


def test_a_trajectory_from_a_file_is_scored_by_the_runs_model():
    context = Characters(logprob=-9.0)
    grade = score(reasoned("1+1=2#43", []), context)
    assert (grade.parts, context.asked) == ({"reasoning": -9.0, "answer": -18.0}, 1)


def test_where_the_engine_gives_no_logprobs_it_abstains():
    assert score(reasoned("1+1=2#43", [math.nan] * 8)).outcome is None
