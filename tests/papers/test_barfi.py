"""BARFI's outer loop: which way the weights of reward parts move."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from lyceum.papers.barfi.stages_bilevel import OuterLoop, cosine
from lyceum.recipe.schema import load_recipe
from lyceum.training.train import check
from lyceum.utils.errors import RecipeError


def test_the_outer_gradient_is_over_all_tensors_together():
    # (3, 4 | 0) . (3, 0 | 4) = 9, both of length 5: 9 / 25. Tensor by tensor it would be 3/5 and 0.
    inner, outer = [torch.tensor([3.0, 4.0]), torch.tensor([0.0])], [torch.tensor([3.0, 0.0]), torch.tensor([4.0])]
    assert cosine(inner, outer) == pytest.approx(9 / 25)
    assert cosine(inner, [torch.zeros(2), torch.zeros(1)]) == 0


def test_a_part_gains_weight_where_it_did_what_the_primary_wants_now():
    # Gradients by (trees, part): what was trained on, of each part; what was sampled since, of the primary alone.
    known = {
        ("past", "good"): [3.0, 0.0],
        ("past", "bad"): [-1.0, 0.0],
        ("past", "idle"): [0.0, 2.0],
        ("now", "task"): [1.0, 0.0],
    }
    loop = object.__new__(OuterLoop)
    session = SimpleNamespace(training=lambda learner: nullcontext())
    loop.run = SimpleNamespace(session=session, flatten=lambda groups: groups[0])
    loop.learner, loop.past, loop.settings = None, ["past"], SimpleNamespace(primary="task", outer_lr=0.1)
    loop.parts = SimpleNamespace(weights={"task": 1.0, "good": 0.5, "bad": 0.5, "idle": 0.5})
    loop.gradient = lambda forest, part: [torch.tensor(known[forest, part])]
    found = loop.before("now")
    assert loop.parts.weights == pytest.approx({"task": 1.0, "good": 0.6, "bad": 0.4, "idle": 0.5})
    assert found["outer/bad/agreement"] == -1 == -found["outer/bad/moved"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["stages.0.credit=group"], "credit.kind: got 'group' in stage 'bilevel'"),
        (["stages.0.primary=drm"], "primary: got 'drm' with credit.parts task, steps/correct, token-budget"),
        (["stages.0.credit.parts={task: 1, steps/correct: {weight: 1, end: 0}}"], "credit.parts: got an end"),
    ],
)
def test_what_it_cannot_weigh_is_refused(keys, said):
    with pytest.raises(RecipeError, match=said):
        check(load_recipe("barfi", keys))
