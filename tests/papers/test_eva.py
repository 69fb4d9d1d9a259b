import numpy as np
import pytest
from fake_task import roll
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat

from lyceum.core.types import Continuation
from lyceum.papers.eva.guidance_evolve_prompts import EvolvePrompts, spread, weights
from lyceum.tasks.countdown import Countdown
from lyceum.utils.errors import RecipeError


class Rewriting(FakeContext):
    """A model that rewrites every prompt as ``writes``."""

    def __init__(self, writes, grades, **how):
        super().__init__(grades, **how)
        self.writes, self.rewrote = writes, []

    async def ask(self, prefix, n, sampling, *, key):
        self.rewrote.append(self.decode(prefix))
        tokens = [ord(letter) for letter in self.writes]
        return [Continuation(tokens, [-1.0] * len(tokens), [], [0] * len(tokens), "stop")]


class Parsed(Source):
    """Rewritten prompts that begin with ``Q`` are tasks."""

    def to_propose(self, task):
        return [{"role": "user", "content": f"rewrite {task.messages[0]['content']}"}]

    def proposed(self, text, like):
        return ask(text) if text.startswith("Q") else "format"


def step(guide, context, question):
    tree = roll(guide(flat(4)), context, ask(question))
    guide.observe([tree])
    return tree, guide.metrics()


@pytest.mark.parametrize(
    ("rewards", "gap", "best_to_mean"), [((0, 0, 0, 1), 1.0, 0.75), ((1, 1), 0.0, 0.0), ((-1, 0, 1), 2.0, 1.0)]
)
def test_spread_of_rewards(rewards, gap, best_to_mean):
    assert (spread(rewards, "gap"), spread(rewards, "best-to-mean")) == (gap, best_to_mean)


def test_weights_are_spreads_scaled_to_their_range():
    # (0.25, 0.5, 1) - 0.25 = (0, 0.25, 0.75), over their sum 1.
    np.testing.assert_allclose(weights(np.array([0.25, 0.5, 1.0]), "gap"), [0, 0.25, 0.75])
    np.testing.assert_allclose(weights(np.array([0.0, 1.0]), "uniform"), [0.5, 0.5])
    np.testing.assert_allclose(weights(np.array([1.0, 1.0]), "gap"), [0.5, 0.5])  # not divided by zero
    assert weights(np.array([0.0, 0.0]), "gap").tolist() == [0, 0]  # nothing to learn anywhere
    assert weights(np.array([]), "gap").tolist() == []


def test_the_informative_prompt_is_rewritten_and_its_child_answered_in_the_place_of_the_drawn_task():
    context = Rewriting("Qchild", {"Qhard": [WRONG], "Qmid": [RIGHT, WRONG], "Qchild": [WRONG, RIGHT]})
    guide = EvolvePrompts(share=1.0).build(Parsed(), seed=0)
    for drawn in ("Qhard", "Qmid"):  # a pool without spread gives none to rewrite
        _, metrics = step(guide, context, drawn)
        assert context.rewrote == []
    assert (metrics["pool/prompts"], metrics["pool/informative"]) == (2, 1)

    tree, metrics = step(guide, context, "Qnew")
    assert context.rewrote == ["rewrite Qmid"]
    assert [leaf.root.text for leaf in tree.chosen] == ["Qchild"] * 4
    assert [leaf.grade.outcome for leaf in tree.chosen] == [0, 1, 1, 1]
    assert tree.unaided == []  # nobody answered the drawn task: curricula read no accuracy of it
    assert metrics["prompts/evolved"] == metrics["prompts/evolved_informative"] == metrics["prompts/generation"] == 1
    # The child joins the pool with a spread of its own; the drawn task, which nobody answered, does not.
    assert [(prompt.id, prompt.spread) for prompt in guide.pool.values()] == [("Qhard", 0), ("Qmid", 1), ("Qchild", 1)]

    restored = EvolvePrompts(share=1.0).build(Parsed(), seed=0)
    restored.load_state_dict(guide.state_dict())
    assert restored.pool == guide.pool


def test_where_what_is_written_is_no_task_the_drawn_one_is_answered():
    context = Rewriting("nonsense", {"Qmid": [RIGHT, WRONG]})
    guide = EvolvePrompts(share=1.0, pool=1).build(Parsed(), seed=0)
    step(guide, context, "Qmid")
    tree, metrics = step(guide, context, "Qnew")
    assert {leaf.root.text for leaf in tree.chosen} == {"Qnew"}
    assert (metrics["prompts/rejected"], metrics["rejected/format"], metrics["prompts/evolved"]) == (1, 1, 0)
    assert list(guide.pool) == ["Qnew"]  # one prompt fits: the last answered


def test_without_a_share_nothing_is_rewritten():
    context = Rewriting("Qchild", {"Qmid": [RIGHT, WRONG]})
    guide = EvolvePrompts(share=0.0).build(Parsed(), seed=0)
    for _ in range(3):
        step(guide, context, "Qmid")
    assert context.rewrote == []


def test_tasks_that_a_model_cannot_write_are_refused():
    with pytest.raises(RecipeError, match="evolve-prompts: the tasks have no rule"):
        EvolvePrompts().check_tasks(Countdown().build("train", 0))
