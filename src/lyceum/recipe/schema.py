"""Recipes: what a run is, in one YAML file. Found by name or path, changed by dotted overrides, checked as a whole.

A recipe may extend another and say only what differs. ``key=value`` on the command line changes any key; a key of a
stage may be named alone (``steps=50``, ``objective.clip_high=0.3``), and then goes to every stage that has it.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from lyceum.core import own_components
from lyceum.core.component import (
    MOST_SAMPLES,
    Component,
    PathText,
    Seed,
    Settings,
    SlotSchema,
    find,
    first_of,
    kinds,
    mistakes,
    of_kind,
    slot,
)
from lyceum.core.needs import FROZEN
from lyceum.core.paper_folders import SLOTS, Folders, use
from lyceum.core.settings import (
    Composition,
    EngineSettings,
    EnvironmentSettings,
    LearnerSettings,
    Left,
    RewardSettings,
    RolloutSettings,
    StageSettings,
    TasksSettings,
)
from lyceum.core.types import Sampling
from lyceum.models.load import UNTRAINED, ModelSettings
from lyceum.recipe.files import extended, merged, read_files, recipe_names
from lyceum.recipe.other_names import answered, known_elsewhere, misspelt, of_trl, of_verl
from lyceum.reward.base import named_code, passed_in_here
from lyceum.reward.function_registry import is_passed_in, passed_in
from lyceum.rollout.turns import independent
from lyceum.run.trackers import Tracker, missing
from lyceum.tasks.rows import names_rows
from lyceum.utils.documents import DocumentError, read_yaml
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.terminal import quoted
from lyceum.utils.threads import MOST, usable_cores

log = logging.getLogger(__name__)

__all__ = ["Evaluation", "Recipe", "load_recipe", "parse", "read_raw", "recipe_names", "tasks_from_text"]

USUAL_STAGE = "online"
"""Kind of a stage whose settings name none."""

USUAL_MINUTES = 30.0
"""Default minutes between checkpoints, where steps take long."""
OF_SAMPLING = ("kind", "collect", "curriculum", "max_tokens", "max_tokens_per_task", "reward", "value")
"""Keys of an online stage that mean nothing where its samples are given; its rollout says how evaluations sample."""

LONGEST_NAME = 150
"""Maximum length of a run's name or label (bytes)."""

DEEPEST = 20
"""Maximum number of names in a dotted key."""

Overrides = Sequence[str | tuple[str, Any]]
"""``key=value`` as on the command line, its value YAML, or (key, value) as Python has it."""


def tasks_from_text(value: Any) -> Any:
    """Tasks as one may type them: a kind (``chain``), a kind and what it needs (``reasoning-gym:chain_sum``), a
    dataset's file, folder or hub name (``data.jsonl``, ``openai/gsm8k``), or a list of these, which is a mixture of as
    much of each. Anything else is returned unchanged."""
    if isinstance(value, list):
        return {"kind": "mixture", "parts": [{"tasks": tasks_from_text(part)} for part in value]}
    if not isinstance(value, str):
        return value
    kind, colon, rest = value.partition(":")
    if own_components.is_code(value):
        return {"kind": value}
    known = find("tasks", kind)
    if known is not None and not colon:
        return {"kind": value}
    if known is not None:
        needed = next((name for name, field in known.model_fields.items() if field.is_required()), None)
        return {"kind": value} if needed is None else {"kind": kind, needed: rest}
    return {"kind": "dataset", "path": value} if names_rows(value) else {"kind": value}


