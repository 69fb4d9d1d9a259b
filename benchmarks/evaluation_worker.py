"""Held-out accuracy of a model folder on chain tasks: the same code for whoever trained it."""

from __future__ import annotations

import json
import sys

from common import Gate


def main() -> None:
    spec = json.loads(sys.argv[1])
    gate = Gate()
    import torch

    from lyceum.core.types import Sampling
    from lyceum.engine.embedded import EmbeddedEngine
    from lyceum.evaluation.held_out import Evaluator, first_tasks
    from lyceum.models.load import ModelSettings, load_policy
    from lyceum.reward.base import combine
    from lyceum.reward.task import TaskReward
    from lyceum.tasks.chain import Chain
    from lyceum.utils.aio import run_async

    torch.set_num_threads(spec["threads"])
    source = Chain.model_validate({}).build("heldout", 0)
    sampling = Sampling(max_completion_tokens=spec["max_tokens"])
    evaluator = Evaluator(
        first_tasks(source, spec["tasks"]), combine([TaskReward()], source), sampling, spec["samples"], (1,)
    )
    for folder in iter(lambda: sys.stdin.readline().strip(), ""):
        policy = load_policy(ModelSettings(path=folder))
        metrics = run_async(evaluator.evaluate(policy, EmbeddedEngine(policy), 0)).metrics()
        gate.say(**metrics)


if __name__ == "__main__":
    main()
