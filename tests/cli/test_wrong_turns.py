"""Wrong turns of people who have just begun: each is answered at once, with exit code 2, by a line that cures it."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

import pytest

import lyceum.api  # noqa: F401, not in the first case
from lyceum.cli import main
from lyceum.recipe.schema import load_recipe
from lyceum.training.train import check
from lyceum.utils.documents import write_yaml

pytestmark = pytest.mark.usefixtures("small_scratch")

SECONDS = 2.0
"""Of CPU time for each answer."""

GOOD = [{"prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(40)]
FILES = {
    "good.jsonl": GOOD,
    "golds.jsonl": [{"prompt": row["prompt"], "gold": row["answer"]} for row in GOOD],
    "numbers.jsonl": [{"prompt": i, "answer": "1"} for i in range(40)],
    "nulls.jsonl": [{"prompt": row["prompt"], "answer": None} for row in GOOD],
    "lists.jsonl": [[row["prompt"], row["answer"]] for row in GOOD],
    "content.jsonl": [{"prompt": [{"role": "user", "text": "1+1="}], "answer": "2"} for _ in GOOD],
    "sharegpt.jsonl": [{"prompt": [{"from": "human", "value": "1+1="}], "answer": "2"} for _ in GOOD],
    "objects.jsonl": [{"prompt": row["prompt"], "answer": {"value": 1}} for row in GOOD],
    "one.jsonl": GOOD[:1],
    "pairs.jsonl": [{"prompt": "1+1=", "chosen": "2", "rejected": "3"}],
    "texts.jsonl": [{"text": "1+1=2"}],
    "conversations.jsonl": [{"conversations": [{"from": "human", "value": "1+1="}]}],
    "roles.jsonl": [{"conversations": [{"role": "user", "content": "1+1="}]}],
    "alpaca.jsonl": [{"instruction": "1+1=", "input": "", "output": "2"}],
    "labels.jsonl": [{"prompt": "1+1=", "completion": "2", "label": True}],
    "calls.jsonl": [{"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]}],
    "empty.jsonl": [],
}
TEXTS = {
    "broken.jsonl": '{"prompt": "1+1=", "answer": "2"}\n{"prompt": "2+1=", "answer": "3"\n',
    "data.txt": "1+1=2\n",
    "data.jsonl.zst": "",
    "data.jsonl.gz": "not compressed",
    "semicolons.csv": "prompt;answer\n" + "".join(f"{i}+1=;{i + 1}\n" for i in range(40)),
    "wrapped.json": '{"data": []}',
    "my_reward.py": "def score(completion):\n    return 1.0\n\ndef other(response):\n    return 1.0\n\nLIMIT = 3\n",
    "theirs.py": "def reward_func(queries, prompts, labels):\n    return [1.0 for _ in queries]\n\n"
    "class Manager:\n    def __init__(self, tokenizer, num_examine):\n        pass\n",
    "syntax.py": "def score(completion:\n    return 1.0\n",
    "imports.py": "import nosuchpackage\n",
    "learnr.yaml": "extends: grpo\nlearnr: {lr: 1}\n",
    "tab.yaml": "extends: grpo\n\tsteps: 3\n",
    "extends.yaml": "extends: gpro\n",
    "alone.yaml": "credit: leave-one-out\n",
    "theirs.yaml": "extends: grpo\nmax_steps: 4\nlearning_rate: 1e-5\nlearner: {warmup_ratio: 0.1}\n",
    "verl.yaml": "algorithm: {adv_estimator: rloo}\ndata: {train_files: x}\n",
    "hydra.yaml": "defaults: [grpo]\n",
    "README.md": "Read me.\n",
    "adapters/adapter_config.json": "{}",
    "runs/done/recipe.yaml": "extends: grpo\n",
}


@pytest.fixture(scope="module", autouse=True)
def warm():
    """What the first command of a process imports is not the answer's."""
    check(load_recipe("grpo", ["evaluate.n=1"]))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A user's folder, without a network and without a model that could be loaded."""
    from huggingface_hub import constants

    def loaded(*args, **kwargs):
        pytest.fail("a model was loaded")

    for place in ("training.train", "analysis.measure", "api", "models.load"):
        monkeypatch.setattr(f"lyceum.{place}.load_policy", loaded)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.chdir(tmp_path)
    for name, rows in FILES.items():
        Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, text in TEXTS.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    for place in ("folder", "runs/x/checkpoints/step-3"):
        Path(place).mkdir(parents=True)