def data_from_text(value: Any) -> Any:
    """An offline stage's data as one may type them: a kind (``sampled``), or where rows of pairs, labels or graded logs
    are (``pairs.jsonl``). Anything else is returned unchanged."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        raise RecipeError(
            f"data: got {quoted(value)}; allowed: one file, or a pattern for several, such as 'pairs/*.jsonl'"
        )
    if not isinstance(value, str) or own_components.is_code(value):
        return value
    return {"kind": "file", "path": value} if find("data", value) is None and names_rows(value) else value


class Evaluation(Settings):
    """How accuracy is measured: on held-out tasks, before, during and after training."""

    tasks: Annotated[TasksSettings, slot("tasks")] | None = None
    """Tasks to evaluate on; by default the held-out split of the recipe's own. All rows of a file that is not trained
    on, unless ``heldout_share``, ``heldout_split`` or ``heldout_path`` say which."""
    n: int = Field(default=200, ge=0)
    """Number of held-out tasks; 0 evaluates nothing."""
    samples: int = Field(default=8, ge=1, le=MOST_SAMPLES)
    """Samples per task."""
    k: tuple[Annotated[int, Field(ge=1)], ...] = (1, 8)
    """Values of k for pass@k and maj@k; one above ``samples`` counts as ``samples``."""
    sampling: Sampling | None = None
    """Sampling settings; by default those of the last stage."""
    engine: Annotated[EngineSettings, slot("engine", "embedded")] | None = None
    """What samples before and after training; by default the engine of the last stage. During training the stage's own
    engine does."""
    environment: Annotated[EnvironmentSettings, slot("environment")] | None = None
    """What answers the policy's turns; by default the environment of the last stage's rollout, and none where that has
    none."""
    greedy: bool = True
    """Report the greedy completion's accuracy beside the samples'."""
    workers: int = Field(default=1, ge=1, le=1024)
    """Processes that an evaluation is shared among, task by task. Each loads the model, and they end with it. With more
    than 1 the batches differ, and so do last bits."""
    every: int = Field(default=0, ge=0)
    """Steps between evaluations during training; 0 evaluates only before and after."""
    save_best: bool = False
    """Keep the model of the highest held-out accuracy during and after training in the run's folder ``best``, besides
    the last one in ``model``. Costs the evaluations of ``every`` (``n`` times ``samples`` completions each), and disk
    for one more model. The highest of several measurements is an optimistic estimate: measure it again on other tasks.
    """

    @model_validator(mode="after")
    def _best_of_some(self) -> Evaluation:
        if self.save_best and not (self.every and self.n):
            raise ValueError(
                f"got save_best=true with every={self.every} and n={self.n}; allowed: both 1 or more, such as "
                "evaluate.every=20"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _not_a_switch(cls, value: Any) -> Any:
        if value is None or isinstance(value, bool):
            raise ValueError(f"got {value}; allowed: its keys, such as evaluate.n=0, which evaluates nothing")
        return value

    @field_validator("tasks", mode="before")
    @classmethod
    def _short_tasks(cls, value: Any) -> Any:
        return tasks_from_text(value)


class KeptModels(Settings):
    """Models that a run keeps on the way."""

    every: int = Field(ge=1)
    """Steps of a stage between them; the last step's is the stage's own model."""
    models: Literal["merged", "adapter"] = "merged"
    """What is saved of a model with adapters (``model.lora``): the whole model, adapters merged; or the adapters alone,
    which take hundreds of times less disk, and are read together with the model that they were trained on."""
    dtype: Literal["model", "float32", "bfloat16", "float16"] = "model"
    """Data type in which they are saved; model is that of the trained weights. Half precision takes half the disk of
    float32, and rounds small updates away: an evaluation of it may differ."""

    @model_validator(mode="after")
    def _adapters_as_they_are(self) -> KeptModels:
        if self.models == "adapter" and self.dtype != "model":
            raise ValueError(f"dtype: got {self.dtype!r} with models 'adapter'; allowed: model, or models=merged")
        return self


class Recipe(Settings):
    """A run."""

    title: str = ""
    """Title, in a line; for a method, its paper's title."""
    paper: str = ""
    """arXiv:NUMBER of the method's paper."""
    summary: str = ""
    """What the method does, in a line."""
    name: str = ""
    """Name of the run's folder in ``output``; by default the recipe's name."""
    label: str = ""
    """Name in reports and comparisons; by default the recipe's name."""
    output: PathText = "runs"
    """Folder that holds the runs."""
    seed: Seed = 0
    """Random seed of the run."""
    model: ModelSettings = ModelSettings()
    """Model to train."""
    tasks: Annotated[TasksSettings, slot("tasks")] = of_kind("chain")
    """Tasks to train on."""
    reward: tuple[Annotated[RewardSettings, slot("reward")], ...] = (of_kind("task"),)
    """Parts of the outcome reward; by default the tasks' own verifier."""
    evaluate: Evaluation = Evaluation()
    """How accuracy is measured."""
    stages: tuple[Annotated[StageSettings, slot("stages", USUAL_STAGE)], ...] = ()
    """Stages, in order; each continues training the model of the stage before."""
    checkpoint_every: int = Field(default=20, ge=0)
    """Steps between checkpoints, of which each stage also begins with one; 0 writes one only when interrupted."""
    checkpoint_minutes: float | None = Field(default=None, ge=0, le=1e6)
    """Minutes since the last checkpoint after which the step under way is followed by one, whatever its number; 0
    writes none by the time. By default 30, and 0 where ``checkpoint_every`` is 0."""
    max_steps_without_signal: int = Field(default=20, ge=0)
    """Steps, from the first on, in which no reward differs within any group, after which the run stops with a
    checkpoint and exit code 3; it also stops after three steps in which nothing could be graded. 0 goes on."""
    threads: int | None = Field(default=None, ge=1, le=MOST)
    """CPU threads that torch computes with. By default OMP_NUM_THREADS where it is set, else those of the run that is
    resumed, else the cores that this process may use (affinity, the quota of its container). Another number rounds
    differently in the last bits."""
    keep: KeptModels | None = None
    """Keep the model of every so many steps in ``kept_models/step-N``, a Hugging Face folder or one of adapters, which
    ``lyceum eval``, ``compare`` and ``boundary`` take; none by default. A whole one takes the disk of a model."""
    keep_checkpoints: int = Field(default=2, ge=1)
    """Number of checkpoints kept, the latest ones; a run resumes from the last. Each takes the disk of weights and
    optimiser. For models to evaluate: ``keep``, and ``evaluate.save_best``."""
    keep_stages: bool = True
    """Keep the model that each stage but the last leaves, in ``stages/NAME/model``; the last one's is ``model``."""
    rollouts_every: int = Field(default=10, ge=1)
    """Steps between steps whose trajectories are written."""
    trees_every: int = Field(default=0, ge=0)
    """Steps between steps whose trees are written whole, for ``lyceum replay``: the first step of a stage and every so
    many after it, so that each begins from a checkpoint where ``checkpoint_every`` is the same; of a stage that
    searches, those of every round. 0 writes none."""
    digests: bool = False
    """Write digests of each step for ``lyceum same``, which says where two runs first differ."""
    track: tuple[Tracker, ...] = ("tensorboard",)
    """Metric trackers: tensorboard, in the run's folder; wandb and trackio if installed."""
    trust_code: bool = False
    """Let this recipe name Python files to run. Only the command line may say so, never the recipe's own file."""

    @field_validator("tasks", mode="before")
    @classmethod
    def _short_tasks(cls, value: Any) -> Any:
        return tasks_from_text(value)

    @field_validator("reward", mode="before")
    @classmethod
    def _one_part_alone(cls, value: Any) -> Any:
        """``task``, ``math``, or a function by its path: ``my_reward.py:score``, ``package.module:score``."""
        parts = (value,) if isinstance(value, (str, Mapping, Component)) else value
        if not isinstance(parts, (list, tuple)):
            raise ValueError(f"got {quoted(parts)}; allowed: a kind, FILE.py:FUNCTION, settings, or a list of these")
        if not parts:
            raise ValueError("got no part; allowed: one or more, for example kind 'task'")
        for part in parts:
            # "reward.py:" is a mapping in YAML.
            word = next(iter(part)) if isinstance(part, Mapping) and len(part) == 1 else part
            if isinstance(word, str) and word.rstrip(":").endswith(".py"):
                file = word.rstrip(":")
                raise ValueError(
                    f"got {quoted(word)}, a file without a function; allowed: {file}:NAME of a function in it"
                )
            if isinstance(word, str) and (named := _function_meant(word)) is not None:
                raise ValueError(f"got {quoted(word)} (did you mean {named!r}?); allowed: {FUNCTION}, or a kind")
            if isinstance(word, str) and "/" in word and ":" not in word:
                raise ValueError(
                    f"got {quoted(word)}, which looks like a model; allowed: {FUNCTION} that asks it, or a kind"
                )
        return tuple(map(_function_part, parts))

    @field_validator("name", "label")
    @classmethod
    def _can_be_part_of_a_file_name(cls, value: str) -> str:
        # File systems allow 255 bytes; comparisons add a seed and join labels.
        if len(value.encode()) > LONGEST_NAME:
            raise ValueError(f"got {quoted(value)}; allowed: at most {LONGEST_NAME} bytes")
        return value

    @field_validator("stages")
    @classmethod
    def _every_stage_has_a_name(cls, value: tuple[StageSettings, ...]) -> tuple[StageSettings, ...]:
        names = stage_names([(stage.kind, stage.name) for stage in value])
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"got the name {quoted(twice)} twice; allowed: each name once")
        return tuple(stage.model_copy(update={"name": name}) for stage, name in zip(value, names, strict=True))

    @field_validator("track")
    @classmethod
    def _trackers_are_installed(cls, value: tuple[Tracker, ...]) -> tuple[Tracker, ...]:
        if lacking := missing(value):
            names = " ".join(lacking)
            raise ValueError(f"got {list(value)}, but {names} cannot be imported; pip install {names}, or leave it out")
        return value

    @property
    def evaluation_engine(self) -> EngineSettings:
        """What evaluations before and after training, and commands without training, sample with."""
        return self.evaluate.engine or self.stages[-1].engine

    @property
    def evaluation_sampling(self) -> Sampling:
        return self.evaluate.sampling or self.stages[-1].sampling

    @property
    def evaluation_rollout(self) -> RolloutSettings:
        """How evaluations grow trajectories: independent samples, by turns or by an agent where training does."""
        rollout = self.stages[-1].composition().rollout if self.stages else None
        return independent(rollout, self.evaluate.environment)

    @property
    def minutes_between_checkpoints(self) -> float:
        """``checkpoint_minutes`` with its default; 0 for none by the time."""
        if self.checkpoint_minutes is not None:
            return self.checkpoint_minutes
        return USUAL_MINUTES if self.checkpoint_every else 0.0

    def resolved(self) -> dict[str, Any]:
        """Every default written out, as plain values."""
        return self.model_dump(mode="json")


