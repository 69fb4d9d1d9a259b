import pytest
from fake_task import roll
from guidance_fakes import WRONG, FakeContext, Source, ask, flat

from lyceum.core.types import Continuation, Origin
from lyceum.papers.rlgf.guidance_guide_model import GuideModel
from lyceum.tasks.chain import Chain
from lyceum.utils.errors import RecipeError

HINTS = [{"tier": "solution", "text": "h"}]


class Mixing(FakeContext):
    """The guide writes ``abcdef``; what the policy writes ends where it is told to, or at once with ``ends``."""

    def __init__(self, *, ends=False, **how):
        super().__init__(**how)
        self.ends, self.guided = ends, []

    async def ask(self, prefix, n, sampling, *, key):
        assert self.role == "guide"
        self.guided.append(self.decode(prefix))
        tokens = [ord(letter) for letter in "abcdef"[: sampling.max_completion_tokens]]
        zeros = [0.0] * len(tokens)
        return [Continuation(tokens, zeros, zeros, [0] * len(tokens), "stop") for _ in range(n)]

    async def extend(self, node, n, sampling=None, *, keep=False):
        assert self.role == "learner"
        leaves = await super().extend(node, n, sampling, keep=keep)
        for leaf in leaves:
            leaf.tokens[:], leaf.text = [ord("p")], "p"
            leaf.finish = "stop" if self.ends or sampling.max_completion_tokens > 10 else "length"
        return leaves

    def judged(self, leaf):
        return leaf.stats.get("grade", WRONG)


def mixed(context, columns=None, **settings):
    guide = GuideModel(share=0.5, **settings).build(Source(), seed=0)
    tree = roll(guide(flat(4)), context, ask("Q", hints=HINTS if columns is None else columns), 4)
    guide.observe([tree])
    return tree, guide.metrics()


def authors(leaf):
    return [node.origin for node in leaf.path()[1:]]


def test_first_the_guide_finishes_what_the_policy_began():
    context = Mixing(progress=0.0)
    tree, metrics = mixed(context)
    assert [authors(leaf) for leaf in tree.chosen] == [[Origin.POLICY]] * 2 + [[Origin.POLICY, Origin.PREFIX]] * 2
    assert [leaf.completion for leaf in tree.chosen[2:]] == ["pabcdef"] * 2, "graded as a whole"
    assert context.guided == ["Q|h", "Q|hp", "Q|hp"], "the guide reads the hint, and what the policy wrote below it"
    assert {leaf.root.text for leaf in tree.chosen} == {"Q"}, "the policy never reads it"
    assert (metrics["rollouts/finished"], metrics["rollouts/begun"], metrics["tokens/guide"]) == (2, 0, 12)


def test_then_it_begins_what_the_policy_finishes():
    tree, metrics = mixed(Mixing(progress=0.5))
    assert [authors(leaf) for leaf in tree.chosen[2:]] == [[Origin.PREFIX, Origin.POLICY]] * 2
    given = [leaf.path()[1].text for leaf in tree.chosen[2:]]
    assert all("abcdef".startswith(text) and 1 <= len(text) <= 5 for text in given)
    assert metrics["rollouts/begun"] == 2


def test_a_policy_that_ends_before_the_cut_is_left_alone():
    tree, metrics = mixed(Mixing(progress=0.0, ends=True))
    assert [authors(leaf) for leaf in tree.chosen] == [[Origin.POLICY]] * 4
    assert metrics["rollouts/alone"] == 2


def test_without_a_hint_there_is_no_better_guide():
    tree, metrics = mixed(Mixing(progress=0.5), columns=[])
    assert [authors(leaf) for leaf in tree.chosen] == [[Origin.POLICY]] * 4
    assert metrics["rollouts/alone"] == 2


def test_tasks_without_hints_of_the_tier_are_refused():
    with pytest.raises(RecipeError, match="guide-model"):
        GuideModel(tier="nonesuch").check_tasks(Chain().build("train", 0))
