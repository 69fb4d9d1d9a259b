"""Agents behind the endpoint: histories of real templates, learning curves, cost, idle engines, rendering, kills.

    python benchmarks/agents.py --out benchmarks/results/agents.json [--parts histories learn ...] [--seeds 3]

``histories`` reads the chat templates in the wheel of TRL 1.16 (fetched once into ``.cache/``), and those in a folder
given by ``--templates``. The result is written after each case, and a further call goes on where the file ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from statistics import median
from typing import Any, Literal
from zipfile import ZipFile

import jinja2
from common import CACHE, arguments, machine, say, table, write

PARTS = ("histories", "learn", "cost", "idle", "rendering", "kills")
WHEEL = "trl==1.16.0"
DEFINITIONS = {
    "histories": "three turns of a random model over each template, by the rollout turns and by an openai client: "
    "trained and sampled tokens, leaves per episode, and the largest difference between the log-probabilities that "
    "were sampled with and the learner's (nats, float32)",
    "learn": "the recipe calculator, its calculator asked by turns or by an agent with openai's client: accuracy in "
    "training per step, and held-out accuracy; difference: agent minus turns in windows of steps, over seeds (95 %)",
    "cost": "an agent of 20 turns that resends its history: tokens computed and processor seconds of an update, as "
    "one tree and with one row for each request",
    "idle": "256 trajectories whose tools take 0 to 2 s: share of the seconds in which the engine does not "
    "compute; seconds are of the processor and of waiting for tools, as on a machine that does nothing else; "
    "client_seconds and endpoint_seconds: of the processor, in openai's client and in answering what it sent; "
    "idle_by_client: the idle share if nothing but the engine and that client took any time",
    "rendering": "episodes of 100 turns: share of the same seconds in the chat template, in the tokenizer, and in "
    "finding where a request goes on",
    "kills": "runs ended by SIGKILL within an episode and resumed: digests against those of a run that nothing "
    "disturbed, and groups of each step that were not trained once, with all their episodes",
}


def main() -> None:
    parser = arguments("Agents behind the endpoint.")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=24, help="of each run of learn")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--templates", type=Path, help="folder with further NAME.jinja")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    result: dict[str, Any] = {}
    if options.out is not None and options.out.exists():
        result = json.loads(options.out.read_text())
    result |= {"definitions": DEFINITIONS}
    for part in options.parts:
        for _ in globals()[part](options, result.setdefault(part, {})):
            result["machine"] = machine("trl", "openai")
            write(result, options.out)
    show(result)


# Histories -----------------------------------------------------------------------------------------------------------

TOOL = {
    "type": "function",
    "function": {
        "name": "times",
        "description": "Multiply.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}
CONTROLS = re.compile(r"<\|?/?[A-Za-z_▁｜][\w▁｜]*\|?>|\[/?[A-Z_]+\]|\[gMASK\]|</s>|<｜[^｜<>]+｜>")
SOFT = re.compile(r"</?(?:think|tool_call|tool_response|tools?|parameter|function)\b.*>")
WITHOUT_THINKING = "{%- set enable_thinking = false -%}"
FIRST = ("smollm2", "qwen2_5", "qwen3", "llama3_1", "llama3_2", "gemma3", "phi3", "glm4moe", "gptoss", "mistral")
"""Beginnings of the names of those that come first."""


def histories(options: Any, found: dict[str, Any]) -> Iterator[None]:
    templates = {
        file.stem: file.read_text() for file in sorted((options.templates or Path("/nowhere")).glob("*.jinja"))
    }
    if not options.templates or not options.quick:
        with ZipFile(wheel()) as archive:
            names = [n for n in archive.namelist() if n.endswith(".jinja") and not n.endswith("_training.jinja")]
            templates |= {Path(name).stem: archive.read(name).decode() for name in names}
    templates |= {
        f"{name} without thinking": WITHOUT_THINKING + text
        for name, text in templates.items()
        if "enable_thinking" in text
    }
    for name in sorted(templates, key=lambda name: (not name.startswith(FIRST), name)):
        if name in found:
            continue
        found[name] = {}
        for role in ("user", "tool"):
            for way in ("turns", "agent"):
                found[name][f"{role}, {way}"] = of = history(templates[name], role, way)
                say(f"{name}, {role}, {way}: {of}")
        yield


def wheel() -> Path:
    """TRL's wheel, of which only the templates are read."""
    if not (have := list(CACHE.glob("trl-*.whl"))):
        CACHE.mkdir(exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(CACHE), WHEEL]
        subprocess.run(pip, check=True)
        have = list(CACHE.glob("trl-*.whl"))
    return have[0]