def stage_names(stages: Sequence[tuple[str, str]]) -> list[str]:
    """Names of stages given as (kind, name): where the name is empty the kind, ``KIND-2`` if that is taken, ..."""
    taken = {name for _, name in stages if name}
    names: list[str] = []
    for kind, given in stages:
        free = (name for name in chain([kind], (f"{kind}-{n}" for n in count(2))) if name not in taken)
        names.append(given or next(free))
        taken.add(names[-1])
    return names


def load_recipe(name: str, overrides: Overrides = (), *, papers: Folders = ()) -> Recipe:
    """A recipe by name or path, with overrides applied.

    Args:
        papers: a folder, or several, of papers of the user's own: their recipes are known by name, their components by
            kind.
    Raises:
        RecipeError: no such recipe, a file that is not one, an unknown key, an invalid value, or settings that
            cannot work together.
    """
    if not isinstance(name, str) or isinstance(overrides, str):
        raise RecipeError(
            f"recipe: got {quoted(name)} with {quoted(overrides)}; allowed: a name or file, and a list of texts"
        )
    use(papers)
    raw = read_raw(name)
    if lines := of_verl(raw) or of_trl(raw):
        raise RecipeError(lines)
    refuse_trust(raw)
    raw.setdefault("name", Path(name).stem)
    raw.setdefault("label", Path(name).stem)
    given = [read_override(override) for override in overrides]
    keys = [key for key, _ in given]
    if "output" in raw and "output" not in keys:
        _say_outside(raw["output"])
    with trusting_own(given):
        try:
            typed = apply_overrides(raw, given)
        except RecipeError as error:
            checked = _checked(raw, keys)
            raise RecipeError(first_of([*error.lines, *(() if isinstance(checked, Recipe) else checked)])) from None
        recipe = parse(raw, keys)
    check_code(recipe, typed)
    return recipe


