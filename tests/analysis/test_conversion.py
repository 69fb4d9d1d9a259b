"""Configurations of other libraries as recipes: twenty of public repositories, and what is counted and computed."""

import json
import shutil
from pathlib import Path

import pytest

import lyceum
from lyceum.analysis.conversion.configuration import Configuration
from lyceum.analysis.conversion.convert import PLACEHOLDER, convert
from lyceum.analysis.conversion.read import read_configuration
from lyceum.analysis.conversion.shell import commands
from lyceum.analysis.rehearsal import rehearse
from lyceum.cli.outcome import main
from lyceum.recipe.schema import load_recipe
from lyceum.utils.documents import read_yaml
from lyceum.utils.errors import RecipeError

FILES = sorted((Path(__file__).parent / "configurations").iterdir())
PAGE = Path(__file__).parents[2] / "docs/converting.md"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files as their libraries name them, beside rows with every column that one of them reads."""
    for file in FILES:
        shutil.copy(file, tmp_path / file.name.removesuffix(".txt"))
    columns = ("prompt", "messages", "context_messages", "prompt_c++17")
    asked = [[{"role": "user", "content": f"{i}+4="}] for i in range(40)]
    rows = [json.dumps({**dict.fromkeys(columns, each), "answer": str(i + 4)}) for i, each in enumerate(asked)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    pairs = [json.dumps({"prompt": f"{i}+4=", "chosen": str(i + 4), "rejected": "0"}) for i in range(40)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(pairs))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", [file.name.removesuffix(".txt") for file in FILES])
def test_every_key_is_converted_or_named_and_the_recipe_is_one(name, folder):
    given = read_configuration(name).keys
    found = convert(name, rewards="own_rewards.py")
    assert set(found.done) | set(found.named) == set(given)
    assert len(found.done) + len(found.named) == len(given)
    assert all(found.named.values())
    assert all(f"{key}=" in found.text for key in found.named)
    assert read_yaml(found.text) == found.recipe  # what is said of the keys are comments

    Path("own_rewards.py").write_text(found.rewards)
    Path("mine.yaml").write_text(found.text)
    rows = (
        "data={kind: file, path: pairs.jsonl}" if "data" in found.recipe else "tasks={kind: dataset, path: rows.jsonl}"
    )
    here = ["model.path=base", "evaluate.tasks=null", rows, "output=runs"]
    given_rows = "data" in found.recipe
    tasks = found.recipe.get("tasks")
    columns = tasks.get("columns", {}) if isinstance(tasks, dict) else {}
    of_rows = [f"tasks.columns.{key}={value}" for key, value in columns.items()]
    # The data set and the model are not here; all else is as it was converted.
    found = rehearse(load_recipe("mine.yaml", [*here, *of_rows, "trust_code=true"]))
    assert found.tasks or given_rows


def test_the_page_has_what_became_of_each(folder):
    counted = {file.name: convert(file.name.removesuffix(".txt")) for file in FILES}
    for name, found in counted.items():
        row = f"| `{name.removesuffix('.txt')}` | {len(found.answers)} | {len(found.done)} | {len(found.named)} |"
        assert row in PAGE.read_text()


def test_a_batch_of_trl_is_counted_in_tasks_updates_and_steps(tmp_path):
    (tmp_path / "trl.yaml").write_text(
        "{num_generations: 8, per_device_train_batch_size: 4, gradient_accumulation_steps: 2, steps_per_generation: 8,"
        " num_iterations: 2, max_steps: 400, warmup_ratio: 0.1, save_steps: 80}"
    )
    found = convert(str(tmp_path / "trl.yaml"), ["num_processes=2"]).recipe
    # 4 completions x 8 micro-batches x 2 processes are 64, of 8 tasks. The gradient is applied each 2 of 8
    # micro-batches, 4 times, in 2 passes: 8 updates a step, so that 400 updates are 50 steps, 40 of them 5, 80 are 10.
    assert (found["tasks_per_step"], found["learner"]["updates_per_step"], found["learner"]["epochs"]) == (8, 4, 2)
    assert (found["steps"], found["learner"]["warmup_steps"], found["checkpoint_every"]) == (50, 5, 10)


def test_batches_of_verl_and_openrlhf(folder):
    verl = convert("verl-dapo.sh").recipe
    assert (verl["tasks_per_step"], verl["rollout"]["samples"]) == (512, 16)
    assert verl["learner"]["updates_per_step"] == 512 // 32
    assert verl["reward"][1] == {"kind": "overlong", "max_tokens": 20480, "buffer_tokens": 4096, "weight": 1.0}
    assert verl["collect"] == {"keep": "partly-solved", "max_waves": 10}
    assert verl["objective"]["dual_clip"] == 3.0  # verl's where nothing is said
    openrlhf = convert("openrlhf-dapo.sh").recipe
    assert (openrlhf["tasks_per_step"], openrlhf["rollout"]["samples"]) == (128, 8)
    assert openrlhf["learner"]["updates_per_step"] == 128 * 8 // 128
    assert openrlhf["objective"]["kl"] == {"coefficient": 0.001, "estimator": "k3"}
    assert (openrlhf["objective"]["clip_low"], openrlhf["objective"]["clip_high"]) == (0.2, 0.27)


def test_two_files_of_rows_are_two_parts_of_the_tasks(folder):
    tasks = convert("verl-qwen2-7b-math.sh").recipe["tasks"]
    assert [part["path"] for part in tasks] == ["~/data/gsm8k/train.parquet", "~/data/math/train.parquet"]
    assert {part["max_prompt_tokens"] for part in tasks} == {1024}


def test_nothing_of_a_script_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = "from trl import GRPOConfig, GRPOTrainer\nopen('ran', 'w')\n"
    script += "def good(completions, **_):\n    return [1.0 for _ in completions]\n"
    script += "GRPOTrainer('base', good, args=GRPOConfig(num_generations=4)).train()\n"
    Path("s.py").write_text(script)
    found = convert("s.py", rewards="own.py")
    assert not Path("ran").exists()
    assert found.recipe["reward"] == [{"kind": "trl", "function": ["own.py:good"]}]
    assert found.rewards.startswith("def good(")
    assert "open(" not in found.rewards
    assert "would start its training" in convert("s.py").named["reward_funcs"]


def test_the_rewards_of_a_script_that_trains_come_with_all_that_they_use(folder):
    found = convert("trl-tldr.py", rewards="own.py")
    assert "def different" in found.rewards
    assert "GRPOTrainer" not in found.rewards
    known: dict = {}
    exec(found.rewards, known)  # a file of this test's own
    assert known["reward_num_unique_chars"](["aab", "abc"]) == [2, 3]


def test_a_script_that_can_be_imported_is_named_itself(folder):
    assert convert("trl-maxrl.py").recipe["reward"][0]["function"] == ["trl-maxrl.py:accuracy_reward"]
    assert convert("trl-maxrl.py", rewards="own.py").recipe["reward"][0]["function"] == ["own.py:accuracy_reward"]


def test_values_that_only_the_script_knows_are_named(tmp_path):
    script = "n = 4\nc = GRPOConfig(num_generations=n * 2, learning_rate=args.lr, beta=-0.0)\n"
    (tmp_path / "s.py").write_text(script)
    found = convert(str(tmp_path / "s.py"))
    assert found.recipe["rollout"]["samples"] == 8
    assert found.named == {"learning_rate": "the file computes it; it is learner.lr here"}


def test_the_last_value_of_a_key_counts_and_overrides_come_after(tmp_path):
    file = tmp_path / "trl.yaml"
    file.write_text("num_generations: 4\nbeta: 0.1\nnum_generations: 8\n")
    assert convert(str(file)).recipe["rollout"]["samples"] == 8
    assert convert(str(file), ["--num-generations=16"]).recipe["rollout"]["samples"] == 16


def test_a_secret_stands_in_no_recipe(tmp_path):
    file = tmp_path / "run.sh"
    file.write_text("python -m openrlhf.cli.train_ppo_ray --use_wandb 5ec4e7 --pretrain base --n_samples_per_prompt 8")
    assert "5ec4e7" not in convert(str(file)).text


def test_a_shell_script_is_read_with_its_variables():
    text = """
    N=4  # a comment with an apostrophe: isn't
    a=$((N * 2 + 1))
    b=${MISSING:-"${a}-x"}
    run --a $a --b "$b" \\
        --home $HOME/x --c ${NOT_SET} "$@"
    """
    assert commands(text)[-1] == [
        "run",
        "--a",
        "9",
        "--b",
        "9-x",
        "--home",
        "~/x",
        "--c",
        "${NOT_SET}",
    ]


def test_arithmetic_of_other_things_than_whole_numbers_stays_unread():
    assert commands("a=$((__import__('os')))\nrun $a")[-1] == ["run", "$((__import__(os)))"]
    assert commands("a=$((9**9**9))\nrun $a")[-1][1].startswith("$((")


def test_what_multiplies_itself_ends_soon(tmp_path):
    doubled = "a=xx\n" + "a=$a$a\n" * 60
    assert len(commands(f"{doubled}run $a")[-1][1]) <= 10_000
    lists = "a0 = [1]\n" + "".join(f"a{i} = [{', '.join([f'a{i - 1}'] * 50)}]\n" for i in range(1, 12))
    (tmp_path / "s.py").write_text(f"{lists}GRPOConfig(num_generations=4, betas=a11)\n")
    assert convert(str(tmp_path / "s.py")).named["betas"] == "the file computes it"


def test_a_variable_that_is_not_set_is_named(tmp_path):
    file = tmp_path / "run.sh"
    file.write_text("python -m verl.trainer.main_ppo data.train_batch_size=${BSZ} actor_rollout_ref.rollout.n=5")
    found = convert(str(file))
    assert found.named == {"data.train_batch_size": "the file computes it; it is tasks_per_step here"}
    assert found.recipe["tasks"]["path"] == PLACEHOLDER


def test_what_a_recipe_refuses_is_named_with_the_reason(tmp_path):
    file = tmp_path / "trl.yaml"
    file.write_text("{num_generations: 8, temperature: -3, seed: 1, top_p: 0.9}")
    found = convert(str(file))
    assert "temperature: got -3" in found.named["temperature"]
    assert found.recipe["rollout"]["sampling"]["top_p"] == 0.9


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.txt", "x", "got a.txt; allowed: a .py script with GRPOTrainer"),
        ("a.py", "def f(:", "a.py is not Python"),
        (
            "a.py",
            "KTOTrainer(model)",
            "a.py has KTOTrainer; allowed: a script with GRPOConfig",
        ),
        ("a.yaml", "learning_rate: 1", "a.yaml has learning_rate; allowed: settings of TRL's GRPOConfig"),
        ("a.yaml", "[1]", "a.yaml holds no settings"),
        ("a.yaml", "seed: 1\nno key\nbeta: 2", "a.yaml cannot be read: while scanning a simple key"),
        ("a.sh", "echo hello", "a.sh has no command of TRL, verl or OpenRLHF"),
    ],
)
def test_what_is_no_configuration_is_refused(name, text, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    with pytest.raises(RecipeError, match=told):
        convert(name)


def test_the_command_prints_a_recipe_or_writes_it_once(folder, capsys):
    assert main(["convert", "trl-tldr.py", "num_processes=4"]) == 0
    assert read_yaml(capsys.readouterr().out)["tasks_per_step"] == 2 * 8 * 4 // 2
    assert main(["convert", "trl-tldr.py", "--out", "mine.yaml"]) == 0
    out = capsys.readouterr().out
    assert "mine_rewards.py" in out
    assert "lyceum train mine.yaml --dry-run trust_code=true" in out
    assert main(["convert", "trl-tldr.py", "--out", "mine.yaml"]) == 2
    assert main(["convert", "trl-tldr.py", "--out", ""]) == 2
    assert "'mine.yaml' exists" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["trl-tldr.py", "verl-ppo.sh", "open-r1-code.yaml"])
def test_training_by_such_a_file_points_to_convert(file, folder, capsys):
    assert main(["train", file]) == 2
    assert "lyceum convert" in capsys.readouterr().err


def test_a_number_that_is_none_takes_the_default():
    of = Configuration("TRL", {"a": None, "b": 0, "c": True, "d": 3})
    assert [of.number(key, 7) for key in "abcde"] == [7, 7, 7, 3, 7]


DPO = """
from datasets import load_dataset
from trl import DPOConfig, DPOTrainer