def history(template: str, role: str, way: str) -> dict[str, Any]:
    """One template's trees, or the line by which it is refused."""
    from lyceum.core.forest import build_forest
    from lyceum.core.types import Origin
    from lyceum.learner.local import LocalConfig
    from lyceum.models.renderer import Renderer
    from lyceum.utils.errors import RecipeError

    try:
        policy = policy_with(template)
    except jinja2.TemplateError as error:  # one that reads pictures alone, for instance
        return {"refused": f"the template cannot be used with texts: {error}"}
    tools = (TOOL,) if role == "tool" else ()
    try:
        if role == "tool":
            Renderer(policy.tokenizer).check_results(tools)
        trees = grown(policy, role, tools, way)
    except RecipeError as error:
        return {"refused": error.lines[0][:300]}
    nodes = [node for tree in trees for node in tree.nodes() if node.origin is Origin.POLICY]
    leaves = [leaf for tree in trees for leaf in tree.trajectories]
    if any(leaf.grade is None or leaf.grade.outcome is None for leaf in leaves):
        return {"refused": next(leaf.grade.reason for leaf in leaves if leaf.grade and leaf.grade.reason)[:300]}
    forest = build_forest(trees, temperature=0.8)
    rows = forest.rows()
    trained = rows.index[forest.trainable(rows)].unique()
    learner = LocalConfig().build(policy, total_steps=1, needs=frozenset({"old_logprob"}))
    learned = learner.annotate(forest, frozenset({"old_logprob"})).columns["old_logprob"]
    drawn = forest.origin == int(Origin.POLICY)
    seen = sum("24, twenty-four" in node.text for leaf in leaves for node in leaf.path()[1:])
    answers = sum(node.origin is not Origin.POLICY for leaf in leaves for node in leaf.path()[1:])
    return {
        "sampled": sum(len(node.tokens) for node in nodes),
        "in_forest": int(drawn.sum()),
        "trained": len(trained),
        "turns": round(1 + answers / len(leaves), 2),
        "answers_shown": [seen, answers],
        "leaves": round(sum(len(leaf.episode) for leaf in leaves) / len(leaves), 2),
        "gap": float((learned - forest.behaviour_logprob)[drawn].abs().max()),
    }