def _say_outside(output: object) -> None:
    """A recipe's file may be somebody else's: where it has the run written elsewhere is said."""
    here = Path.cwd().resolve()
    if isinstance(output, str) and here not in (place := (here / os.path.expanduser(output)).resolve(), *place.parents):
        log.warning("output: the recipe's file has its run written to %s; for one of this folder: output=runs", place)


def trusting_own(overrides: Overrides, further: Collection[str] = ()) -> AbstractContextManager[None]:
    """Let recipes read inside name components of the user's own: those that these keys name, or all where they say
    ``trust_code=true``.

    Args:
        further: what else the user has typed.
    """
    given = [read_override(override) for override in overrides]
    typed = {*further} | {leaf for _, value in given for leaf in _leaves(value) if isinstance(leaf, str)}
    return own_components.trusting(typed, everything=("trust_code", True) in given)


def read_raw(name: str) -> dict[str, Any]:
    """The plain values of a recipe file, with ``extends`` resolved. A key of a stage may be named alone, as on the
    command line; its settings are then merged with those of every stage that has it. An unknown key stays as it is.

    Raises:
        RecipeError: as :func:`read_files`.
    """
    raw: dict[str, Any] = {}
    for over in read_files(name):
        raw = extended(raw, {key: value for key, value in over.items() if key in Recipe.model_fields})
        alone = {key: value for key, value in over.items() if key not in Recipe.model_fields}
        if "data" in alone:  # first, as in apply_overrides
            _train_on_data(raw, evaluated="tasks" in over or "evaluate" in over)
            alone = {"data": alone["data"], **alone}
        raw |= {key: value for key, value in alone.items() if not _place(raw, key, value, merge=True)}
    return raw


def refuse_trust(raw: Mapping[str, Any]) -> None:
    """A recipe may come from anywhere, and must not allow itself to run code."""
    model = raw.get("model")
    for key, value in (
        ("trust_code", raw.get("trust_code")),
        ("model.trust_remote_code", model.get("trust_remote_code") if isinstance(model, Mapping) else False),
    ):
        if value:
            raise RecipeError(f"{key}: a recipe cannot trust itself; give {key}=true on the command line")


def parse(raw: Mapping[str, Any], typed: Sequence[str] = ()) -> Recipe:
    """Validate plain values into a recipe; every mistake is one line of the error.

    Args:
        typed: keys as the user gave them, which the lines repeat.
    """
    recipe = _checked(raw, typed)
    if not isinstance(recipe, Recipe):
        raise RecipeError(first_of(recipe))
    lines = [] if recipe.stages else ["stages: got none; allowed: at least one, for example kind 'online'"]
    before: dict[str, dict[Left, str]] = {}
    for place, stage in enumerate(recipe.stages):
        where = f"stages.{place}." if len(recipe.stages) > 1 else ""
        every = recipe.evaluate.every if recipe.evaluate.n else 0
        composition = replace(stage.composition(recipe.reward), before=before, evaluated_every=every)
        written = frozenset[Left]({"trees"} if recipe.trees_every and composition.rollout is not None else ())
        kind = "" if composition.value is None else composition.value.kind
        written |= frozenset[Left]({"model"} if recipe.keep_stages else ())
        left: dict[Left, str] = {what: kind if what == "value" else "" for what in stage.leaves | written}
        before = before | {stage.name: left}
        lines += [where + line for line in stage.conflicts(composition)]
        lines += [line for part in composition.reward for line in part.conflicts(composition)]
    learners = (part for stage in recipe.stages for part in stage.components() if isinstance(part, LearnerSettings))
    if recipe.model.quantise and any("processes" in learner.offers for learner in learners):
        lines.append(
            f"model.quantise: got {recipe.model.quantise!r}, but learner.kind 'fsdp' cannot share rounded weights; "
            "allowed: learner.kind=local, or null"
        )
    if recipe.keep is not None and recipe.keep.models == "adapter" and (why := adapters_alone(recipe.model)):
        lines.append(f"keep.models: got 'adapter', but {why}; allowed: merged")
    lines += [
        f"reward.kind: got '{part.kind}', which reads a model that evaluations do not have; allowed: in a stage's own "
        "reward"
        for part in recipe.reward
        if part.needed & {*FROZEN, "judgements"}
    ]
    if recipe.stages and recipe.evaluate.n:
        lines += check_evaluation_engine(recipe)
    if recipe.digests and any(as_finished(stage) for stage in recipe.stages):
        lines.append(
            "digests: got true with runtime.order 'ready', which trains what has finished, so that no two runs are the "
            "same; allowed: false, or runtime.order=fixed"
        )
    if lines:
        raise RecipeError(list(dict.fromkeys(lines)))
    return with_whole_files(with_possible_k(recipe))