args = DPOConfig(beta=0.2, loss_type="ipo", per_device_train_batch_size=2, gradient_accumulation_steps=8, max_steps=30)
DPOTrainer(model="me/model", ref_model=None, args=args, train_dataset=load_dataset("me/pairs", split="train")).train()
"""


def test_a_script_of_pairs_and_one_of_demonstrations_extend_recipes_of_theirs(tmp_path):
    (tmp_path / "dpo.py").write_text(DPO)
    found = lyceum.convert(tmp_path / "dpo.py", ["num_processes=4"])
    assert found.recipe["extends"] == "dpo"
    # 2 pairs x 8 micro-batches x 4 processes are an update, which is a step
    assert (found.recipe["tasks_per_step"], found.recipe["steps"]) == (64, 30)
    assert found.recipe["objective"] == {"loss": "ipo", "beta": 0.2}
    assert found.recipe["data"] == {"kind": "file", "path": "me/pairs", "split": "train"}
    assert "tasks" not in found.recipe
    (tmp_path / "sft.sh").write_text(
        "trl sft --model_name_or_path me/model --dataset_name me/chats --packing --max_length 99"
    )
    found = lyceum.convert(tmp_path / "sft.sh")
    assert (found.recipe["extends"], found.recipe["max_completion_tokens"]) == ("sft", 99)
    assert "not packed" in found.named["packing"]
    (tmp_path / "both.py").write_text(DPO.replace("import DPOConfig", "import SFTTrainer, DPOConfig") + "SFTTrainer()")
    with pytest.raises(RecipeError, match="has trainers for dpo, sft; allowed: a script with one"):
        lyceum.convert(tmp_path / "both.py")


def test_a_reward_of_openrlhf_runs_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("theirs.py").write_text(
        "import torch\n\n\ndef reward_func(queries, prompts, labels):\n"
        "    return {'rewards': torch.tensor([float(q == p + a) for q, p, a in zip(queries, prompts, labels)])}\n"
    )
    Path("run.sh").write_text(
        "python -m openrlhf.cli.train_ppo_ray --pretrain base --remote_rm_url theirs.py --label_key answer"
    )
    found = convert("run.sh", rewards="own_rewards.py")
    assert found.recipe["reward"] == [{"kind": "trl", "function": ["own_rewards.py:reward_func"]}]
    Path("own_rewards.py").write_text(found.rewards)
    rows = [{"prompt": "1+1=", "completion": text, "answer": "2"} for text in ("2", "3")]
    lines = []
    lyceum.grade(rows, "own_rewards.py:reward_func", each=lines.append, progress="silent")
    assert [line["score"] for line in lines] == [1.0, 0.0]
    assert "--out FILE.yaml writes" in convert("run.sh").named["remote_rm_url"]
    Path("run.sh").write_text(
        "python -m openrlhf.cli.train_ppo_ray --pretrain base --remote_rm_url http://localhost:5000/r"
    )
    assert "a server of rewards" in convert("run.sh").named["remote_rm_url"]


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ("load_in_8bit: true", "int8"),
        ("load_in_8bit: true, bnb_4bit_quant_type: fp4", "int8"),  # the kind of a rounding that is off
        ("load_in_4bit: true", "nf4"),
        ("bnb_4bit_quant_type: fp4, load_in_4bit: true", "fp4"),
        ("load_in_4bit: true, bnb_4bit_quant_type: fp4", "fp4"),
        ("load_in_8bit: false, bnb_4bit_quant_type: nf4", None),
    ],
)
def test_rounded_weights_of_trl_are_held_in_as_many_bits(tmp_path, keys, kind):
    (tmp_path / "trl.yaml").write_text(f"{{num_generations: 8, use_peft: true, {keys}}}")
    found = convert(str(tmp_path / "trl.yaml"))
    assert found.recipe["model"].get("quantise") == kind
    (tmp_path / "mine.yaml").write_text(found.text)
    assert load_recipe(str(tmp_path / "mine.yaml")).model.quantise == kind


OPENRLHF = "python3 -m openrlhf.cli.train_ppo_ray --pretrain base --advantage_estimator group_norm"


def converted(tmp_path, text, name="run.sh"):
    """A file's recipe, which must be one that loads."""
    (tmp_path / name).write_text(text)
    found = convert(str(tmp_path / name))
    (tmp_path / "mine.yaml").write_text(found.text)
    load_recipe(str(tmp_path / "mine.yaml"))
    return found


