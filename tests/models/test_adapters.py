import json

from lyceum.models.load import ModelSettings, load_policy, save_policy


def test_adapters_are_saved_in_the_same_bytes_by_every_process(tmp_path):
    # peft keeps the names as a set, whose order changes with Python's hash seed: seven are in order 1 time in 5040.
    policy = load_policy(ModelSettings.model_validate({"path": "scratch", "lora": {"rank": 1}}))
    save_policy(policy, tmp_path / "model")
    names = json.loads((tmp_path / "model" / "adapter" / "adapter_config.json").read_text())["target_modules"]
    assert len(names) == 7
    assert names == sorted(names)
