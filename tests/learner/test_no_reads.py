"""A device is not waited for in an inner loop: what the learner reads of it does not grow with its micro-batches.

Counted without such a device: values that were computed are floating-point numbers, what the plan is made of are not.
"""

import pytest
import torch
from test_local import credited, forest, learner
from torch.utils._python_dispatch import TorchDispatchMode

from lyceum.objective.ppo_clip import PPOClip
from lyceum.objective.sft import SFT

aten = torch.ops.aten


class Reads(TorchDispatchMode):
    """Counts what a device's queue would be waited for: numbers of a tensor, and shapes that depend on its values."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function in (aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default):
            if args[0].is_floating_point():
                self.found.append(str(function))
        elif function in (aten.index.Tensor, aten.index_put.default, aten.index_put_.default):
            masks = [index for index in args[1] if index is not None and index.dtype == torch.bool]
            if args[0].is_floating_point() and masks:
                self.found.append(f"{function} by a mask")
        return function(*args, **(kwargs or {}))


def micro_batches_and_reads(objective, tokens: int):
    trained = learner(micro_batch_tokens=tokens, warmup_steps=0)
    passes, whole = [], trained._micro_batch
    trained._micro_batch = lambda *args: (passes.append(1), whole(*args))[1]
    with Reads() as reads:
        trained.step(forest(), credited(), objective)
    return len(passes), reads.found


@pytest.mark.parametrize("objective", [PPOClip(), PPOClip(entropy_coefficient=0.1), SFT()])
def test_reads_of_computed_values_do_not_grow_with_the_micro_batches(objective):
    objective = objective.build()
    few, read_once = micro_batches_and_reads(objective, 100_000)
    many, read_often = micro_batches_and_reads(objective, 16)
    assert many >= 5 * few
    assert read_often == read_once