@pytest.mark.parametrize("key", ["eval_dataset", "eval.dataset"])
def test_openrlhf_evaluates_on_a_data_set(tmp_path, key):
    found = converted(tmp_path, f"{OPENRLHF} --n_samples_per_prompt 8 --{key} e/f --label_key answer --eval_split test")
    expected = {"kind": "dataset", "path": "e/f", "columns": {"answer": "answer"}, "split": "test"}
    assert found.recipe["evaluate"]["tasks"] == expected
    assert not found.named


@pytest.mark.parametrize(
    "first", ["num_generations: 8", "beta: 0.1, learning_rate: 1e-6", "packing: true, learning_rate: 1e-6"]
)
def test_trl_names_a_data_set_that_it_evaluates_on(tmp_path, first):
    found = converted(tmp_path, f"{{{first}, eval_dataset: e/f, dataset_test_split: test}}", "trl.yaml")
    assert "evaluate.tasks" in found.named["eval_dataset"]
    assert found.recipe.get("tasks", {}).get("heldout_split") == ("test" if "data" not in found.recipe else None)


@pytest.mark.parametrize("keys", ["seed: 7, data_seed: 3", "data_seed: 3, seed: 7"])
def test_of_two_keys_that_are_one_here_one_counts_and_the_other_is_named(tmp_path, keys):
    found = converted(tmp_path, f"{{num_generations: 8, {keys}}}", "trl.yaml")
    assert found.recipe["seed"] == 7  # which has a rule of its own
    assert found.named == {"data_seed": "seed is 7, by seed"}
    same = converted(tmp_path, "{num_generations: 8, seed: 7, data_seed: 7}", "trl.yaml")
    assert not same.named
    twice = converted(tmp_path, f"{OPENRLHF} --n_samples_per_prompt 8 --generate_max_len 9 --rollout.max_new_tokens 7")
    assert twice.recipe["rollout"]["sampling"]["max_completion_tokens"] == 7
    assert twice.named == {"generate_max_len": "rollout.sampling.max_completion_tokens is 7, by rollout.max_new_tokens"}