def with_whole_files(recipe: Recipe) -> Recipe:
    """The recipe with all rows of each file that is named for evaluation alone, unless it says which are held out."""
    if (tasks := recipe.evaluate.tasks) is None:
        return recipe
    whole = tasks.whole(recipe.tasks.paths())
    return recipe.model_copy(update={"evaluate": recipe.evaluate.model_copy(update={"tasks": whole})})


def with_possible_k(recipe: Recipe) -> Recipe:
    """The recipe with no k above its samples per task, which is said where there was one."""
    given, samples = recipe.evaluate.k, recipe.evaluate.samples
    ks = tuple(dict.fromkeys(min(k, samples) for k in given))
    if ks == given:
        return recipe
    named = ",".join(map(str, ks))
    often = "once" if samples == 1 else f"{samples} times"
    log.warning("evaluate.k: %s, since each task is sampled %s (evaluate.samples)", named, often)
    return recipe.model_copy(update={"evaluate": recipe.evaluate.model_copy(update={"k": ks})})


def _checked(raw: Mapping[str, Any], typed: Sequence[str]) -> Recipe | Iterator[str]:
    """The recipe of plain values, its components not yet compared with each other; or lines, one for each mistake."""
    unknown = (_unknown(raw, key) for key in raw if key not in Recipe.model_fields)
    try:
        recipe = Recipe.model_validate({key: value for key, value in raw.items() if key in Recipe.model_fields})
    except ValidationError as error:
        wrong = map(partial(_with_other_names, raw), mistakes(error, Recipe))
        return chain(unknown, _as_typed(wrong, typed, stages=len(_mappings(raw))))
    return recipe if (first := next(unknown, None)) is None else chain([first], unknown)


def _as_typed(lines: Iterable[str], typed: Sequence[str], *, stages: int) -> Iterator[str]:
    """The lines, whose keys say no ``stages.0.`` where the user did not, each once."""
    named = any(key.startswith("stages.") for key in typed)
    said: set[str] = set()
    for line in lines:
        place = re.match(r"stages\.\d+\.", line)
        key = "" if place is None else line[place.end() :].partition(":")[0]
        alone = any(f"{key}.".startswith(f"{each}.") or f"{each}.".startswith(f"{key}.") for each in typed)
        if place is not None and (alone or (stages == 1 and not named)):
            line = line.replace(place[0], "")
        if line not in said:
            said.add(line)
            yield line


def _with_other_names(raw: Mapping[str, Any], line: str) -> str:
    """The line, and of an unknown key below another what another library's key of that name is called here: one that
    belongs in this place goes before a near one, any other only where none is near."""
    key, unknown, instead = line.partition(": unknown key")
    if not unknown:
        return line
    names = re.sub(r"^stages\.\d+\.", "", key).split(".")
    lacking, whole = partial(_lacking, raw), ".".join(names)
    ends_in = partial(known_elsewhere, names[-1], whole=False, of=whole, lacking=lacking)
    told = (
        known_elsewhere(whole)
        or known_elsewhere("_".join(names[-2:]), lacking=lacking)
        or ends_in(below=names[0])
        or (ends_in() if instead.startswith(";") else None)
    )
    told = told or (_of_other_kinds(names) if instead.startswith(";") else None)
    return line if told is None else f"{key}{unknown} ({told})"


MOST_KINDS = 3
"""Kinds that are named where a key is one of other components."""


def _of_other_kinds(names: Sequence[str]) -> str | None:
    """Which kinds of a slot have a key that the one that is there has not; None where none has."""
    if len(names) != 2 or names[0] not in SLOTS:
        return None
    slot, key = names
    having = [kind for kind, settings in kinds(slot).items() if key in settings.model_fields]
    if not having:
        return None
    more = f" and {len(having) - MOST_KINDS} more" if len(having) > MOST_KINDS else ""
    return f"a key of {' and '.join(f'{slot}={kind}' for kind in having[:MOST_KINDS])}{more}"


CLOSE = 0.85
"""Of two names, from which one is the other misspelt (``step``, ``steps``), though other stages have it, too."""