KEYS = [
    ("step=20", "step: unknown key (did you mean 'steps'?)"),
    ("lr=1e-4", "lr: unknown key (did you mean 'learner.lr'?)"),
    ("samples=8", "samples: unknown key (did you mean 'rollout.samples' or 'evaluate.samples'?)"),
    ("kl=0.1", "kl: unknown key (did you mean 'objective.kl'?)"),
    ("learning_rate=1e-5", "learning_rate: unknown key (learner.lr is TRL's learning_rate)"),
    ("batch_size=32", "batch_size: unknown key (tasks_per_step is other libraries' batch_size: counts prompts"),
    ("group_size=8", "group_size: unknown key (rollout.samples is other libraries' group_size)"),
    ("gpus=2", "gpus: unknown key (other libraries' gpus: the option --nproc, with learner.kind=fsdp)"),
    ("max_new_tokens=512", "rollout.sampling.max_completion_tokens is OpenRLHF's max_new_tokens"),
    ("objective.clip=0.2", "clip: unknown key (did you mean 'clip_low'?)"),
    ("learner.warmup=0.1", "(learner.warmup_steps is other libraries' warmup: in steps and not as a share)"),
    ("model.lora.r=8", "model.lora.r: unknown key"),
    ("steps:20", "override: got 'steps:20'; allowed: key=value, such as steps=50"),
    ("rollout.samples.x=3", "rollout.samples.x: rollout.samples is"),
    ("rollout.sampling={temperature: 1", "rollout.sampling: got '{temperature: 1', which is not YAML"),
    ("evaluate=false", "evaluate: got False; allowed: its keys, such as evaluate.n=0, which evaluates nothing"),
    ("evaluate=null", "evaluate: got None; allowed: its keys, such as evaluate.n=0, which evaluates nothing"),
    ("objective.kl=0.1", "objective.kl: got 0.1; allowed: against, coefficient, estimator"),
    # Other libraries' keys, also below one of ours.
    ("rollout.n=8", "rollout.n: unknown key (rollout.samples is verl's actor_rollout_ref.rollout.n"),
    ("rollout.max_completion_length=64", "(rollout.sampling.max_completion_tokens is TRL's max_completion_length)"),
    ("objective.beta=0.04", "(objective.kl.coefficient is TRL's beta: of the KL penalty in the loss"),
    ("objective.epsilon=0.2", "(objective.clip_low is TRL's epsilon: and objective.clip_high for the upper side)"),
    ("objective.loss_type=dr_grpo", "(objective.aggregate is TRL's loss_type: dapo and bnpo are token"),
    ("learner.learning_rate=1e-6", "(learner.lr is TRL's learning_rate)"),
    ("evaluate.steps=10", "evaluate.steps: unknown key (did you mean 'every'?)"),
    ("model.load_in_4bit=true", "(model.quantise is TRL's load_in_4bit: nf4, together with model.lora)"),
    ("model.attn_implementation=sdpa", "attention over token trees is this package's own; leave it out"),
    ("model.lora.r=4", "model.lora.r: unknown key (model.lora.rank is TRL's lora_r)"),
    ("generation_batch_size=32", "(tasks_per_step is TRL's generation_batch_size: counts prompts and not completions)"),
    ("load_best_model_at_end=true", "(evaluate.save_best is TRL's load_best_model_at_end)"),
    ("push_to_hub=true", "after the run: lyceum push runs/NAME owner/name"),
    ("tools=x.py", "rollout=turns 'rollout.environment={kind: tools, functions: [FILE.py:NAME]}'"),
    ("model.lora.dropout=0.1", "(TRL's lora_dropout: adapters have none here"),
    ("deepspeed=zero2.json", "learner.kind=fsdp with the option --nproc"),
    ("repetition_penalty=1.1", "the reward kind repetition makes it cost"),
    ("optim=adamw_8bit", "learner.optimizer=adamw-8bit"),
    ("optim=adafactor", "there is AdamW alone, with learner.betas, learner.eps and learner.weight_decay"),
    ("use_lora=true", "(model.lora is other libraries' use_lora: model.lora=true)"),
    ("dataset=good.jsonl", "(tasks is other libraries' dataset)"),
    ("actor_rollout_ref.rollout.tensor_model_parallel_size=2", "a model's layers are not split between GPUs"),
    ("algorithm.gamma=0.99", "credit=gae credit.gamma=1.0 objective.value_coefficient=0.5"),
    ("critic.model.path=base", "the value is a head of the policy: credit=gae"),
    ("actor_rollout_ref.rollout.mode=async", "rollouts are always asynchronous, a coroutine per task; leave it out"),
    (
        "actor_rollout_ref.rollout.multi_turn.interaction_config_path=x.yaml",
        "rollout=turns rollout.environment=FILE.py:CLASS, what answers the policy",
    ),
    (
        "data.tool_config_path=tools.yaml",
        "(rollout.environment is verl's data.tool_config_path: rollout=turns 'rollout.environment={kind: tools,",
    ),
    ("data.sampler.class_name=Mine", "or curriculum=FILE.py:CLASS of one's own"),
    ("actor_rollout_ref.actor.checkpoint.save_contents=[hf_model]", "nothing is to be merged: a run that ends leaves"),
    ("packing_samples=true", "rows always share their prefixes and are packed; leave it out"),
    (
        "rollout.environment=calculator",
        "(a key of rollout=branching-turns and rollout=dialogue-tree and rollout=turns)",
    ),
    ("credit.limit_low=1", "credit.limit_low: unknown key; allowed: ddof, eps, kind, kl_in_reward, scale"),
    # Habits of TRL, verl, OpenRLHF, verifiers and prime-rl, typed as they are there.
    ("num_iterations=2", "(learner.epochs is TRL's num_iterations)"),
    ("scale_rewards=false", "(credit.scale is TRL's scale_rewards: group is std, batch is batch, none is none)"),
    ("mask_truncated_completions=true", "(mask_truncated is TRL's mask_truncated_completions)"),
    ("gradient_accumulation_steps=4", "micro-batches follow from it, and the gradient does not depend on it"),
    ("per_device_train_batch_size=8", "counts prompts and not completions; memory is bounded by learner.micro_batch_t"),
    ("save_steps=50", "(checkpoint_every is TRL's save_steps)"),
    ("save_total_limit=3", "(keep_checkpoints is TRL's save_total_limit)"),
    ("logging_steps=1", "every step is logged, in metrics.jsonl and by track"),
    ("report_to=wandb", "(track is TRL's report_to)"),
    ("bf16=true", "(learner.autocast is TRL's bf16: bfloat16; the dtype of the weights is model.dtype)"),
    ("use_vllm=true", "(engine is TRL's use_vllm: engine=vllm)"),
    ("vllm_gpu_memory_utilization=0.5", "in GiB of KV cache; this recipe's engine has none"),
    ("reward_weights=[1,2]", "(reward.0.weight is TRL's reward_weights: each part has its own)"),
    ("epsilon_high=0.28", "(objective.clip_high is TRL's epsilon_high)"),
    ("max_prompt_length=512", "longer prompts are refused; tasks.bad_rows=drop leaves them out"),
    ("delta=2", "(objective.dual_clip is TRL's delta)"),
    ("lr_scheduler_type=cosine", "(learner.schedule=cosine is "),
    ("trainer.total_epochs=3", "(epochs is verl's trainer.total_epochs: with steps as the maximum)"),
    ("trainer.n_gpus_per_node=8", "learner.kind=fsdp with the option --nproc"),
    ("trainer.test_freq=5", "(evaluate.every is verl's trainer.test_freq: -1 is evaluate.every=0)"),
    ("trainer.save_freq=20", "(checkpoint_every is verl's trainer.save_freq: -1 is checkpoint_every=0)"),
    ("trainer.nnodes=2", "one machine; learner.kind=fsdp with the option --nproc"),
    ("data.train_batch_size=1024", "(tasks_per_step is verl's data.train_batch_size)"),
    ("data.max_response_length=1024", "(rollout.sampling.max_completion_tokens is verl's data.max_response_length)"),
    ("actor_rollout_ref.actor.ppo_mini_batch_size=256", "updates = train_batch_size / ppo_mini_batch_size"),
    ("actor_rollout_ref.actor.kl_loss_coef=0.001", "(objective.kl.coefficient is verl's actor_rollout_ref"),
    ("actor_rollout_ref.actor.use_dynamic_bsz=true", "micro-batches are always by tokens"),
    ("algorithm.use_kl_in_reward=true", "(credit.kl_in_reward.coefficient=0.001 is verl's"),
    ("algorithm.filter_groups.enable=true", "collect.keep=partly-solved by verdicts (filter_groups.metric=acc)"),
    ("reward_model.reward_manager=dapo", "what dapo adds is the part overlong"),
    ("custom_reward_function.path=x.py", "(reward is verl's custom_reward_function.path: reward=FILE.py:NAME)"),
    ("pretrain=base", "(model is OpenRLHF's pretrain)"),
    ("prompt_data=good.jsonl", "(tasks is OpenRLHF's prompt_data)"),
    ("rollout_batch_size=1024", "(tasks_per_step is OpenRLHF's rollout_batch_size)"),
    ("n_samples_per_prompt=8", "(rollout.samples is OpenRLHF's n_samples_per_prompt)"),
    ("colocate_all_models=true", "sampling and training share one process; leave it out"),
    ("vllm_num_engines=2", "engine=vllm-server takes engine.urls"),
    ("remote_rm_url=x.py", "(reward is OpenRLHF's remote_rm_url: reward=FILE.py:NAME)"),
    ("dynamic_filtering=true", "collect.keep=partly-solved of rewards that are 0 or 1"),
    ("eps_clip_low_high=[0.2,0.3]", "objective.clip_low=0.2 objective.clip_high=0.28"),
    ("environment=wordle", "rollout=turns rollout.environment=KIND; lyceum components environment lists the kinds"),
    ("rollouts_per_example=16", "(rollout.samples is other libraries' rollouts_per_example)"),
    ("orchestrator.batch_size=128", "(tasks_per_step is other libraries' orchestrator.batch_size: counts prompts"),
    ("orchestrator.sampling.max_tokens=64", "(rollout.sampling.max_completion_tokens is other libraries' orchestrat"),
    ("oversampling_factor=2", "how many are drawn follows from how many were kept; collect.oversample.most=4"),
    ("keep.dtype=int8", "keep.dtype: got 'int8'; allowed: 'model', 'float32', 'bfloat16' or 'float16'"),
    ("learner.optimizer=adamw8bit", "(did you mean 'adamw-8bit'?)"),
    ("early_stopping=true", "until.solved=0.9, or until.least_rise=0.01"),
    ("early_stopping_patience=3", "(until is other libraries' patience: until.window=5 with until.least_rise=0.01"),
    ("learner.processes=4", "(learner is other libraries' processes: learner.kind=fsdp with the option --nproc)"),
    ("learnig_rate=1e-5", "(did you mean 'learning_rate'? learner.lr is TRL's learning_rate)"),
    ("model.quantise=nf4", "rounded weights cannot be trained; allowed: both, model.lora=true beside it, or neither"),
]
NUMBERS = [
    ("steps=20.5", "steps: got 20.5; allowed: a whole number"),
    ("steps=0", "steps: got 0; allowed: 1 or more"),
    ("steps=1,000", "steps: got '1,000'; allowed: a whole number"),
    ("steps=10k", "steps: got '10k'; allowed: a whole number"),
    ("steps=true", "steps: got True; allowed: a number, not true or false"),
    ("learner.lr=0,0001", "learner.lr: got '0,0001'; allowed: a number"),
    ("learner.lr=-1e-6", "learner.lr: got -1e-06; allowed: more than 0"),
    ("rollout.sampling.top_p=95", "top_p: got 95; allowed: 1 or less"),
    ("rollout.sampling.temperature=-1", "temperature: got -1; allowed: 0 or more"),
    ("tasks.heldout_share=10%", "heldout_share"),
    ("tasks.levels=abc", "tasks.levels: got 'abc'; allowed: a list, such as [1, 2, 3"),
    ("evaluate.k=8", "evaluate.k: got 8; allowed: a list, such as [8]"),
    ("rollout.sampling.stop=END", "stop: got 'END'; allowed: a list, such as [END]"),
    ("checkpoint_minutes=soon", "checkpoint_minutes: got 'soon'; allowed: a number"),
    ("threads=0", "threads: got 0; allowed: 1 or more"),
    ("max_steps_without_signal=-1", "max_steps_without_signal: got -1; allowed: 0 or more"),
]
PARTS = [
    ("credit=gpro", "credit.kind: got 'gpro' (did you mean 'group'?)"),
    ("credit=loo", "credit.kind: got 'loo' (did you mean 'leave-one-out'?)"),
    ("objective=ppo", "objective.kind: got 'ppo' (did you mean 'ppo-clip'?)"),
    ("objective=dapo", "objective.kind: got 'dapo' (did you mean 'ppo-clip'?)"),
    ("objective=grpo", "objective.kind: got 'grpo' (did you mean 'ppo-clip'?)"),
    ("curriculum=random", "curriculum.kind: got 'random' (did you mean 'uniform'?)"),
    ("guidance=scaffold", "guidance: got 'scaffold'; allowed: a list, such as [scaffold]"),
    ("engine=hf", "engine.kind: got 'hf' (did you mean 'embedded'?)"),
    ("model.dtype=fp16", "model.dtype: got 'fp16' (did you mean 'float16'?)"),
    ("model.device=gpu", "model.device: got 'gpu' (did you mean 'cuda'?)"),
    (
        "credit=my_reward.py:score",
        "credit.kind: got 'my_reward.py:score', a function; allowed: a class that derives from lyceum.core.settings."
        "CreditSettings or from a component of 'credit', and whose build returns what computes",
    ),
    ("track=[wandb]", "wandb cannot be imported; pip install wandb, or leave it out"),
    ("track=none", "track: got 'none'; allowed: a list, such as [tensorboard]"),
]
FUNCTIONS = [
    ("reward=accuracy_reward", "reward: got 'accuracy_reward' (did you mean 'trl.rewards:accuracy_reward'?)"),
    (
        "reward=owner/reward-model",
        "which looks like a model; allowed: FILE.py:NAME or MODULE:NAME of a function that asks",
    ),
    ("reward=accuracy", "reward.0.kind: got 'accuracy' (did you mean 'math'?)"),
    ("reward=maths", "reward.0.kind: got 'maths' (did you mean 'math'?)"),
    ("reward=score", "FILE.py:FUNCTION"),
    ("reward=trl.rewards.accuracy_reward", "(did you mean 'trl.rewards:accuracy_reward'?); allowed: FILE.py:NAME"),
    ("reward=my_reward.py::score", "(did you mean 'my_reward.py:score'?)"),
    ("reward=[]", "reward: got no part; allowed: one or more, for example kind 'task'"),
    (
        "reward=my_reward.py",
        "got 'my_reward.py', a file without a function; allowed: my_reward.py:NAME of a function in it",
    ),
    ("reward=my_reward.py:", "a file without a function; allowed: my_reward.py:NAME"),
    ("reward=my_reward.py:scores", "has no function 'scores' (did you mean 'score'?); it has score, other"),
    ("reward=my_reward.py:LIMIT", "has no function 'LIMIT'; it has score, other"),
    ("reward=my_reward.py:other", "'my_reward.py:other' asks for 'response'; allowed: level"),
    ("reward=theirs.py:reward_func", "asks for 'queries'; allowed: answer"),
    ("reward=theirs.py:reward_func", "OpenRLHF's has other names here: completions for queries, answer for labels"),
    ("reward=theirs.py:Manager", "a reward manager of verl's is not called: name the function that scores"),
    ("reward=nofile.py:score", "nofile.py' does not exist; allowed: path/to/file.py:name"),
    ("reward=syntax.py:score", "syntax.py' cannot be imported: SyntaxError: '(' was never closed (syntax.py, line 1)"),
    ("reward=imports.py:score", "imports.py' cannot be imported: ModuleNotFoundError: No module named 'nosuchpackage'"),
]
DATA = [
    ("tasks=god.jsonl", "tasks.path: got 'god.jsonl', which does not exist (did you mean 'good.jsonl'?)"),
    ("tasks=*.jsonlx", "tasks"),
    ("tasks=data.txt", "tasks.path: got 'data.txt', a file named .txt; allowed: .jsonl, .json, .parquet, .csv"),
    ("tasks=data.jsonl.zst", ".tsv.gz; to decompress it: zstd -d data.jsonl.zst"),
    ("tasks=data.jsonl.gz", "tasks.path: 'data.jsonl.gz' cannot be read: Not a gzipped file"),
    ("tasks=gone.jsonl.gz", "tasks.path: got 'gone.jsonl.gz', which does not exist"),
    ("tasks=empty.jsonl", "tasks.path: 'empty.jsonl' has no rows"),
    ("tasks=broken.jsonl", "tasks.path: line 2 of 'broken.jsonl': not JSON"),
    ("tasks=lists.jsonl", "line 1 of 'lists.jsonl' holds a list; allowed: an object with named cells"),
    ("tasks=wrapped.json", "'wrapped.json' must be a JSON list of objects"),
    ("tasks=golds.jsonl", "line 1 of 'golds.jsonl' has no column 'answer'; allowed: prompt, gold, or null"),
    ("tasks=numbers.jsonl", "holds a number in column 'prompt'; allowed: a text, or chat messages {role, content}"),
    ("tasks=nulls.jsonl", "holds nothing in column 'answer'; allowed: a text, a number, or a list of these"),
    ("tasks=content.jsonl", "holds message 0, whose content is nothing, in column 'prompt'"),
    ("tasks=sharegpt.jsonl", "holds message 0, whose role is nothing, in column 'prompt'"),
    (
        "tasks=objects.jsonl",
        "reward.kind: got 'math', which compares texts and numbers, and the answer of task 'objects.jsonl/train/"
        "0' is {'value': 1}; allowed: one that is (tasks.columns.answer=COLUMN.CELL, where CELL is value), or a reward "
        "function of your own",
    ),
    ("tasks=semicolons.csv", "has no column 'prompt' (did you mean 'prompt;answer'?)"),
    (
        "tasks=one.jsonl",
        "of the 1 rows of 'one.jsonl' leaves none for heldout; allowed: another share, heldout_path, or evaluate.n=0",
    ),
    ("tasks=folder", "the folder 'folder' cannot be read as a dataset"),
    ("tasks=gsm8k", "owner/name of a dataset on the hub"),
    ("tasks=openai/gsm8k", "there is no file or folder openai/gsm8k, the hub's cache has no such dataset"),
    ("tasks=chian", "tasks.kind: got 'chian' (did you mean 'chain'?)"),
    ("tasks=reasoning-gym:chain_summ", "got 'chain_summ' (did you mean 'chain_sum'?)"),
    ("tasks=reasoning-gym", "tasks.dataset: missing; it has no default: give tasks.dataset=VALUE"),
    ("tasks.levels=[99]", "tasks.levels: got [99]; allowed: different numbers of operations from 1 to 64"),
]
COLUMNS = [
    ("tasks.columns.prompt=Prompt", "has no column 'Prompt' (did you mean 'prompt'?)"),
    ("tasks.split=test", "tasks.split: got 'test', but 'good.jsonl' is a file, which has no splits; allowed: train"),
    ("tasks.max_samples=5", "(tasks.limit is other libraries' max_samples)"),
    ("tasks.prompt=question", "tasks.prompt: unknown key (did you mean 'columns.prompt'?)"),
    ("tasks.columns.question=prompt", "tasks.columns.question: unknown key; allowed: answer, demonstration"),
    ("tasks.template={question}", "got a mapping, which braces are in YAML; allowed: the text in quotes of its own"),
    ("tasks.template=no braces", "got 'no braces'; allowed: a text with at least one {column}"),
    ("tasks.answer_after=####", "has nothing after '####' in column 'answer'"),
    ("tasks.where={answer: 99}", "no row of 'good.jsonl' has {'answer': 99}; allowed: values that occur"),
    ("tasks.heldout_path=gone.jsonl", "tasks.heldout_path: got 'gone.jsonl', which does not exist"),
    ("tasks.levels=[1]", "tasks.levels: unknown key"),
]
MODELS = [
    ("model=base2", "model.path: got 'base2' (did you mean 'base'?)"),
    ("model=models/smollm2-135m-instruct", "make smollm2 writes SmolLM2 there"),
    ("model=models/smollm2-135m-instruct/", "make smollm2 writes SmolLM2 there"),
    ("model=Qwen/Qwen3-0.6B", "the hub's cache has no such model, and HF_HUB_OFFLINE is set"),
    ("model=README.md", "README.md is a file; allowed: a model folder, or a .gguf file"),
    ("model=folder", "folder has no config.json, so it is not a Hugging Face model folder"),
    ("model=gone.gguf", "model.path: no file gone.gguf"),
]
SEVERAL = "train grpo nothing=1 num_generations=8 learner.lrr=3 steps=0"
OF_TRL = "num_generations=4 max_completion_length=64 learning_rate=1e-6"
COMMANDS = [
    ("train", "Missing argument 'recipe'"),
    ("train gpro", "recipe: got 'gpro' (did you mean 'grpo', 'gspo', 'ghpo'?)"),
    ("train GRPO", "recipe: got 'GRPO' (did you mean 'grpo', "),
    ("train steps=3", "recipe: got 'steps=3', a key; allowed: a recipe before it, such as lyceum train grpo steps=3"),
    ("train good.jsonl", "got 'good.jsonl', a file; allowed: a recipe, such as lyceum train grpo tasks=good.jsonl"),
    ("train runs/done", "a run (did you mean 'runs/done/recipe.yaml', which trains it again?)"),
    ("compare runs/done grpo", "curves of runs that are there: tensorboard --logdir runs"),
    ("compare grpo grpo:learner.lr=1e-5", "with nothing beside it; allowed: another recipe to compare it with, as in"),
    ("train reward data=pairs.jsonl", "allowed: rlmt, which trains a reward model on pairs of its own answers"),
    ("view done", "run: done is not a run's folder (no recipe.yaml) (did you mean runs/done?)"),
    ("eval adapters tasks=good.jsonl", "but one of adapters; allowed: a whole model"),
    ("eval runs/x/checkpoints/step-3", "but a checkpoint, from which --resume continues; the run runs/x"),
    ("train mine.yaml", "recipe: got 'mine.yaml', and there is no such file; allowed: a .yaml file"),
    ("train grpo.yaml", "there is no such file (did you mean 'grpo', which comes with lyceum?)"),
    ("train learnr.yaml", "learnr: unknown key (did you mean 'learner'?)"),
    (
        "train alone.yaml",
        "credit: unknown key (a key of a stage, and this recipe has none: extends: RECIPE,",
    ),
    ("train theirs.yaml", "max_steps: unknown key (steps is TRL's max_steps)"),
    ("train theirs.yaml", "learning_rate: unknown key (learner.lr is TRL's learning_rate)"),
    ("train theirs.yaml", "learner.warmup_ratio: unknown key (learner.warmup_steps is TRL's warmup_ratio: in steps"),
    (
        "train grpo nothing=1 num_generations=8 learner.lrr=3 steps=0",
        "num_generations: unknown key (rollout.samples is",
    ),
    (SEVERAL, "steps: got 0; allowed: 1 or more"),
    (SEVERAL, "learner.lrr: unknown key (did you mean 'lr'?)"),
    ("train dpo data=pairs.jsonl beta=0.1", "beta: unknown key (objective.beta is TRL's beta)"),
    ("train sft num_generations=8", "(rollout.samples is TRL's num_generations; this recipe has no rollout)"),
    ("train sft credit=group", "and this recipe's are sft)"),
    ("train tab.yaml", "tab.yaml is not YAML"),
    ("train extends.yaml", "extends: extends.yaml says 'gpro' (did you mean 'grpo', 'gspo', 'ghpo'?)"),
    ("train smollm2-sums", "make smollm2 writes SmolLM2 there"),
    ("train grpo --steps 20", "settings are given as key=value, without dashes: steps=VALUE"),
    ("train grpo --lr 1", "lr: unknown key (did you mean 'learner.lr'?)"),
    ("train grpo --seeds 3", "--seeds is an option of lyceum compare"),
    ("train grpo --overlong_buffer_len=16", "as key=value: reward is OpenRLHF's overlong_buffer_len"),
    ("train main_ppo", "recipe: got 'main_ppo', which trains by many methods; allowed: a recipe for its estimator"),
    ("train verl.yaml", "recipe: got algorithm at the top, as configurations of verl and hydra have them"),
    ("train verl.yaml", "algorithm.adv_estimator: credit=leave-one-out is verl's algorithm.adv_estimator=rloo"),
    ("train verl.yaml", "data.train_files: tasks is verl's data.train_files"),
    ("train hydra.yaml", "allowed: keys of lyceum below extends: grpo"),
    ("train grpo --nosuchthing=16", "nosuchthing: unknown key"),
    ("train grpo --resum", "No such option: --resum (Possible options: --resume)"),
    ("train grpo --resume", "there is no run in runs/grpo; allowed: the name of a run, or no resume"),
    ("train grpo --resume --overwrite", "resume: got true together with overwrite=true"),
    ("train grpo --name a/b", "name: got 'a/b'; allowed: letters, digits"),
    ("train grpo --nproc 2", "--nproc: got 2, but learner.kind is 'local'; allowed: 1, or learner.kind=fsdp"),
    ("train grpo --config mine.yaml", "a recipe's file stands in the place of its name: lyceum train FILE.yaml"),
    ("train sft data=good.jsonl", "(tasks is other libraries' data: data=FILE is for preference pairs"),
    ("train sft tasks=texts.jsonl", "the row is plain text: tasks='{kind: text, path: FILE}'"),
    (
        "train sft tasks=conversations.jsonl",
        "rename its column 'conversations' to 'messages', and in each",
    ),
    ("train sft tasks=roles.jsonl", "has no column 'prompt'; rename its column 'conversations' to 'messages' "),
    ("train sft tasks=alpaca.jsonl", "tasks.columns.prompt=instruction tasks.columns.demonstration=output"),
    ("train dpo data=labels.jsonl", "has no pair to learn from: each prompt has one completion"),
    ("train dpo data=pairs.jsonl loss_type=ipo", "loss_type: unknown key (objective.loss is TRL's loss_type)"),
    ("train grpo model.use_cpu=true", "(model.device is TRL's use_cpu: model.device=cpu)"),
    ("train grpo importance_sampling_level=sequence", "(objective=gspo is TRL's importance_sampling_level=sequence)"),
    ("train grpo remove_unused_columns=false", "every column reaches the reward by its name; leave it out"),
    ("train sft tasks=calls.jsonl", "message 0, which calls a tool (tool_calls are not supported"),
    ("train grpo data=good.jsonl", "to sample some, tasks=FILE instead of data=FILE"),
    ("train dpo tasks=pairs.jsonl", "the row is a preference pair: data=FILE instead of tasks=FILE"),
    ("grpo model=base", "No such command 'grpo'. It is a recipe: lyceum train grpo"),
    ("eval base good.jsonl", "got 'good.jsonl', a file; allowed: key=value, such as tasks=good.jsonl"),
    ("compare grpo,rloo", "recipes: got 'grpo,rloo'; allowed: one after another, grpo rloo"),
    ("compare grpo rloo seeds=3", "seeds: got 3 as a recipe's key; allowed: --seeds N"),
    ("trian grpo", "No such command 'trian'. Did you mean 'train'?"),
    ("eval runs/none", "model.path: there is no file or folder runs/none"),
    ("eval base --k 16 --samples 8", "samples: got 8, but k is up to 16; allowed: 16 or more"),
    ("eval base steps=3", "steps: unknown key"),
    (f"eval base {OF_TRL}", "num_generations: unknown key (samples, on the command line --samples, is TRL's num_gen"),
    (
        f"eval base {OF_TRL}",
        "unknown key (max_completion_tokens is TRL's max_completion_length); allowed: model, tasks",
    ),
    (f"eval base {OF_TRL}", "(a setting of training: learner.lr is TRL's learning_rate); allowed: model, tasks"),
    ("eval base --max-new-tokens 64", "--max-tokens is OpenRLHF's max_new_tokens"),
    ("eval base --min_p 0.1", "settings are given as key=value, without dashes: min_p=VALUE"),
    ("eval base samples=4", "samples: unknown key (here it is the option --samples)"),
    ("eval base rollout.sampling.top_p=0.9", "rollout.sampling.top_p: unknown key (here it is top_p)"),
    ("eval base data.train_files=good.jsonl", "(tasks is verl's data.train_files)"),
    ("search base num_samples=4", "(sizes, on the command line --sizes, is other libraries' num_samples)"),
    ("boundary base --n_samples 4", "--samples is other libraries' num_samples"),
    ("grade good.jsonl reward_funcs=x", "(reward, on the command line --reward, is TRL's reward_funcs"),
    ("grade good.jsonl --reward-funcs x", "--reward is TRL's reward_funcs"),
    ("grade good.jsonl --reward math columns=x", "columns: got it as a key; allowed: columns.prompt, columns.compl"),
    ("train grpo tasks=~nosuchuser/x.jsonl", "tasks.path: got '~nosuchuser/x.jsonl', which does not exist"),
    ("train dpo data=~nosuchuser/x.jsonl", "data.path: got '~nosuchuser/x.jsonl', which does not exist"),
    ("train dpo data=smapled", "data.kind: got 'smapled' (did you mean 'sampled'?)"),
    ("train dpo data=pairs.josnl", "which does not exist (did you mean 'pairs.jsonl'?)"),
    ("train dpo data=[pairs.jsonl,good.jsonl]", "allowed: one file, or a pattern for several, such as 'pairs/*.jsonl'"),
    ("train dpo data=pairs/*.jsonl", "data.path: got 'pairs/*.jsonl', a pattern that no file matches"),
    ("train dpo data=pairs.jsonl data.split=test", "data.split: got 'test', but 'pairs.jsonl' is a file, which has no"),
    ("train dpo data=pairs.jsonl data.subset=x", "data.subset: got 'x', but 'pairs.jsonl' is a file, which has no"),
    (
        "train grpo tasks=good.jsonl tasks.subset=main",
        "tasks.subset: got 'main', but 'good.jsonl' is a file, which has",
    ),
    ("train dpo data=data.txt", "data.path: got 'data.txt', a file named .txt; allowed: .jsonl, .json, .parquet, .csv"),
    ("train grpo evaluate.tasks=god.jsonl", "evaluate.tasks.path: got 'god.jsonl', which does not exist"),
    (
        "train grpo tasks=good.jsonl evaluate.tasks=good.jsonl evaluate.tasks.columns.prompt=asked",
        "evaluate.tasks.columns.prompt: line 1 of 'good.jsonl' has no column 'asked'",
    ),
    ("train grpo tasks=good.josnl", "tasks.path: got 'good.josnl', which does not exist (did you mean 'good.jsonl'?)"),
    ("grade data.txt --reward math", "file: got 'data.txt', a file named .txt; allowed: .jsonl, .json, .parquet, .csv"),
    ("grade gone.jsonl --reward math", "file: got 'gone.jsonl', which does not exist"),
    ("grade good.jsonl", "reward: got none; allowed: a kind, FILE.py:FUNCTION, or a recipe"),
    ("grade good.jsonl --reward mth", "reward: got 'mth' (did you mean 'math'?)"),
    ("search base --strategy bestofn", "strategy: got 'bestofn' (did you mean 'best-of-n'?)"),
    ("search base --sizes a", "--sizes: got 'a'; allowed: numbers with commas between them"),
    ("compare grpo gpro", "recipe: got 'gpro' (did you mean 'grpo', 'gspo', 'ghpo'?)"),
    ("recipes gpro", "recipes: got 'gpro' (did you mean 'grpo'?); allowed: words that a recipe has, show NAME"),
    ("components credits", "slot: got 'credits' (did you mean 'credit'?)"),
    ("view runs/none", "run: runs/none is not a run's folder"),
    ("same a b", "run: a is not a run's folder; allowed: one that lyceum train wrote"),
    ("same . .", "run: . has no digests; allowed: a run that was trained with digests=true"),
    ("hints good.jsonl --output h.jsonl", "model: got none; allowed: a local model, or an endpoint and its model"),
    ("train grpo --on h100", "--on: got 'h100' without --dry-run; allowed: both, or neither"),
    ("train grpo --dry-run --on h10", "--on: got 'h10'; allowed: t4, l4,"),
    ("train grpo keep.every=2 keep.models=adapter", "keep.models: got 'adapter', but nothing is trained by adapters"),
    ("train grpo keep.every=2 keep.models=lora", "keep.models: got 'lora'; allowed: 'merged' or 'adapter'"),
    ("train grpo keep_checkpoints=0", "keep_checkpoints: got 0; allowed: 1 or more"),
    ("train grpo mask_truncated=2", "mask_truncated: got 2; allowed: true or false"),
    ("train sft mask_truncated=true", "mask_truncated: unknown key"),
    ("convert README.md", "convert: got README.md; allowed: a .py script with GRPOTrainer, RLOOTrainer, DPOTrainer or"),
    ("convert my_reward.py", "convert: my_reward.py has none; allowed: a script with GRPOConfig"),
    (
        "doctor nomodel",
        "model.path: got 'nomodel'; allowed: base, base-stories, scratch, scratch-pictures, scratch-stories, "
        "scratch-worlds, scratch-archive, a folder",
    ),
]
SMALL = ["steps=1", "tasks_per_step=2", "evaluate.n=2", "evaluate.samples=2", "evaluate.k=[1]", "model=scratch"]
CASES = [(["train", "grpo", *SMALL, key], said) for key, said in (*KEYS, *NUMBERS, *PARTS, *FUNCTIONS, *DATA, *MODELS)]
CASES += [(["train", "grpo", *SMALL, "tasks=good.jsonl", key], said) for key, said in COLUMNS]
CASES += [(command.split(), said) for command, said in COMMANDS]


