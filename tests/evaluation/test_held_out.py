import gc
import weakref

import pytest

from lyceum.engine.embedded import EmbeddedConfig
from lyceum.models.load import load_policy
from lyceum.recipe.schema import load_recipe
from lyceum.reward.base import combine
from lyceum.training.train import _evaluator
from lyceum.utils.aio import idle, run_async


@pytest.fixture
def without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_an_engine_made_for_one_evaluation_is_gone_with_it(without_collector):
    # Its packed weights are as large as the model's, and training restricts the collector to new objects.
    keys = ["evaluate.n=2", "evaluate.samples=1", "rollout.sampling.max_completion_tokens=4", "model.device=cpu"]
    recipe = load_recipe("grpo", keys)
    source = recipe.tasks.build("heldout", 0)
    evaluator, policy = _evaluator(recipe, source, combine(recipe.reward, source)), load_policy(recipe.model)
    engine = EmbeddedConfig.model_validate({}).build(policy)
    gone = weakref.ref(engine)
    result = run_async(evaluator.evaluate(policy, engine, 0))
    assert len(result.trees) == 2
    assert engine.may_step is idle, "as before: an evaluation between two steps has the stage's own engine"
    del engine
    assert gone() is None