def _unknown(raw: Mapping[str, Any], key: str) -> str:
    """A line about a key that neither the recipe nor one of its stages has."""
    first = key.partition(".")[0]
    stages = _mappings(raw)
    known = sorted({*Recipe.model_fields, *(name for stage in stages for name in _stage_keys(stage))})
    lacking = partial(_lacking, raw)
    having = [kind for kind, settings in kinds("stages").items() if first in settings.model_fields]
    told = known_elsewhere(key, lacking=lacking)
    if told is None and having and not stages:
        told = f"a key of a stage, and this recipe has none: extends: RECIPE, or stages: [{{{first}: ...}}]"
    told = told or _deeper(first, [kinds("stages")[USUAL_STAGE](), Recipe()])
    told = told or known_elsewhere(key, whole=False, lacking=lacking)
    if told is None and having and not difflib.get_close_matches(first, known, n=1, cutoff=CLOSE):
        own = ", ".join(dict.fromkeys(str(stage.get("kind", USUAL_STAGE)) for stage in stages))
        told = f"a key of the stages {', '.join(having)}, and this recipe's are {own}"
    if told is None and (meant := misspelt(key, known)) is not None:
        told = f"did you mean {meant!r}? {known_elsewhere(meant, lacking=lacking)}"
    near = f" ({told})" if told else nearest(first, known)
    return f"{key}: unknown key{near or '; allowed: ' + ', '.join(known)}"


