import asyncio

import pytest
from leaves import leaf, task

from lyceum.papers.echo_chamber.reward_formats import FormatShares
from lyceum.papers.echo_chamber.tasks_chain_formats import ChainFormats, format_of, written
from lyceum.tasks.chain import make_task


def test_each_format_is_known_by_its_form_right_or_wrong():
    chain = make_task("t", 37, [8, -2])
    found = {form: written(chain, form) for form in ("steps", "net", "answer")}
    assert found == {"steps": "37+8=45-2=43#43", "net": "37+6=43#43", "answer": "#43"}
    assert {form: format_of(text) for form, text in found.items()} == {form: form for form in found}
    assert format_of("37+8=55-2=53#53") == "steps"
    assert format_of("43") is None


def test_demonstrations_are_in_the_shares_asked_for():
    source = ChainFormats(levels=(2, 3), shares={"net": 1, "answer": 3}).build("train", 0)
    drawn = [source[i].columns for i in range(400)]
    assert sum(columns["format"] == "answer" for columns in drawn) == pytest.approx(300, abs=30)
    assert all(format_of(columns["demonstration"]) == columns["format"] for columns in drawn)


def test_shares_that_cannot_be_drawn_are_refused():
    with pytest.raises(ValueError, match="allowed: weights of at least 0, one of them above it"):
        ChainFormats(shares={"net": 0})


def test_a_format_has_its_own_accuracy():
    leaves = [leaf("37+6=43#43"), leaf("#42"), leaf("?")]
    grades = asyncio.run(
        FormatShares().build(ChainFormats().build("train", 0))(task(), leaves, None, [True, False, False])
    )
    assert [grade.outcome for grade in grades] == [1, 1, 0]
    assert grades[0].parts == {"steps": 0, "net": 1, "answer": 0, "right_net": 1}
    assert grades[1].parts == {"steps": 0, "net": 0, "answer": 1, "right_answer": 0}
    assert grades[2].parts == {"steps": 0, "net": 0, "answer": 0}
