"""Evaluating a model on tasks: everything checked first, then sampled, then summarised with intervals."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lyceum.analysis.keys import refuse_unknown
from lyceum.core.component import MOST_SAMPLES, explain, kinds
from lyceum.core.settings import Composition, EngineSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Sampling, Task, TaskSource
from lyceum.evaluation.held_out import EvaluationResult, Evaluator, begun, first_tasks, why_nothing_graded
from lyceum.evaluation.statistics import summarise
from lyceum.models.limits import context_of
from lyceum.models.load import (
    BASE,
    BASE_STORIES,
    SCRATCH,
    ModelSettings,
    check_model,
    load_policy,
    load_tokenizer,
    no_model_yet,
)
from lyceum.models.policy import Policy
from lyceum.models.prompts import check_prompts, say_left_out
from lyceum.recipe.schema import (
    Overrides,
    Recipe,
    apply_overrides,
    check_code,
    check_evaluation_engine,
    read_override,
    tasks_from_text,
    trusting_own,
)
from lyceum.reward.base import Combined, allow_code, combine
from lyceum.run.files import check_output, input_paths
from lyceum.run.folder import recover
from lyceum.run.reader import read_recipe
from lyceum.utils.aio import run_async
from lyceum.utils.atomic_files import atomic_write
from lyceum.utils.documents import is_json_with
from lyceum.utils.errors import RecipeError
from lyceum.utils.garbage_collection import only_new
from lyceum.utils.html import in_words, mean_reward, share, shares, table
from lyceum.utils.numbers import level_order, to_json
from lyceum.utils.paths import local_path
from lyceum.utils.progress import Progress

log = logging.getLogger(__name__)

MAX_TOKENS = 256
"""Default maximum tokens per completion, where neither the caller nor a run's recipe sets it."""


@dataclass(frozen=True)
class Accuracy:
    """Metrics of an evaluation.

    ``metrics`` are those of a run's summary (``overall``, ``by_level``, ``greedy``, ``pass_at``, ``avg_at`` and
    ``maj_at``: proportions with ``mean``, ``low``, ``high``), and in ``levels`` those of each level.
    """

    metrics: dict[str, Any]
    trees: list[Tree] = field(repr=False, default_factory=list)

    def __getitem__(self, name: str) -> Any:
        return self.metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def keys(self) -> KeysView[str]:
        return self.metrics.keys()

    @property
    def why_nothing_graded(self) -> list[str]:
        """Lines that say why no sample could be graded; empty where one could."""
        return why_nothing_graded(self.trees)

    def to_json(self) -> dict[str, Any]:
        return self.metrics

    def __repr__(self) -> str:
        return f"Accuracy({self._title}: {in_words(self.metrics)})"

    def _repr_html_(self) -> str:
        overall = {"all": self.metrics} | {f"level {level}": of for level, of in self.metrics.get("levels", {}).items()}
        columns, rewards = list(shares(self.metrics)), list(mean_reward(self.metrics))
        rows = [
            (
                name,
                *(share(shares(of).get(column)) for column in columns),
                *(mean_reward(of).get(column, "-") for column in rewards),
            )
            for name, of in overall.items()
        ]
        return table(("", *columns, *rewards), rows, title=self._title)

    @property
    def _title(self) -> str:
        tasks, unjudged = self.metrics.get("tasks", 0), self.metrics.get("unjudged")
        without = f"{unjudged} samples whose reward does not say whether they are correct" if unjudged else ""
        counted = [f"{tasks} tasks"] if tasks or not unjudged else []
        return ", ".join([self.metrics.get("model", ""), *counted, *([without] if without else [])])

    def write(self, file: Path | str) -> Path:
        """Write the metrics as JSON.

        Raises:
            Unwritten: they could not be written.
        """
        file = Path(file)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(file, to_json(self.metrics, indent=2) + "\n")
        except OSError as error:
            raise Unwritten(self, error) from error
        return file


class Unwritten(OSError):
    """The metrics could not be written; ``accuracy`` holds them."""

    def __init__(self, accuracy: Accuracy, error: OSError) -> None:
        super().__init__(error.errno, error.strerror, error.filename)
        self.accuracy = accuracy