def test_a_strategy_that_is_no_comes_before_its_steps(tmp_path):
    keys = 'save_strategy: "no", save_steps: 30, eval_strategy: "no", eval_steps: 4'
    found = converted(tmp_path, f"{{num_generations: 8, {keys}}}", "trl.yaml")
    assert (found.recipe["checkpoint_every"], found.recipe["evaluate"]["every"]) == (0, 0)
    assert found.named == {"save_steps": "save_strategy is no", "eval_steps": "eval_strategy is no"}


def test_the_model_folder_is_what_the_output_is_and_not_that_of_checkpoints(folder):
    found = convert("openrlhf-dapo.sh")
    assert found.recipe["output"] == "/openrlhf/examples/test_scripts/final"
    assert found.named["ckpt_path"] == "output is /openrlhf/examples/test_scripts/final, by save_path"


TIS = {"mode": "truncate", "level": "token", "high": 5.0}
VERL = "python3 -m verl.trainer.main_ppo data.train_batch_size=8 actor_rollout_ref.rollout.n=4"
CORRECTION = "algorithm.rollout_correction.rollout_is"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("run.sh", f"{VERL} {CORRECTION}=token {CORRECTION}_threshold=5.0", TIS),
        ("run.sh", f"{VERL} {CORRECTION}=token", TIS | {"high": 2.0}),
        (
            "run.sh",
            f"{VERL} {CORRECTION}=sequence {CORRECTION}_threshold=0.5_5.0",
            {"mode": "mask", "level": "sequence", "low": 0.5, "high": 5.0},
        ),
        (
            "run.sh",
            f"{VERL} actor_rollout_ref.actor.tis_imp_ratio_cap=5",
            {"mode": "truncate", "high": 5.0},
        ),
        (
            "trl.yaml",
            "{num_generations: 8, vllm_importance_sampling_correction: true, vllm_importance_sampling_cap: 5.0, "
            "vllm_importance_sampling_mode: token_truncate}",
            TIS | {"low": 0.0},
        ),
        (
            "trl.yaml",
            "{num_generations: 8, vllm_importance_sampling_correction: true, vllm_importance_sampling_clip_max: 5.0, "
            "vllm_importance_sampling_clip_min: 0.5}",
            {"mode": "mask", "level": "sequence", "low": 0.5, "high": 5.0},
        ),
        (
            "run.sh",
            f"{OPENRLHF} --n_samples_per_prompt 8 --enable_vllm_is_correction --vllm_is_truncated_threshold 5",
            {"mode": "truncate", "high": 5},
        ),
        (
            "run.sh",
            f"{OPENRLHF} --n_samples_per_prompt 8 --algo.advantage.is_correction_enable "
            "--algo.advantage.is_correction_threshold 0.5 5.0 --algo.advantage.is_correction_type icepop",
            {"mode": "mask", "low": 0.5, "high": 5.0},
        ),
    ],
)
def test_the_bounds_of_importance_weights_are_theirs(tmp_path, name, text, expected):
    found = converted(tmp_path, text, name)
    assert found.recipe["objective"]["importance"] == expected
    assert not found.named


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("run.sh", f"{VERL} {CORRECTION}_threshold=5.0", f"{CORRECTION}_threshold"),
        ("run.sh", f"{VERL} {CORRECTION}=token {CORRECTION}_threshold=much", f"{CORRECTION}_threshold"),
        ("trl.yaml", "{num_generations: 8, vllm_importance_sampling_cap: 5.0}", "vllm_importance_sampling_cap"),
        (
            "run.sh",
            f"{OPENRLHF} --n_samples_per_prompt 8 --vllm_is_truncated_threshold 5",
            "vllm_is_truncated_threshold",
        ),
    ],
)
def test_bounds_of_a_correction_that_is_off_are_named(tmp_path, name, text, key):
    found = converted(tmp_path, text, name)
    assert key in found.named
    assert "importance" not in found.recipe["objective"]