@pytest.mark.parametrize(
    ("argv", "said"), CASES, ids=[" ".join(argv).replace(" ".join(SMALL), "...") for argv, _ in CASES]
)
def test_a_wrong_turn_is_answered_by_what_cures_it(argv, said, capsys):
    began = time.process_time()
    code = main(argv)
    seconds = time.process_time() - began
    out, err = capsys.readouterr()
    answer = " ".join((out + err).split()) + " "
    assert code == 2
    assert said in answer
    assert "Traceback" not in answer.replace("Traceback (most recent call last): File", "", 1)  # of the user's own file
    assert seconds < SECONDS
    assert not out  # no plan of a run that will not be
    assert [path for path in Path.cwd().rglob("runs/**/*") if path.is_file()] == [Path.cwd() / "runs/done/recipe.yaml"]


def test_a_resumed_run_of_another_recipe_is_told_every_key_before_the_tasks_are_read(monkeypatch, capsys):
    Path("runs/old").mkdir(parents=True)
    Path("runs/old/summary.json").write_text("{}")
    Path("runs/old/recipe.yaml").write_text(write_yaml(load_recipe("grpo", [*SMALL, "name=old"]).resolved()))
    monkeypatch.setattr("lyceum.training.train.check", lambda _: pytest.fail("tasks and tokenizer were read"))
    others = "seed=1 tasks_per_step=3 learner.lr=1 objective.clip_low=0.1 objective.clip_high=0.3 learner.eps=1e-6"
    changed = [*SMALL, *others.split(), "credit=leave-one-out", "threads=1"]
    assert main(["train", "grpo", *changed, "--name", "old", "--resume"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == len(others.split()) + 2  # a kind, and not its settings; the last says what to do
    assert told[0] == "error: seed: got 1, but runs/old began with 0"
    assert "       stages.0.credit.kind: got 'leave-one-out', but runs/old began with 'group'" in told


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("train grpo --name done --resume steps=7", "its recipe (lyceum train runs/done/recipe.yaml --resume)"),
        ("train dpo data=good.jsonl", "data.path: line 1 of 'good.jsonl': the row has no completion"),
    ],
)
def test_what_no_tokenizer_has_to_say_is_said_before_its_import(argv, said, capsys, monkeypatch):
    def loaded(*args):
        pytest.fail("a tokenizer was loaded")

    monkeypatch.setattr("lyceum.training.train.load_tokenizer", loaded)
    Path("runs/done/recipe.yaml").write_text(write_yaml(load_recipe("grpo", ["name=done"]).resolved()))
    Path("runs/done/summary.json").write_text("{}")
    assert main(argv.split()) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_of_a_reward_that_is_given_twice_the_first_is_not_dropped_silently(caplog):
    assert [part.kind for part in load_recipe("grpo", ["reward=math", "reward=number"]).reward] == ["number"]
    assert "reward: given more than once, and only the last counts; for several, reward=[A,B]" in caplog.text


def test_there_are_fifty_and_more():
    assert len(CASES) > 100


def test_parts_of_the_recipes_own_reward_that_a_function_replaces_are_told():
    from lyceum.cli.train import replaced_parts

    assert replaced_parts("grpo", ["reward=my_reward.py:score"]) == replaced_parts("dapo", ["steps=2"]) == ""
    told = replaced_parts("dapo", ["reward=my_reward.py:score"])
    assert told.startswith("of the recipe's own reward, overlong is left out; to keep it: ")
    [typed] = shlex.split(told.partition("to keep it: ")[2])
    recipe = load_recipe("dapo", [typed])
    assert [part.kind for part in recipe.reward] == ["function", "overlong"]
    assert recipe.reward[1] == load_recipe("dapo").reward[1]
    assert replaced_parts("dapo", [typed]) == ""