def policy_with(template: str, *, width: int = 32, layers: int = 2, context: int = 4096, spread: float = 0.15) -> Any:
    """A random model over bytes, with a template and the control tokens that it writes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from lyceum.models.policy import Policy
    from lyceum.models.scratch import build_scratch

    letters = {letter: i for i, letter in enumerate(["<pad>", "<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    core = Tokenizer(models.BPE(letters, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    found = sorted({*CONTROLS.findall(template)})
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", pad_token="<pad>", eos_token="<eos>", clean_up_tokenization_spaces=False
    )
    tokenizer.add_tokens([token for token in found if not SOFT.fullmatch(token)], special_tokens=True)
    tokenizer.add_tokens([token for token in found if SOFT.fullmatch(token)])
    tokenizer.chat_template = template
    tokenizer.eos_token = ending(tokenizer) or "<eos>"
    model, _ = build_scratch(
        width=width, layers=layers, heads=4, feed_forward=2 * width, context=context, spread=spread, tokenizer=tokenizer
    )
    for config in (model.config, model.generation_config):
        setattr(config, "eos_token_id", tokenizer.eos_token_id)  # noqa: B010
    return Policy(model, tokenizer)


def ending(tokenizer: Any) -> str:
    """The control token that the template writes after an answer."""
    said = [
        {"role": "user", "content": "A"},
        {"role": "assistant", "content": "nightingale"},
        {"role": "user", "content": "B"},
    ]
    after = tokenizer.apply_chat_template(said, tokenize=False).rpartition("nightingale")[2]
    special = [token for token in CONTROLS.findall(after) if token in tokenizer.all_special_tokens]
    known = [token for token in CONTROLS.findall(after) if token in tokenizer.get_added_vocab()]
    return next(iter(special or known), "")


def grown(policy: Any, role: str, tools: Sequence[Any], way: str) -> list[Any]:
    """Trees of two tasks, three episodes each, in up to three turns."""
    from lyceum.core.types import Grade, Sampling, Task
    from lyceum.engine.embedded import EmbeddedEngine
    from lyceum.reward.base import allow_code
    from lyceum.rollout.agent import Agent
    from lyceum.rollout.turns import Turns
    from lyceum.runtime.in_process import InProcess
    from lyceum.utils.aio import run_async

    async def graded(task: Any, leaves: Sequence[Any], context: Any) -> list[Any]:
        return [Grade(float(len(leaf.completion) % 2)) for leaf in leaves]

    async def agent(client: Any, model: str, messages: list[Any]) -> None:
        for turn in range(3):
            reply = await client.chat.completions.create(
                model=model, messages=messages, max_tokens=13, **({"tools": list(tools)} if tools else {})
            )
            said = reply.choices[0].message
            if turn < 2:
                result = {"role": role, "content": "24, twenty-four"}
                call = {"name": "times", "tool_call_id": said.tool_calls[0].id if said.tool_calls else "call00000"}
                messages += [said, result | (call if role == "tool" else {})]

    stops = tuple(range(5, len(policy.tokenizer), 6))
    sampling = Sampling(max_completion_tokens=39, temperature=0.8, stop_token_ids=stops)
    told = told_environment()(role=role, max_turns=3)
    rollout: Any = Turns(samples=3, environment=told, sampling=sampling)
    if way == "agent":
        rollout = Agent(function=agent, samples=3, sampling=sampling)  # pyright: ignore[reportArgumentType]
    runtime = InProcess(policy, EmbeddedEngine(policy), graded, seed=3, tools=tools)
    questions = ("What is 8*3?", "And 37+8?")
    tasks = [Task(f"t{i}", ({"role": "user", "content": text},)) for i, text in enumerate(questions)]
    with allow_code():
        built = rollout.build()
    return run_async(runtime.run(tasks, built, key=0))


def told_environment() -> Any:
    """Settings of an environment that answers every turn with the same words, perhaps after some time."""
    from lyceum.core.settings import EnvironmentSettings
    from lyceum.core.types import Observation

    if _told:
        return _told[0]

    class Told(EnvironmentSettings):
        kind: Literal["told"] = "told"
        says: str = "24, twenty-four"
        role: str = "user"
        slow: bool = False

        def build(self) -> Any:
            return self

        def reset(self, task: Any) -> int:
            return 0

        def replay(self, task: Any, exchanges: Sequence[Any]) -> int:
            return len(exchanges)

        async def step(self, state: int, turn: Any, said: str, context: Any) -> Any:
            if self.slow:
                await asyncio.sleep(delay(context.seed("delay", turn.address)))
            more = {"name": "times", "tool_call_id": "call00000"} if self.role == "tool" else {}
            return Observation(state + 1, ({"role": self.role, "content": self.says, **more},), calls=1)

    _told.append(Told)
    return Told


_told: list[Any] = []


def delay(seed: int) -> float:
    """Seconds that a tool takes: few take long, none longer than two."""
    return min(2.0, random.Random(seed).paretovariate(1.2) * 0.03)


# Learning ------------------------------------------------------------------------------------------------------------

AGENT = '''
"""The calculator of the recipe, asked by an agent with OpenAI's client."""

import openai

from lyceum.environment.calculator import Calculator
from lyceum.utils.arithmetic import OF_EXPRESSIONS

CALCULATOR = Calculator(modulus=100).build()


async def solve(client, model, messages):
    line, said = "", ""
    while True:
        try:
            reply = await client.chat.completions.create(model=model, messages=messages, stop="=", logprobs=True)
        except openai.RateLimitError:
            return said
        choice = reply.choices[0]
        content = choice.message.content or ""
        line, said = line + content, said + content
        if choice.finish_reason == "length" or choice.logprobs.content[-1].token != "=":
            return said
        line, said = line + "=", said + "="
        query = line.rpartition("\\n")[2][:-1].rpartition("=")[2].strip()
        result = CALCULATOR.compute(query[len(query.rstrip(OF_EXPRESSIONS)) :])
        line += result
        messages += [{"role": "assistant", "content": content}, {"role": "tool", "content": result}]
