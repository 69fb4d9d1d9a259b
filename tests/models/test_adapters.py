import json

import pytest

from lyceum.models.load import ModelSettings, load_policy, save_policy
from lyceum.utils.errors import RecipeError


def test_adapters_are_saved_in_the_same_bytes_by_every_process(tmp_path):
    # peft keeps the names as a set, whose order changes with Python's hash seed: seven are in order 1 time in 5040.
    policy = load_policy(ModelSettings.model_validate({"path": "scratch", "lora": {"rank": 1}}))
    save_policy(policy, tmp_path / "model")
    names = json.loads((tmp_path / "model" / "adapter" / "adapter_config.json").read_text())["target_modules"]
    assert len(names) == 7
    assert names == sorted(names)


def test_a_rank_above_every_matrix_is_refused():
    settings = ModelSettings.model_validate({"path": "scratch", "lora": {"rank": 1_000_000}})
    with pytest.raises(
        RecipeError, match=r"model.lora.rank: got 1000000, but no matrix of the model has a rank above \d+"
    ):
        load_policy(settings)
