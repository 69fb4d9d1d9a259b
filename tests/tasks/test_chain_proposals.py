import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.types import ProposedSource, Task
from lyceum.tasks.chain import Chain, is_heldout
from lyceum.tasks.chain_proposals import ChainProposals

SOURCE = Chain(levels=(1, 2, 3)).build("train", 0)
LIKE = Task("like", ({"role": "user", "content": "5+3-1="},))


def test_a_chain_is_a_task_with_its_answer():
    assert isinstance(SOURCE, ProposedSource)
    task = SOURCE.proposed(" 97+8-3=\n", LIKE)
    assert isinstance(task, Task)
    # 97 + 8 = 105, which is 5 modulo 100; 5 - 3 = 2.
    assert (task.messages[0]["content"], task.answer, task.provenance) == ("97+8-3=", "2", "policy")
    assert task.columns["level"] == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "format"),
        ("97+8-2", "format"),
        ("97+8-3=3", "format"),
        ("07+8=", "format"),
        ("97+0=", "format"),
        ("97+18=", "format"),
        ("197+8=", "format"),
        ("٣+1=", "format"),  # an Arabic digit: int() would read it
        ("1+1=\n2+2=", "format"),
        ("__import__('os')=", "format"),
        ("1" + "+1" * 4 + "=", "level"),
        ("1" + "+1" * 100_000 + "=", "format"),
        ("5+3-1=", "copied"),
    ],
)
def test_what_is_no_task_is_rejected_for_a_reason(text, why):
    assert SOURCE.proposed(text, LIKE) == why


def test_a_chain_kept_for_evaluation_is_rejected():
    chains = (f"{start}+{step}=" for start in range(99) for step in range(1, 9))
    held = next(chain for chain in chains if is_heldout(chain))
    assert SOURCE.proposed(held, LIKE) == "heldout"


@given(st.text(max_size=40))
def test_any_text_is_a_task_or_rejected(text):
    assert isinstance(SOURCE.proposed(text, LIKE), Task | str)


def test_every_demonstration_is_accepted():
    source = ChainProposals(levels=(1, 2, 3)).build("train", 4)
    for index in range(100):
        task = source[index]
        shown = task.messages[0]["content"]
        assert shown.endswith("?=")
        like = Task("like", ({"role": "user", "content": shown.removesuffix("?=") + "="},))
        assert (
            isinstance(SOURCE.proposed(task.columns["demonstration"], like), Task)
            or task.columns["demonstration"] == like.messages[0]["content"]
        )
    assert source[3] == ChainProposals(levels=(1, 2, 3)).build("train", 4)[3]


def test_a_rewritten_chain_differs_by_one_operation():
    source = ChainProposals(levels=(2, 3), rewrites=True).build("train", 0)
    deeper = set()
    for index in range(100):
        task = source[index]
        shown, written = task.messages[0]["content"].removesuffix("?="), task.columns["demonstration"].removesuffix("=")
        of, to = (re.findall(r"^\d+|[+-]\d", chain) for chain in (shown, written))
        assert len(to) - len(of) in (0, 1)
        assert len(to) <= 4  # three operations: no level has more
        assert sum(a != b for a, b in zip(of, to, strict=False)) == (len(to) == len(of))
        assert not is_heldout(written + "=")
        deeper.add(len(to) - len(of))
    assert deeper == {0, 1}