'''
# The answer stands within the model's own text, as the environment writes it: nothing ends a message.
TEMPLATE = "{%- for m in messages %}{{ m.content }}{% endfor -%}"
ARMS = ("turns", "agent")


def learn(options: Any, found: dict[str, Any]) -> Iterator[None]:
    from lyceum.recipe.schema import load_recipe
    from lyceum.training.train import train

    steps, seeds = (4, 1) if options.quick else (options.steps, options.seeds)
    runs = found.setdefault("runs", {})
    for seed in range(seeds):
        for arm in ARMS:
            if f"{arm}-{seed}" in runs:
                continue
            with tempfile.TemporaryDirectory() as work:
                Path(work, "calculator_agent.py").write_text(AGENT)
                Path(work, "plain.jinja").write_text(TEMPLATE)
                limits = "samples: 8, sampling: {max_completion_tokens: 80}"
                function = f"{{kind: agent, function: {work}/calculator_agent.py:solve, max_requests: 16, {limits}}}"
                keys = [
                    *(f"seed={seed}", f"steps={steps}", "tasks_per_step=8", f"threads={options.threads}", "track=[]"),
                    *(f"model.chat_template={work}/plain.jinja", f"output={work}", f"name={arm}", "checkpoint_every=0"),
                    *("evaluate.n=200", "evaluate.samples=2", "evaluate.k=[1]", "evaluate.greedy=false"),
                    *([f"rollout={function}"] if arm == "agent" else []),
                ]
                began = time.perf_counter()
                run = train(load_recipe("calculator", keys))
                summary = json.loads((run / "summary.json").read_text())
                lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            curve = [line["correct/mean"] for line in lines if "correct/mean" in line]
            runs[f"{arm}-{seed}"] = {
                "arm": arm,
                "seed": seed,
                "curve": [round(value, 4) for value in curve],
                "before": summary["before"]["overall"]["mean"],
                "after": summary["after"]["overall"]["mean"],
                "seconds": round(time.perf_counter() - began, 1),
            }
            say(f"{arm}, seed {seed}: {runs[f'{arm}-{seed}']['before']:.3f} -> {runs[f'{arm}-{seed}']['after']:.3f}")
            found["difference"] = differences(runs, steps)
            yield


def differences(runs: Mapping[str, Any], steps: int) -> list[dict[str, Any]]:
    """Agent minus turns, in quarters of the steps and held out, over the seeds that both have."""
    from lyceum.evaluation.intervals import mean_over_seeds

    seeds = [seed for seed in range(len(runs)) if all(f"{arm}-{seed}" in runs for arm in ARMS)]
    if len(seeds) < 2:
        return []
    quarter = max(1, steps // 4)
    windows = [(at, at + quarter) for at in range(0, steps, quarter)]
    rows: list[dict[str, Any]] = []
    for name, of in (
        *((f"steps {a + 1} to {b}", lambda run, a=a, b=b: sum(run["curve"][a:b]) / (b - a)) for a, b in windows),
        ("held out, after", lambda run: run["after"]),
    ):
        pairs = [[of(runs[f"{arm}-{seed}"]) for arm in ARMS] for seed in seeds]
        interval = mean_over_seeds([agent - turns for turns, agent in pairs])
        turns, agent = (sum(of_arm) / len(seeds) for of_arm in zip(*pairs, strict=True))
        rows.append(
            {"what": name, "turns": turns, "agent": agent, "difference": interval.to_json(), "seeds": len(seeds)}
        )
    return rows


# Cost ----------------------------------------------------------------------------------------------------------------


async def all_right(task: Any, leaves: Sequence[Any], context: Any) -> list[Any]:
    from lyceum.core.types import Grade

    return [Grade(float(leaf.address % 2)) for leaf in leaves]


def base_policy() -> Any:
    """The small base, none of whose replies ends by itself."""
    from lyceum.models.load import ModelSettings, load_policy

    policy = load_policy(ModelSettings(device="cpu"))
    policy.stop_ids = frozenset()
    return policy


def resends(turns: int, tokens: int, says: str, *, slow: bool = False, plain: bool = False) -> Any:
    """An agent of so many requests of so many tokens.

    Args:
        plain: it writes its requests and reads the replies itself, without what openai's client does to both.
    """

    async def agent(client: Any, model: str, messages: list[Any], seed: int) -> float:
        for turn in range(turns):
            if plain:
                body = json.dumps({"messages": messages, "max_tokens": tokens})
                headers = {"authorization": f"Bearer {client.api_key}"}
                reply = await client._client.post(f"{client.base_url}chat/completions", content=body, headers=headers)
                said = reply.json()["choices"][0]["message"]
            else:
                made = await client.chat.completions.create(model=model, messages=messages, max_tokens=tokens)
                said = made.choices[0].message
            if slow and turn < turns - 1:
                await asyncio.sleep(delay(seed + turn))
            messages += [said, {"role": "user", "content": says}]
        return float(seed % 2)

    return agent


def runtime_of(policy: Any, engine: Any) -> Any:
    from lyceum.runtime.in_process import InProcess

    return InProcess(policy, engine, all_right, seed=3)


def episodes(policy: Any, engine: Any, rollout: Any, tasks: int) -> tuple[list[Any], float]:
    """Trees, and the seconds that they would have taken alone on the machine: of the processor and of waiting."""
    from lyceum.core.types import Task
    from lyceum.engine.embedded import EmbeddedEngine
    from lyceum.reward.base import allow_code
    from lyceum.utils.aio import IdleLoop, run_async

    class ProcessorLoop(IdleLoop):
        """Time passes as the processor computes; where all wait, it jumps to the first who goes on."""

        def __init__(self) -> None:
            self.skipped = 0.0
            super().__init__()
            select = self._idle.select

            def skipping(timeout: float | None = None) -> Any:
                if timeout and not self._idle.waiting:
                    self.skipped, timeout = self.skipped + timeout, 0
                return select(timeout)

            self._idle.select = skipping

        def time(self) -> float:
            return time.process_time() + self.skipped

    asked = [f"{i % 89 + 10}+{7 * i % 89 + 10}=" for i in range(tasks)]
    given = [Task(f"t{i}", ({"role": "user", "content": text},)) for i, text in enumerate(asked)]
    with allow_code():
        built = rollout.build()
        # What the first request imports, in a thread, would look like waiting.
        first = agent_rollout(resends(1, 1, ""), 1, 1).build()
    run_async(runtime_of(policy, EmbeddedEngine(policy)).run(given[:1], first, key=0))
    with asyncio.Runner(loop_factory=ProcessorLoop) as runner:
        loop = runner.get_loop()
        began = loop.time()
        trees = runner.run(runtime_of(policy, engine).run(given, built, key=0))
        return trees, loop.time() - began


def agent_rollout(function: Any, samples: int, tokens: int, **more: Any) -> Any:
    from lyceum.core.types import Sampling
    from lyceum.rollout.agent import Agent

    sampling = Sampling(max_completion_tokens=tokens)
    return Agent(function=function, samples=samples, sampling=sampling, max_requests=1000, **more)


def cost(options: Any, found: dict[str, Any]) -> Iterator[None]:
    from lyceum.core.forest import build_forest
    from lyceum.engine.embedded import EmbeddedEngine

    turns, tokens, tasks, samples = (4, 8, 2, 2) if options.quick else (20, 24, 2, 4)
    if found.get("turns") == turns:
        return
    policy = base_policy()
    engine = EmbeddedEngine(policy)
    trees, seconds = episodes(
        policy, engine, agent_rollout(resends(turns, tokens, "12+34="), samples, turns * tokens), tasks
    )
    requests = [node for tree in trees for node in tree.nodes() if node.origin.name == "POLICY"]
    apart = one_row_a_request(trees)
    forests = {"tree": build_forest(trees), "a row each": build_forest(apart)}
    steps = {name: update(policy, forest, "tree" if name == "tree" else "rows") for name, forest in forests.items()}
    together, each = in_turns(*steps.values(), pairs=1 if options.quick else 2)
    found |= {
        "turns": turns,
        "episodes": tasks * samples,
        "requests": len(requests),
        "sampled": sum(len(node.tokens) for node in requests),
        "computed": engine.tokens_computed,
        "computed_a_row_each": sum(len(node.path_tokens()) for node in requests),
        "forward": forests["tree"].n_tokens,
        "forward_a_row_each": int(forests["a row each"].rows().index.numel()),
        "trained": {name: int(of.trainable(of.rows()).sum()) for name, of in forests.items()},
        "sampling_seconds": round(seconds, 2),
        "update_seconds": {"tree": round(median(together), 3), "a row each": round(median(each), 3)},
        "times": round(median(b / a for a, b in zip(together, each, strict=True)), 2),
    }
    say(f"cost: one row a request computes {found['computed_a_row_each'] / found['computed']:.1f} times the tokens, "
        f"its update takes {found['times']:.1f} times as long")  # fmt: skip
    yield


def in_turns(*calls: Callable[[], Any], pairs: int) -> list[list[float]]:
    """Processor seconds of each call, called in turns."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(pairs):
        for call, seconds in zip(calls, found, strict=True):
            began = time.process_time()
            call()
            seconds.append(time.process_time() - began)
    return found


def one_row_a_request(trees: Sequence[Any]) -> list[Any]:
    """Each request as a tree of its own: its whole prompt, and its reply."""
    from lyceum.core.tree import Node, Tree
    from lyceum.core.types import Continuation, Grade

    found: list[Any] = []
    for tree in trees:
        for node in [node for node in tree.nodes() if node.origin.name == "POLICY"]:
            root = Node.prompt(node.parent.path_tokens(), "")
            drawn = Continuation(node.tokens, node.model_logprob, node.behaviour_logprob, node.version, "stop")
            leaf = root.add_drawn(drawn)
            leaf.grade = Grade(1.0)
            found.append(Tree(tree.task, [root], chosen=[leaf]))
    return found


def update(policy: Any, forest: Any, layout: Literal["tree", "rows"]) -> Callable[[], Any]:
    from lyceum.core.types import Credited
    from lyceum.learner.local import LocalConfig
    from lyceum.objective.ppo_clip import PPOClip

    objective = PPOClip.model_validate({}).build()
    settings = LocalConfig(lr=1e-30, max_grad_norm=1e9, layout=layout)  # moves nothing: all start from the same weights
    learner = settings.build(policy, total_steps=1 << 30, needs=frozenset())
    rows = forest.rows()
    credited = Credited(forest.trainable(rows).float())
    return lambda: learner.step(forest, credited, objective)


# Idle engine, and rendering -----------------------------------------------------------------------------------------


@contextmanager
def timed(*methods: tuple[type, str]) -> Iterator[dict[str, float]]:
    """Processor seconds within any of some methods; what they call of each other counts once."""
    spent = {"seconds": 0.0, "depth": 0}
    originals = [getattr(owner, name) for owner, name in methods]

    def counted(method: Any) -> Any:
        @wraps(method)
        def measured(*args: Any, **how: Any) -> Any:
            began, spent["depth"] = time.process_time(), spent["depth"] + 1
            try:
                return method(*args, **how)
            finally:
                spent["depth"] -= 1
                if not spent["depth"]:
                    spent["seconds"] += time.process_time() - began

        return measured

    for (owner, name), method in zip(methods, originals, strict=True):
        setattr(owner, name, counted(method))
    try:
        yield spent
    finally:
        for (owner, name), method in zip(methods, originals, strict=True):
            setattr(owner, name, method)


class _Driven:
    """An awaitable that adds the processor seconds of a coroutine's own steps to ``spent[name]``, and not what runs
    while it waits."""

    def __init__(self, coroutine: Any, spent: dict[str, float], name: str) -> None:
        self.coroutine, self.spent, self.name = coroutine, spent, name

    def __await__(self) -> Any:
        step, given = self.coroutine.send, None
        while True:
            began = time.process_time()
            try:
                waits_for = step(given)
            except StopIteration as end:
                return end.value
            finally:
                self.spent[self.name] += time.process_time() - began
            try:
                step, given = self.coroutine.send, (yield waits_for)
            except BaseException as error:
                step, given = self.coroutine.throw, error


@contextmanager
def driven(**methods: tuple[type, str]) -> Iterator[dict[str, float]]:
    """Processor seconds of async methods, by name; one that awaits another includes it."""
    spent = dict.fromkeys(methods, 0.0)
    originals = {name: getattr(owner, method) for name, (owner, method) in methods.items()}

    def counted(name: str) -> Any:
        async def measured(*args: Any, **how: Any) -> Any:
            return await _Driven(originals[name](*args, **how), spent, name)

        return measured

    for name, (owner, method) in methods.items():
        setattr(owner, method, counted(name))
    try:
        yield spent
    finally:
        for name, (owner, method) in methods.items():
            setattr(owner, method, originals[name])


def idle(options: Any, found: dict[str, Any]) -> Iterator[None]:
    from openai.resources.chat.completions import AsyncCompletions

    from lyceum.core.types import Sampling
    from lyceum.engine.embedded import EmbeddedEngine
    from lyceum.rollout.turns import Turns
    from lyceum.runtime.endpoint import ChatEndpoint

    tasks, turns, tokens = (2, 2, 4) if options.quick else (32, 6, 16)
    policy = base_policy()
    told = told_environment()(slow=True, says="12+34=", max_turns=turns)
    for way in ("turns", "agent", "agent without openai"):
        for waits in (True, False):
            name = f"{way}, {'waits' if waits else 'goes on'}"
            if name in found:
                continue
            if way == "turns":
                ends = tuple(range(3, 99, tokens // 2))
                sampling = Sampling(max_completion_tokens=turns * tokens, stop_token_ids=ends)
                rollout: Any = Turns(samples=8, environment=told, sampling=sampling, waits=waits)
            else:
                function = resends(turns, tokens // 2, "12+34=", slow=True, plain=way != "agent")
                rollout = agent_rollout(function, 8, turns * tokens, waits=waits)
            engine = EmbeddedEngine(policy)
            asked = {"client": (AsyncCompletions, "create"), "endpoint": (ChatEndpoint, "respond")}
            with timed((EmbeddedEngine, "_step"), (EmbeddedEngine, "_admit")) as busy, driven(**asked) as spent:
                trees, wall = episodes(policy, engine, rollout, tasks)
            leaves = [leaf for tree in trees for leaf in tree.trajectories]
            found[name] = {
                "trajectories": len(leaves),
                "seconds": round(wall, 2),
                "busy_seconds": round(busy["seconds"], 2),
                "idle": round(1 - busy["seconds"] / wall, 3),
                "steps": engine.occupancy.steps,
                "drawn": engine.occupancy.drawn,
                "turns": round(sum(len(leaf.path()) // 2 for leaf in leaves) / len(leaves), 2),
            }
            if way == "agent":  # the others do not use openai's client
                client = spent["client"] - spent["endpoint"]
                found[name] |= {
                    "client_seconds": round(client, 2),
                    "endpoint_seconds": round(spent["endpoint"], 2),
                    "idle_by_client": round(1 - busy["seconds"] / (busy["seconds"] + client), 3),
                }
            say(f"idle, {name}: {found[name]['idle']:.2f} of {wall:.1f} s")
            yield


def rendering(options: Any, found: dict[str, Any]) -> Iterator[None]:
    from lyceum.core.types import Sampling
    from lyceum.engine.embedded import EmbeddedEngine
    from lyceum.models.renderer import Renderer
    from lyceum.rollout.turns import Turns
    from lyceum.runtime.conversations import Conversations

    turns, tokens, samples = (5, 8, 2) if options.quick else (100, 24, 8)
    with ZipFile(wheel()) as archive:
        template = next(n for n in archive.namelist() if n.endswith("/qwen3.jinja"))
        policy = policy_with(archive.read(template).decode(), width=128, layers=4, context=16384, spread=0.06)
    policy.stop_ids = frozenset()
    methods = [(Renderer, name) for name in ("render", "follow", "standing", "spoken", "decode", "within")]
    methods += [(Conversations, name) for name in ("place", "node", "add")]
    told = told_environment()(says="The result is 12.", max_turns=turns)
    sampling = Sampling(max_completion_tokens=turns * tokens, stop_token_ids=tuple(range(3, 200, tokens // 2)))
    for way in ("turns", "agent"):
        if way in found:
            continue
        rollout: Any = Turns(samples=samples, environment=told, sampling=sampling)
        if way == "agent":
            rollout = agent_rollout(resends(turns, tokens // 2, "The result is 12."), samples, turns * tokens)
        engine = EmbeddedEngine(policy)
        with timed(*methods) as spent:
            trees, wall = episodes(policy, engine, rollout, 1)
        leaves = [leaf for tree in trees for leaf in tree.trajectories]
        found[way] = {
            "episodes": len(leaves),
            "turns": round(sum(len(leaf.path()) // 2 for leaf in leaves) / len(leaves), 1),
            "tokens": round(sum(len(leaf.path_tokens()) for leaf in leaves) / len(leaves)),
            "seconds": round(wall, 2),
            "rendering": round(spent["seconds"] / wall, 4),
        }
        say(f"rendering, {way}: {found[way]['rendering']:.3f} of {wall:.1f} s")
        yield


# Kills ---------------------------------------------------------------------------------------------------------------

KILLED_AGENT = """
import asyncio
import os
import signal
from pathlib import Path

asked = 0


async def solve(client, model, messages, seed):
    global asked
    for turn in range(3):
        reply = await client.chat.completions.create(model=model, messages=messages, max_tokens=6)
        asked += 1
        mark = Path(os.environ["KILLED_MARK"])
        if asked == int(os.environ["KILLED_AT"]) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(SLOW * (seed % 7) * 0.003)
        said = reply.choices[0].message
        messages += [said, {"role": "user", "content": "1+1="}]
    return len(said.content or "") % 2
"""
RUN = {"steps": 4, "tasks_per_step": 3, "samples": 4, "requests": 4 * 3 * 4 * 3}


def kills(options: Any, found: dict[str, Any]) -> Iterator[None]:
    from lyceum.analysis.differences import first_difference, read_digests

    wanted = 2 if options.quick else options.kills
    work = Path(tempfile.mkdtemp(prefix="agents-kills-"))
    whole = None
    rows = found.setdefault("rows", [])
    for number in range(len(rows), wanted):
        waits = number % 2 == 0 or number % 4 == 1  # one in four goes on
        if whole is None:
            whole, _ = killed(work, "undisturbed", 0, waits=True)
        at = random.Random(number).randrange(1, RUN["requests"])
        name = f"run-{number}"
        folder, times = killed(work, name, at, waits=waits)
        summary = json.loads((folder / "summary.json").read_text())
        difference = first_difference(read_digests(whole), read_digests(folder))
        rows.append(
            {
                "waits": waits,
                "at_request": at,
                "kills": times,
                "says_by_clock": summary["by_clock"],
                "same_bits": difference is None,
                "lost": lost(folder),
            }
        )
        say(f"{number + 1}/{wanted}: {rows[-1]}")
        found["total"] = {
            kind: {
                "runs": len(of),
                "kills": sum(row["kills"] for row in of),
                "other_bits": sum(not row["same_bits"] for row in of),
                "lost": sum(row["lost"] for row in of),
                "said_by_clock": sum(row["says_by_clock"] for row in of),
            }
            for kind, of in (
                ("waits", [row for row in rows if row["waits"]]),
                ("goes on", [row for row in rows if not row["waits"]]),
            )
        }
        yield


def killed(work: Path, name: str, at: int, *, waits: bool) -> tuple[Path, int]:
    """The folder of a run that was ended by SIGKILL at its request number ``at`` and resumed, and how often it was."""
    times = 0
    while True:
        child = os.fork()
        if not child:
            try:
                run_killed(work, name, at, waits=waits, resume=times > 0)
                os._exit(0)
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            times += 1
        elif status:
            raise RuntimeError(f"{name} ended with status {status}")
        else:
            return work / name, times


def run_killed(work: Path, name: str, at: int, *, waits: bool, resume: bool) -> None:
    from lyceum.recipe.schema import load_recipe
    from lyceum.training.train import train

    os.environ |= {"KILLED_MARK": str(work / f"{name}.killed"), "KILLED_AT": str(at)}
    file = work / f"agent_{name.replace('-', '_')}.py"
    file.write_text(KILLED_AGENT.replace("SLOW", str(float(not waits or at % 2))))
    of = f"{{kind: agent, function: {file}:solve, samples: {RUN['samples']}, waits: {json.dumps(waits)}, " + (
        "sampling: {max_completion_tokens: 18}}"
    )
    keys = [
        *(f"rollout={of}", "model=scratch", f"steps={RUN['steps']}", f"tasks_per_step={RUN['tasks_per_step']}"),
        *("evaluate.n=0", "track=[]", "trees_every=1", "digests=true", "checkpoint_every=1", "threads=1"),
        *("max_steps_without_signal=0", f"output={work}", f"name={name}"),
    ]
    train(load_recipe("grpo", keys), resume=resume)


def lost(folder: Path) -> int:
    """Groups of a run that were not trained once, or without all of their episodes."""
    from lyceum.run.trees import read_trees

    files = sorted((folder / "trees").glob("*.parquet"))
    groups = [group for file in files for group in read_trees(file).groups]
    short = sum(len(group.tree.trajectories) != RUN["samples"] for group in groups)
    tasks = len({group.tree.task.id for group in groups})
    return abs(RUN["steps"] * RUN["tasks_per_step"] - tasks) + abs(len(groups) - tasks) + short


# Shown ---------------------------------------------------------------------------------------------------------------


def show(result: Mapping[str, Any]) -> None:
    rows = [
        (f"{name}, {how}", *(of.get(key, "") for key in ("sampled", "trained", "leaves", "gap")))
        for name, by in result.get("histories", {}).items()
        for how, of in by.items()
        if "refused" not in of
    ]
    table("histories", ("template, answers, way", "sampled", "trained", "leaves", "gap"), rows)
    for row in result.get("learn", {}).get("difference", ()):
        interval = row["difference"]
        print(f"{row['what']}: turns {row['turns']:.3f}, agent {row['agent']:.3f}, difference "
              f"{interval['mean']:+.3f} [{interval['low']:+.3f}, {interval['high']:+.3f}]")  # fmt: skip
    for part in ("cost", "idle", "rendering"):
        print(json.dumps({part: result.get(part)}))
    print(json.dumps({"kills": result.get("kills", {}).get("total")}))


if __name__ == "__main__":
    main()
