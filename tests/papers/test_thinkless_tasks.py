import pytest

from lyceum.papers.thinkless.tasks_chain_modes import ChainModes
from lyceum.tasks.chain import Chain


def test_each_chain_is_shown_worked_and_answered_at_once():
    source, chains = (
        ChainModes(levels=(2, 3), size=10).build("train", 7),
        Chain(levels=(2, 3), size=10).build("train", 7),
    )
    think, short = source[4], source[5]
    assert think.messages == short.messages == chains[2].messages
    assert think.columns["demonstration"] == "T" + chains[2].columns["demonstration"]
    assert short.columns["demonstration"] == f"S#{chains[2].answer}"
    assert len({source[i].id for i in range(10)}) == 10
    with pytest.raises(IndexError):
        source[10]
