import math

import pytest
import torch
from pydantic import ValidationError

from lyceum.papers.rec.objective_rec import REC

RATIOS = [0.2, 0.5, 1.0, 2.5, 4.0]


def slopes(batch_of, advantage, **settings):
    """Each token's gradient, times the number of tokens, at the ratios above."""
    ratio = torch.tensor([RATIOS]).double()
    columns = {"logprob": ratio.log() - 3, "old_logprob": [[-3.0] * 5], "advantage": [[advantage] * 5]}
    batch = batch_of([[1] * 5], **columns)
    loss, metrics = REC(**settings).build()(batch)
    return (5 * torch.autograd.grad(loss, batch.logprob)[0]).squeeze(0).tolist(), metrics


def test_the_mask_is_one_sided_and_wide(batch_of):
    # Kept up to 3 where A > 0, from 0.4 where A < 0; what is kept has slope -A whatever its ratio is.
    assert slopes(batch_of, 1.0)[0] == pytest.approx([-1, -1, -1, -1, 0])
    found, metrics = slopes(batch_of, -1.0)
    assert found == pytest.approx([0, 1, 1, 1, 1])
    assert float(metrics["rec/masked"][0]) == 1


def test_two_sides_and_the_ring(batch_of):
    assert slopes(batch_of, 1.0, clip="two-side")[0] == pytest.approx([0, -1, -1, -1, 0])
    # The ring trains what lies far below with A > 0 again, which pulls it back; not what lies far above.
    ring = {"clip": "ring", "clip_low": 0.2, "clip_high": 0.2, "ring_low": 0.6, "ring_high": 2.0}
    assert slopes(batch_of, 1.0, **ring)[0] == pytest.approx([-1, 0, -1, 0, 0])
    assert slopes(batch_of, -1.0, **ring)[0] == pytest.approx([0, 0, 1, 0, 1])
    with pytest.raises(ValidationError, match=r"ring_low: got 0.1; allowed: at least clip_low, which is 0.6"):
        REC(clip="ring", ring_low=0.1)


def test_weights_of_ratio_and_advantage(batch_of):
    assert slopes(batch_of, 2.0, weigh="importance")[0] == pytest.approx([-0.4, -1, -2, -5, 0])
    # exp(2 / 4) and exp(-2 / 4): of equal sizes the good one counts for more.
    assert slopes(batch_of, 2.0, weigh="advantage", temperature=4.0)[0][2] == pytest.approx(-2 * math.exp(0.5))
    assert slopes(batch_of, -2.0, weigh="advantage", temperature=4.0)[0][2] == pytest.approx(2 * math.exp(-0.5))


def test_regularisers_act_on_tokens_that_the_clip_masks(batch_of):
    imitation = {"regulariser": "imitation", "coefficient": 0.5}
    assert slopes(batch_of, 1.0, **imitation)[0] == pytest.approx([-1.5, -1.5, -1.5, -1.5, -0.5])
    squared = slopes(batch_of, 1.0, regulariser="squared", coefficient=0.5)[0]  # slope 2 * 0.5 * log ratio
    assert squared == pytest.approx([math.log(r) - (r < 3) for r in RATIOS])
    assert REC().build().skips
    assert not REC(**imitation).build().skips
