import asyncio
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from lyceum.core.types import Exchange
from lyceum.papers.reseek.environment_judged_search import JudgedSearch
from lyceum.papers.reseek.tasks_chain_judged import ChainJudged

TURN = SimpleNamespace(address=1, path_tokens=lambda: [])
CONTEXT = SimpleNamespace(seed=lambda *key: 5, encode_after=lambda path, text: [ord(c) for c in text])


def played(said, wrong=0.0, before=()):
    environment = JudgedSearch(wrong=wrong).build()
    state = environment.replay(None, [Exchange(*one) for one in before])
    return asyncio.run(environment.step(state, TURN, said, CONTEXT))


def shown(observation):
    return "".join(map(chr, observation.tokens))


def test_an_operation_is_answered_and_a_wrong_result_is_another_number():
    assert shown(played("37+8=")) == "45"
    assert shown(played("37+8=", wrong=1.0)) != "45"
    assert shown(played("y-2=", before=[("37+8=", "45")])) == "43"


@pytest.mark.parametrize(
    ("result", "said", "reward", "counted"),
    [
        ("45", "y-2=", 1.0, "kept_right"),
        ("91", "y-2=", -1.0, "kept_wrong"),
        ("45", "n", -1.0, "dropped_right"),
        ("91", "n", 1.0, "dropped_wrong"),
        ("91", "-2=", 0.0, "unjudged"),
    ],
)
def test_a_judgement_is_paid_where_it_agrees_with_the_rule(result, said, reward, counted):
    found = played(said, before=[("37+8=", result)])
    assert found.reward == reward
    assert found.counts[counted] == 1


def test_what_is_dropped_is_looked_up_again_and_the_chain_goes_on_from_it():
    again = played("n", before=[("37+8=", "91")])
    assert shown(again) == "45"
    assert shown(played("y-2=", before=[("37+8=", "91"), ("n", "45")])) == "43"


def test_an_answer_ends_the_trajectory():
    found = played("y#45", before=[("37+8=", "45")])
    assert found.end
    assert found.reward == 1.0


def test_marks_are_no_part_of_chains():
    with pytest.raises(ValidationError, match="allowed: two that no chain has"):
        JudgedSearch(keep="+")


def test_demonstrations_without_care_drop_what_is_wrong():
    source = ChainJudged(levels=[3], careless=0.0).build("train", 0)
    for task in (source[i] for i in range(30)):
        text = task.columns["demonstration"]
        assert text.endswith(f"#{task.answer}")
        assert text.count("y") == 3