@pytest.mark.parametrize(
    ("text", "key", "tasks"),
    [
        (VERL.removesuffix(" actor_rollout_ref.rollout.n=4") + " algorithm.adv_estimator=grpo", None, 8),
        (f"{OPENRLHF} --rollout_batch_size 64", "n_samples_per_prompt", 64),
    ],
)
def test_a_default_that_is_refused_is_named_with_what_is_trained_instead(tmp_path, text, key, tasks, capsys):
    key = key or "actor_rollout_ref.rollout.n"
    found = converted(tmp_path, text)
    assert list(found.named) == [key]
    assert "rollout.samples: got 1, but credit.kind 'group'" in found.named[key]
    assert found.named[key].endswith("instead rollout.samples=8")
    assert "samples" not in found.recipe["rollout"]  # it is that of grpo
    assert found.recipe["tasks_per_step"] == tasks
    assert f"#   {key}=1: " in found.text
    assert main(["convert", str(tmp_path / "run.sh"), "--out", str(tmp_path / "out.yaml")]) == 0
    assert f"0 without a counterpart; refused defaults of {found.library}: {key}=1" in (capsys.readouterr().out)


def test_a_default_that_fits_is_not_named(tmp_path):
    found = converted(tmp_path, VERL.removesuffix(" actor_rollout_ref.rollout.n=4"))
    assert not found.named  # generalised advantages need no group
    assert found.recipe["rollout"]["samples"] == 1