@dataclass(frozen=True)
class Measurement:
    """An evaluation that can be run: made by :meth:`of`, which refuses what cannot work before any model is loaded."""

    recipe: Recipe
    source: TaskSource
    sampling: Sampling
    k: tuple[int, ...]
    loaded: Policy | None = None

    @classmethod
    def of(
        cls,
        model: Any,
        tasks: Any,
        overrides: Overrides,
        *,
        k: Sequence[int],
        n: int,
        samples: int | None,
        greedy: bool,
        seed: int,
        workers: int = 1,
        loaded: Policy | None = None,
        command: str = "eval",
    ) -> Measurement:
        overrides = [read_override(override) for override in overrides]
        refuse_unknown(command, (key for key, _ in overrides))
        ks, samples = _sizes(k, samples)
        if n < 1:
            raise RecipeError(f"n: got {n}; allowed: 1 or more")
        placed = [_placed(override) for override in overrides]
        tasks = _only_tasks(tasks, placed)
        with trusting_own([*placed, ("tasks", tasks)]):
            raw = _of_run(model) if isinstance(model, (str, Path)) else {"model": model}
            sampling = raw.pop("sampling", {"max_completion_tokens": MAX_TOKENS})
            evaluate = {"n": n, "samples": samples, "k": list(ks), "greedy": greedy}
            evaluate |= {"workers": workers, "sampling": sampling}
            evaluate["engine"] = raw.pop("engine", "embedded")
            evaluate["environment"] = raw.pop("environment", None)
            raw |= {"seed": seed, "evaluate": evaluate}
            if tasks is not None:
                # A run's reward for its own tasks need not fit others; the others' own reward does.
                if not any(key == "reward" or key.startswith("reward.") for key, _ in placed):
                    _say_other_reward(raw.get("reward"))
                raw.pop("reward", None)
                raw["tasks"] = _typed_tasks(tasks)
            elif raw.get("model") in (BASE, SCRATCH):
                raw["tasks"] = {"kind": "chain"}
            elif raw.get("model") == BASE_STORIES:
                raw["tasks"] = {"kind": "stories"}
            typed = apply_overrides(raw, placed)
            if "tasks" not in raw:
                if loaded is None:  # report an unusable model first
                    check_model(_validated({"model": raw["model"]}).model)
                known = f"{', '.join(kinds('tasks'))}, reasoning-gym:NAME, or a dataset's file or name"
                raise RecipeError(f"tasks: got none, and {model} is not a run with its own tasks; allowed: {known}")
            recipe = _validated(raw)
            if tasks is not None:  # there is no training here to hold rows out from
                recipe = recipe.model_copy(update={"tasks": recipe.tasks.whole()})
        check_code(recipe, typed)
        if lines := check_evaluation_engine(recipe):
            raise RecipeError(lines)
        source = recipe.tasks.build("heldout", seed)
        if not len(source):
            raise RecipeError("tasks: got an empty source; allowed: at least one task")
        with allow_code():
            combine(recipe.reward, source)
            recipe.evaluation_rollout.check_tasks(source)
        if loaded is None:
            tokenizer = load_tokenizer(recipe.model)
            limit = context_of(recipe.model, tokenizer)
            with allow_code():
                tools = recipe.evaluation_rollout.tools
            source = check_prompts("tasks", source, tokenizer, limit, tools)
        say_left_out("tasks", source)
        return cls(recipe, source, recipe.evaluate.sampling or Sampling(), ks, loaded)

    def with_model(self, model: str | Path, overrides: Overrides) -> Measurement:
        """The same tasks, sampled and graded alike, with another model.

        Args:
            overrides: of which those of the model apply.
        """
        keys = {
            key.removeprefix("model."): value
            for key, value in map(read_override, overrides)
            if key.startswith("model.")
        }
        with trusting_own(overrides):
            settings = model_settings(model, keys)
        tokenizer = load_tokenizer(settings)
        check_prompts("tasks", self.source, tokenizer, context_of(settings, tokenizer))
        return replace(self, recipe=self.recipe.model_copy(update={"model": settings}))

    def check_output(self, output: Path | str) -> None:
        """Raise RecipeError for a file that cannot be written, is read here, or holds anything but an evaluation."""
        file = check_output("output", output, inputs=input_paths(self.recipe))
        if file.exists() and file.stat().st_size and not is_json_with(file, {"tasks_from", "sampling", "overall"}):
            raise RecipeError(
                f"output: {file} is there and was not written by lyceum eval; allowed: a new file, or an evaluation's"
            )

    def run(self) -> Accuracy:
        settings = self.recipe.evaluate
        began = time.perf_counter()
        policy, grader, tasks = self.opened()
        rollout = self.recipe.evaluation_rollout
        evaluator = Evaluator(
            tasks,
            grader,
            self.sampling,
            settings.samples,
            self.k,
            settings.greedy,
            rollout=rollout,
            begun=begun(self.recipe),
        )
        with Progress(len(tasks) * (1 + settings.greedy), title="evaluating", unit="task") as progress, only_new():
            done = 0
            progress.phase("sampling")

            def finished() -> None:
                nonlocal done
                done += 1
                progress.step(done)

            engine = self.recipe.evaluation_engine.build(policy)
            result = run_async(evaluator.evaluate(policy, engine, self.recipe.seed, finished))
        return Accuracy(self._metrics(result) | {"seconds": round(time.perf_counter() - began, 3)}, result.trees)

    def opened(self) -> tuple[Policy, Combined, list[Task]]:
        """The loaded model, the grader, and the tasks."""
        policy = self.loaded or load_policy(self.recipe.model)
        with allow_code():
            grader = combine(self.recipe.reward, self.source)
        return policy, grader, first_tasks(self.source, self.recipe.evaluate.n)

    @property
    def request(self) -> dict[str, Any]:
        """Metadata: the model, the tasks, and how they are sampled."""
        return {
            "model": self.recipe.model.path if self.loaded is None else "a loaded model",
            "tasks_from": self.recipe.tasks.model_dump(mode="json"),
            "sampling": self.sampling.model_dump(mode="json"),
            "engine": self.recipe.evaluation_engine.kind,
            "seed": self.recipe.seed,
        }

    def _metrics(self, result: EvaluationResult) -> dict[str, Any]:
        leaves = [leaf for tree in result.trees for leaf in tree.trajectories]
        return {
            **self.request,
            **result.metrics(),
            "levels": by_level(result),
            "tokens_sampled": sum(tree.sampled_tokens for tree in [*result.trees, *(result.greedy or ())]),
            "completion_tokens_mean": sum(len(leaf.completion_tokens) for leaf in leaves) / max(1, len(leaves)),
            "truncated": sum(leaf.finish == "length" for leaf in leaves) / max(1, len(leaves)),
        }


