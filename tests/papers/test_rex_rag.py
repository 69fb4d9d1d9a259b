import math

import pytest
import torch
from fake_task import roll
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat

from lyceum.core.types import Origin
from lyceum.papers.rex_rag.guidance_probes import Probes, last_answer
from lyceum.papers.rex_rag.objective_mixture_ratio import mixture_ratio


class Looking(FakeContext):
    """Each sample is a call, its answer ``45``, and an end; below what is inserted the end alone."""

    async def extend(self, node, n, sampling=None, *, keep=False):
        drawn = await super().extend(node, n, sampling, keep=keep)
        if node.origin is Origin.TEACHER:
            return drawn
        return [
            (await super(Looking, self).extend(one.add([50], Origin.TOOL, "45"), 1, sampling, keep=keep))[0]
            for one in drawn
        ]

    def encode_after(self, path, text):
        return [ord(character) for character in text]

    def judged(self, leaf):
        return RIGHT if any(node.origin is Origin.TEACHER for node in leaf.path()) else WRONG


def probed(samples, **settings):
    guide = Probes(prompts=["+", "-"], **settings).build(Source(), seed=0)
    tree = roll(guide(flat(samples)), Looking(), ask("Q"))
    guide.observe([tree])
    return tree, guide.metrics()


def test_failed_trajectories_go_on_behind_an_inserted_prompt_below_the_tools_last_answer():
    tree, metrics = probed(4, share=0.5)
    assert len(tree.chosen) == 6
    for probe in tree.chosen[4:]:
        answer, inserted, end = probe.path()[-3:]
        assert (answer.origin, inserted.origin, end.origin) == (Origin.TOOL, Origin.TEACHER, Origin.POLICY)
        assert inserted.tokens in ([ord("+")], [ord("-")])
        assert probe.root is tree.chosen[0].root, "they are compared with the group"
    assert metrics == {"trajectories/failed": 4, "trajectories/probes": 2, "trajectories/rescued": 2}


def test_what_no_tool_answered_cannot_be_resumed():
    guide = Probes(prompts=["+"]).build(Source(), seed=0)
    tree = roll(guide(flat(2)), FakeContext(), ask("Q"))
    assert len(tree.chosen) == 2
    assert last_answer(tree.chosen[0]) is None


@pytest.mark.parametrize(
    ("p", "ratio"), [(0.5, 0.5 / (0.8 * 0.5 + 0.2 * 0.5)), (0.01, 0.01 / (0.8 * 0.01 + 0.2 * 0.5))]
)
def test_an_inserted_token_is_weighted_against_the_mixture(p, ratio):
    # With q = 1/2: a token of probability 1/2 weighs 1, one of 1 % next to nothing.
    nats = torch.tensor([math.log(p)])
    assert mixture_ratio(nats, nats, 0.2, 0.5).item() == pytest.approx(ratio)
