import lyceum


def test_the_base_of_word_problems_is_asked_word_problems_and_solves_easy_ones():
    found = lyceum.evaluate("base-stories", None, ["tasks.levels=[0,1]"], n=12, k=[1], samples=1, progress="silent")
    assert found["greedy"]["overall"]["mean"] >= 0.75


def test_its_adapters_name_it_and_not_its_place(tmp_path):
    run = lyceum.train(
        "grpo",
        [
            *("model=base-stories", "tasks=stories", "model.lora=true", "keep={every: 1, models: adapter}", "steps=2"),
            *("tasks_per_step=2", "evaluate.n=0", f"output={tmp_path}", "rollout.sampling.max_completion_tokens=40"),
        ],
        name="adapters",
        progress="silent",
        max_steps_without_signal=0,
    )
    written = run.path / "kept_models" / "step-1" / "adapter_config.json"
    assert '"base_model_name_or_path": "base-stories"' in written.read_text()