def _sizes(k: Sequence[int], samples: int | None) -> tuple[tuple[int, ...], int]:
    """The k, increasing, and the samples per task, by default the largest k.

    Raises:
        RecipeError: a k below 1 or no k, or samples that are fewer than a k or too many.
    """
    ks = tuple(sorted(set(k)))
    if not ks or ks[0] < 1:
        raise RecipeError(f"k: got {list(k)}; allowed: numbers of 1 or more")
    samples = ks[-1] if samples is None else samples
    if samples > MOST_SAMPLES:
        raise RecipeError(f"samples: got {samples} per task; allowed: {MOST_SAMPLES} or fewer")
    if samples < ks[-1]:
        raise RecipeError(f"samples: got {samples}, but k is up to {ks[-1]}; allowed: {ks[-1]} or more")
    return ks, samples


def _only_tasks(tasks: Any, placed: Sequence[tuple[str, Any]]) -> Any:
    """The given tasks, as an argument or as a key; raises RecipeError where there are both."""
    for key, value in placed:
        if key == "tasks":
            if tasks is not None:
                raise RecipeError(f"tasks: got {value!r} as a key, and {tasks!r} before it; allowed: one of them")
            tasks = value
    return tasks


def _typed_tasks(tasks: Any) -> Any:
    """Tasks as a recipe holds them, of an argument: a list or mapping may be a text, as in ``tasks=[a.csv, b.csv]``."""
    if isinstance(tasks, str) and tasks.startswith(("[", "{")):
        _, tasks = read_override(f"tasks={tasks}")
    return tasks_from_text(str(tasks) if isinstance(tasks, Path) else tasks)


def _say_other_reward(own: Any) -> None:
    """Tell that other tasks are not graded by the run's reward, where it has one of its own."""
    parts = own if isinstance(own, list) else []
    named = [part.get("function", part.get("kind")) for part in parts if isinstance(part, dict)]
    if named and named != ["task"]:
        log.warning(
            "reward: the tasks' own verifier grades, as these are not the run's tasks, whose reward is %s; "
            "--reward REWARD grades by another",
            " + ".join(map(str, named)),
        )