def _mappings(raw: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The stages of plain values that are, or stand for, mappings."""
    stages = raw.get("stages")
    named = (
        [{"kind": stage} if isinstance(stage, str) else stage for stage in stages] if isinstance(stages, list) else []
    )
    return [stage for stage in named if isinstance(stage, Mapping)]


def _lacking(raw: Mapping[str, Any], key: str) -> str:
    """Why a recipe does not take a key of ours, in words; empty where it does."""
    first, *below = key.split(".")
    having = [stage for stage in _mappings(raw) if first in _stage_keys(stage)]
    if first in Recipe.model_fields or any(_takes(stage, first, below) for stage in having):
        return ""
    if not having:
        return f"this recipe has no {first}"
    given = having[0].get(first)
    kind = given.get("kind") if isinstance(given, Mapping) else given
    return f"this recipe's {first}{f' {kind!r}' if isinstance(kind, str) else ''} has none"


def as_finished(stage: StageSettings) -> bool:
    """Whether what a stage trains depends on the clock."""
    runtime = stage.composition().runtime
    return runtime is not None and runtime.as_finished


def by_clock(stage: StageSettings) -> bool:
    """Whether two runs of a stage differ in their last bits, since the clock decides what shares a batch."""
    rollout = stage.composition().rollout
    return as_finished(stage) or (rollout is not None and rollout.by_clock)


def adapters_alone(model: ModelSettings) -> str:
    """Why a model's adapters mean nothing without it, as a clause; empty where they can be read with it."""
    if model.lora is None:
        return "nothing is trained by adapters (model.lora)"
    if model.path in UNTRAINED or model.path.endswith(".gguf"):
        return f"a model {quoted(model.path)} is in no folder that they could be read with"
    return "they are trained on rounded weights (model.quantise)" if model.quantise is not None else ""


def check_evaluation_engine(recipe: Recipe) -> list[str]:
    """Lines that say why the engine, or an environment, cannot sample as the evaluation asks it to."""
    sampled = {"samples": recipe.evaluate.samples, "sampling": recipe.evaluation_sampling}
    rollout = recipe.evaluation_rollout.model_copy(update=sampled)
    return [
        *Composition(rollout=rollout, engine=recipe.evaluation_engine).conflicts(),
        *(_check_evaluation_workers(recipe) if recipe.evaluate.workers > 1 else ()),
    ]


def _check_evaluation_workers(recipe: Recipe) -> list[str]:
    got, cores = f"evaluate.workers: got {recipe.evaluate.workers}", usable_cores()
    lines = [f"{got} on {cores} cores; allowed: 1 to {cores}"] if recipe.evaluate.workers > cores else []
    if "one-model" in recipe.evaluation_engine.offers:
        lines.append(
            f"{got} with engine {recipe.evaluation_engine.kind!r}, one in each; allowed: 1, or engine embedded"
        )
    return lines + passed_in_here(got, "1", recipe.reward, recipe.evaluation_rollout)


def apply_overrides(raw: dict[str, Any], overrides: Overrides) -> set[str]:
    """Set keys in place. Returns the strings that the user gave.

    Raises:
        RecipeError: with a line for each key that is unknown or cannot be set; the others are set.
    """
    typed: set[str] = set()
    placed = [read_override(override) for override in overrides]
    if any(key == "data" for key, _ in placed):
        # First, since other keys may be of the stage that trains on it.
        placed.sort(key=lambda pair: pair[0] != "data")
        _train_on_data(raw, evaluated=any(key.partition(".")[0] in ("tasks", "evaluate") for key, _ in placed))
    for several in ("reward", "tasks"):
        if [key for key, _ in placed].count(several) > 1:
            log.warning("%s: given more than once, and only the last counts; for several, %s=[A,B]", several, several)
    _say_replaced([key for key, _ in placed])
    wrong: list[str] = []
    for key, value in placed:
        # Components come only from Python, so the code that they name was given by the user too.
        typed |= {leaf for leaf in _leaves(value) if isinstance(leaf, str)} | set(named_code(value))
        try:
            if not _place(raw, key, value):
                wrong.append(_unknown(raw, key))
        except RecipeError as error:
            wrong += error.lines
    if wrong:
        raise RecipeError(wrong)
    return typed


def _say_replaced(keys: Sequence[str]) -> None:
    """Warn of each key that a later one sets anew as a whole: what it says is lost."""
    for place, later in enumerate(keys):
        for key in keys[:place]:
            if key.startswith(f"{later}."):
                log.warning("%s: given before %s=..., which replaces it; behind that it counts", key, later)


def read_override(override: str | tuple[str, Any]) -> tuple[str, Any]:
    """``key=value`` with YAML on its right; ``key=`` is an empty text. From Python it is already a pair."""
    if isinstance(override, tuple):
        return override
    key, equals, text_of_value = override.partition("=")
    if key.startswith("+"):  # as hydra adds one
        raise RecipeError(f"override: got {quoted(override)}; allowed: the key alone, {override.lstrip('+')}")
    if not equals and os.path.isfile(override):  # False for what can be no path, where Path raises
        raise RecipeError(f"override: got {quoted(override)}, a file; allowed: key=value, such as tasks={override}")
    if not equals or not key:
        raise RecipeError(f"override: got {quoted(override)}; allowed: key=value, such as steps=50 or model=path")
    if text_of_value.startswith("*"):  # a pattern of files: no alias can be known here
        return key, text_of_value
    try:
        value = read_yaml(text_of_value) if text_of_value else ""
    except DocumentError as error:
        raise RecipeError(f"{key}: got {quoted(text_of_value)}, which is not YAML: {error}") from error
    # There are no comments on a command line: answer_after=#### is a text whose quotes the shell removed.
    is_comment = "#" in text_of_value and text_of_value[0] not in "'\"[{" and isinstance(value, str | None)
    return key, text_of_value if is_comment else value


def _place(raw: dict[str, Any], key: str, value: Any, *, merge: bool = False) -> bool:
    """Set a key of the recipe, or of every stage that has it. Returns whether there is such a key.

    Args:
        merge: merge a mapping with the one that is there.
    """
    first, *rest = key.split(".")
    if "" in (first, *rest) or len(rest) >= DEEPEST:
        raise RecipeError(f"{quoted(key)}: got as a key; allowed: 1 to {DEEPEST} names, with one dot between two")
    if key not in Recipe.model_fields and (told := answered(key, value)) is not None:
        raise RecipeError(f"{key}: unknown key ({told})")
    if first in Recipe.model_fields:
        if first == "reward" and rest:
            raw["reward"] = _reward_with_keys(raw.get("reward") or "task", one_of_many=rest[0].isdigit())
        if first == "stages" and rest:
            rest[0] = _numbered(_stages(raw), rest[0])
        _set(raw, [first, *rest], value)
        return True
    having = [stage for stage in _stages(raw) if first in _stage_keys(stage)]
    if key == "data":
        value = data_from_text(value)
    # Where no component takes the key, all stages get it, and each refuses it by its own name.
    for stage in [stage for stage in having if _takes(stage, first, rest)] or having:
        _set(stage, [first, *rest], value, merge=merge)
    return bool(having)


def _stages(raw: dict[str, Any]) -> list[Any]:
    """The stages as a list in which keys can be set."""
    stages = raw.get("stages") or []
    if not isinstance(stages, list):
        raise RecipeError(f"stages: got {quoted(stages)}; allowed: a list, such as [{{kind: online}}]")
    raw["stages"] = [{"kind": stage} if isinstance(stage, str) else stage for stage in stages]
    return raw["stages"]


def _train_on_data(raw: dict[str, Any], *, evaluated: bool) -> None:
    """Make a recipe of one online stage an offline one, which trains on given data by the same objective.

    Args:
        evaluated: the user names tasks, which accuracy is then measured on; the recipe's own need not fit the data.
    """
    stages = _stages(raw)
    if len(stages) != 1 or not isinstance(stages[0], dict) or stages[0].get("kind", USUAL_STAGE) != USUAL_STAGE:
        return
    offline = kinds("stages")["offline"].model_fields.keys() - set(OF_SAMPLING)
    raw["stages"] = [{name: value for name, value in stages[0].items() if name in offline} | {"kind": "offline"}]
    if not evaluated:
        raw["evaluate"] = {**(raw.get("evaluate") or {}), "n": 0}


def _numbered(stages: Sequence[Any], place: str) -> str:
    """The number of a stage that is given by its name or its number."""
    if not stages or place.isdigit():
        return place
    mappings = [stage if isinstance(stage, dict) else {} for stage in stages]
    given = [(str(stage.get("kind", USUAL_STAGE)), str(stage.get("name") or "")) for stage in mappings]
    names = stage_names(given)
    if place not in names:
        raise RecipeError(
            f"stages.{place}: got {quoted(place)}{nearest(place, names)}; allowed: a stage by its number (0 to "
            f"{len(names) - 1}) or its name ({', '.join(map(quoted, names))}), such as stages.0.steps"
        )
    return str(names.index(place))


def _stage_keys(stage: Any) -> set[str]:
    settings = _settings_of(stage)
    return set() if settings is None else set(settings.model_fields) - {"kind"}


def _settings_of(stage: Any) -> type[Component] | None:
    """The settings class of a stage that is given as a mapping; None where it is none, or of no known kind."""
    kind = stage.get("kind", USUAL_STAGE) if isinstance(stage, dict) else None
    return find("stages", kind) if isinstance(kind, str) else None


def _deeper(name: str, settings: Iterable[BaseModel]) -> str | None:
    """Which settings, of parts of these, have the name that was given alone."""

    def keys(of: BaseModel, above: str) -> Iterator[str]:
        for field in type(of).model_fields:
            value = getattr(of, field)
            if field == name and above:
                yield f"{above}{field}"
            if isinstance(value, BaseModel):
                yield from keys(value, f"{above}{field}.")

    found = list(dict.fromkeys(key for each in settings for key in keys(each, "")))
    return f"did you mean {' or '.join(map(repr, found))}?" if found else None


def _takes(stage: Any, name: str, below: Sequence[str]) -> bool:
    """Whether the component that a stage has in a slot takes a key; True where the stage's key is no slot."""
    settings = _settings_of(stage)
    if settings is None:
        return True
    field = settings.model_fields[name]
    slots = [place for place in field.metadata if isinstance(place, SlotSchema)]
    if not below or not slots:
        return True
    given = stage.get(name, field.default)
    kind = given.get("kind", slots[0].usual) if isinstance(given, Mapping) else given
    component = find(slots[0].slot, kind) if isinstance(kind, str) else None
    return component is None or below[0] in component.model_fields


def _set(into: Any, path: list[str], value: Any, *, merge: bool = False) -> None:
    """Follow the path, creating missing mappings; ``stages.0.steps`` indexes a list."""
    where: list[str] = []
    for part in path[:-1]:
        where.append(part)
        if isinstance(into, list):
            below = _item(into, part, where)
            if isinstance(below, str):
                below = into[int(part)] = _written_out(path[0], below)
            into = below
        else:
            below = into.get(part)
            if isinstance(below, str):
                below = into[part] = _written_out(part, below)
            into = into.setdefault(part, {}) if below is None else below
        if not isinstance(into, (dict, list)):
            raise RecipeError(f"{'.'.join(path)}: {'.'.join(where)} is {quoted(into)} and has no keys")
    last = path[-1]
    if isinstance(into, list):
        _item(into, last, [*where, last])
        into[int(last)] = value
    elif isinstance(into.get(last), dict) and isinstance(value, str) and last != "model":
        # The kind changes: drop the settings of the old kind.
        into[last] = value if into[last].get("kind") != value else into[last]
    elif merge and last in into:
        into[last] = merged({last: into[last]}, {last: value})[last]
    else:
        into[last] = value


def _item(items: list[Any], part: str, where: list[str]) -> Any:
    # isdigit() alone accepts a superscript two, and int() refuses to read thousands of digits.
    if not part.isascii() or not part.isdigit() or len(part) > 9 or int(part) >= len(items):
        of_list = ".".join(where[:-1])
        known = f"0 to {len(items) - 1}" if items else "nothing, since the list is empty"
        if items and part.isidentifier():
            known = f"an item of the list by its number, such as {of_list}.0.{part}"
        raise RecipeError(f"{'.'.join(where)}: got {quoted(part)}; allowed: {known}")
    return items[int(part)]


def _written_out(part: str, value: str) -> Any:
    """The mapping that a plain string abbreviates: a model's path, tasks, a function, else a kind."""
    if part == "model":
        return {"path": value}
    if part == "reward" and isinstance(function := _function_part(value), dict):
        return function
    return tasks_from_text(value) if part == "tasks" else {"kind": value}


def _reward_with_keys(reward: Any, *, one_of_many: bool) -> Any:
    """A reward in which a key can be set: ``reward.weight`` for one, or ``reward.0.weight`` for several."""
    return [reward] if one_of_many and not isinstance(reward, list) else reward


FUNCTION = "FILE.py:NAME or MODULE:NAME of a function"


TRL_REWARDS = (
    "accuracy_reward",
    "reasoning_accuracy_reward",
    "think_format_reward",
    "get_soft_overlong_punishment",
)
"""Functions of TRL's ``trl.rewards``, whose names alone are typed from habit."""


def _function_meant(word: str) -> str | None:
    """The path of a function that was written in another way: ``module.name``, ``file.py::name``, or TRL's own."""
    if word in TRL_REWARDS:
        return f"trl.rewards:{word}"
    place, twice, name = word.partition("::")
    if not twice and ":" not in word:
        place, _, name = word.rpartition(".")
    is_path = place and name.isidentifier() and (twice or ":" not in word)
    return f"{place}:{name}" if is_path else None


def _function_part(part: Any) -> Any:
    """A part of the reward, kind ``function`` where it is a function's path or names a function and no kind."""
    if isinstance(part, str):
        return {"kind": "function", "function": part} if ":" in part else part
    return {"kind": "function", **part} if isinstance(part, Mapping) and "function" in part else part


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    return [leaf for item in value for leaf in _leaves(item)] if isinstance(value, list) else [value]


def check_code(recipe: Recipe, typed: set[str]) -> None:
    """Refuse code that the recipe's file names, unless the user typed its path or ``trust_code=true``, or it is a
    function that was passed in to this process."""
    for path in named_code(recipe):
        if is_passed_in(path):
            passed_in(path)
        elif not recipe.trust_code and path not in typed:
            raise RecipeError(
                f"trust_code: the recipe wants to run {path}; look at it, then give trust_code=true "
                f"or the path itself on the command line"
            )