def by_level(result: EvaluationResult) -> dict[str, dict[str, Any]]:
    """Each level's own summary, its metrics at every k included; empty where tasks have no level."""
    sampled: dict[str, list[Any]] = {}
    greedy: dict[str, list[Any]] = {}
    for task in result.results:
        if task.level is not None:
            sampled.setdefault(str(task.level), []).append(task)
    for task in result.greedy_results or ():
        greedy.setdefault(str(task.level), []).append(task)
    found: dict[str, dict[str, Any]] = {}
    for level in sorted(sampled, key=level_order):
        metrics = summarise(sampled[level], result.ks, greedy=greedy.get(level))
        metrics.pop("by_level", None)
        if metrics.get("greedy"):
            metrics["greedy"] = metrics["greedy"]["overall"]
        found[level] = metrics
    return found


def model_settings(model: Any, keys: Mapping[str, Any]) -> ModelSettings:
    """Settings of a model given as a run's folder, a path or settings, with further keys.

    Raises:
        RecipeError: an unknown key, or an invalid value.
    """
    raw = _of_run(model) if isinstance(model, (str, Path)) else {"model": model}
    apply_overrides(raw, [(f"model.{key}", value) for key, value in keys.items()])
    return _validated({"model": raw["model"]}).model


def engine_settings(overrides: Overrides) -> EngineSettings:
    """An engine's settings from ``engine=KIND`` and ``engine.KEY=value``; by default the embedded one.

    Raises:
        RecipeError: an unknown key, an invalid value, or an engine that is not installed.
    """
    raw: dict[str, Any] = {"evaluate": {"engine": "embedded"}}
    apply_overrides(raw, [_placed(override) for override in overrides])
    engine = _validated(raw).evaluation_engine
    if lines := Composition(engine=engine).conflicts():
        raise RecipeError(lines)
    return engine


def _of_run(model: str | Path) -> dict[str, Any]:
    """What to evaluate: for a run's folder its model on its own tasks, for anything else the model alone."""
    folder = local_path(model)
    recover(folder)
    if not (folder / "recipe.yaml").is_file():
        return {"model": str(model)}
    if not (folder / "model").is_dir():
        raise RecipeError(f"model: {no_model_yet(folder)}")
    # Key by key: a run's recipe may set trust_code, which was meant for another command.
    written = read_recipe(folder)
    known = {key: written[key] for key in ("tasks", "reward") if key in written}
    evaluation = written.get("evaluate") or {}
    last = (written.get("stages") or [{}])[-1]
    rollout = last.get("rollout")
    sampling = evaluation.get("sampling") or (rollout.get("sampling") if isinstance(rollout, dict) else None)
    dtype = (written.get("model") or {}).get("dtype", "float32")
    raw = {"model": {"path": str(folder / "model"), "dtype": dtype}}
    raw |= {"sampling": sampling} if sampling else {}
    if (engine := evaluation.get("engine") or last.get("engine")) is not None:
        raw["engine"] = engine
    environment = evaluation.get("environment") or (rollout.get("environment") if isinstance(rollout, dict) else None)
    raw |= {"environment": environment} if environment else {}
    raw |= known | ({"tasks": evaluation["tasks"]} if evaluation.get("tasks") else {})
    try:
        _validated(
            {key: value for key, value in raw.items() if key not in ("sampling", "engine", "environment")}
            | {"evaluate": {"sampling": sampling, "engine": engine, "environment": environment}}
        )
    except RecipeError as error:
        raise RecipeError(f"{folder / 'recipe.yaml'}: {line}" for line in error.lines) from error
    return raw


def _placed(override: str | tuple[str, Any]) -> tuple[str, Any]:
    """Sampling's keys may be given without a prefix: only one component samples here.

    Raises:
        RecipeError: a key that is given in another way; it would have no effect here.
    """
    key, value = read_override(override)
    first = key.partition(".")[0]
    if first in Sampling.model_fields:
        return f"evaluate.sampling.{key}", value
    if first in ("sampling", "engine", "environment"):
        return f"evaluate.{key}", value
    if key == "model":
        raise RecipeError(f"model: got {value!r} as a key; allowed: the model's name before the keys, model.KEY")
    return key, value


def _validated(raw: Mapping[str, Any]) -> Recipe:
    try:
        return Recipe.model_validate(dict(raw))
    except ValidationError as error:
        raise RecipeError(explain(error, Recipe)) from None
