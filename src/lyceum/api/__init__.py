"""lyceum from Python: each function does what the command of its name does, and returns what the command prints.

::

    import lyceum

    run = lyceum.train("grpo", model="base", steps=20, objective__clip_high=0.3)
    run.summary["after"]["overall"], run.metrics[-1]["reward/mean"], run.report
    run.evaluate(k=(1, 8, 64))

Every key of a recipe is a keyword, with ``__`` for its dots, or dotted (``**{"objective.clip_high": 0.3}``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lyceum.analysis.boundary.plan import BoundaryPlan
from lyceum.analysis.boundary.result import Boundary
from lyceum.analysis.comparison import run as comparing
from lyceum.analysis.comparison.result import Comparison
from lyceum.analysis.doctor.request import DoctorRequest
from lyceum.analysis.doctor.run import Report, examine
from lyceum.analysis.grading.grade import Graded, Grading, Line
from lyceum.analysis.measure import Accuracy, Measurement, model_settings
from lyceum.analysis.push import push as upload
from lyceum.analysis.replay import Replayed
from lyceum.analysis.replay import replay as run_replay
from lyceum.analysis.sizes import Sizes, sizes_of
from lyceum.analysis.sparsity import Sparsity, SparsityPlan
from lyceum.analysis.test_time.plan import SearchPlan
from lyceum.analysis.test_time.result import SearchResult
from lyceum.api.arguments import checked
from lyceum.api.loaded import as_policy, is_loaded, model_as_folder, policy_so_far
from lyceum.api.rows import Rows, folder_for_rows, load_from_python, rows_as_file, rows_kept
from lyceum.api.trained import Trained, folder_of
from lyceum.core.paper_folders import Folders, use
from lyceum.core.settings import TasksSettings
from lyceum.models.load import load_policy
from lyceum.models.policy import Policy
from lyceum.recipe.files import described_recipes
from lyceum.recipe.schema import Overrides, Recipe
from lyceum.reward.function_registry import reward_settings
from lyceum.training.train import Ready
from lyceum.training.train import train as run_recipe
from lyceum.utils import progress
from lyceum.utils.errors import Interrupted, NothingLearntWarning, RecipeError
from lyceum.utils.interrupts import Interrupts
from lyceum.utils.library_messages import quiet
from lyceum.utils.paths import local_path
from lyceum.utils.threads import wait_passively

wait_passively()  # where torch is not imported yet

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from lyceum.analysis.conversion.convert import Conversion

Model = str | Path | Mapping[str, Any] | tuple["PreTrainedModel", "PreTrainedTokenizerBase"] | Trained
Resume = bool | Literal["auto"]
Tasks = str | Path | Mapping[str, Any] | TasksSettings | Sequence[str | Path | Mapping[str, Any]] | Rows


@checked
def train(
    recipe: str | Path | Recipe = "grpo",
    overrides: Overrides = (),
    *,
    model: Model | Policy | None = None,
    tasks: Tasks | None = None,
    reward: Any = None,
    name: str | None = None,
    resume: Resume = False,
    overwrite: bool = False,
    papers: Folders = (),
    progress: progress.Mode = "auto",
    began: Callable[[int, int, Sizes], None] = lambda threads, evaluated, sizes: None,
    **keys: Any,
) -> Trained:
    """Run a recipe.

    Args:
        recipe: name of a shipped recipe, a .yaml file, or a loaded recipe.
        overrides: ``key=value`` as on the command line; applied before the keywords.
        model: model to train: ``base``, ``scratch``, a folder, a hub name, a .gguf file, settings, a run, or a pair
            ``(model, tokenizer)`` of transformers' objects, or what :func:`load_model` returned. These two are written
            to the run's folder, once, and loaded from there: your own objects stay as they are. To resume, pass in the
            same ones.
        tasks: tasks to train on: a kind, ``reasoning-gym:NAME``, a .jsonl, .parquet or .csv file, settings, a list of
            these (a mixture), or rows: a list of dicts, a ``datasets.Dataset`` or ``IterableDataset``, a DataFrame of
            pandas or polars. Rows are written to the run's folder, once; to resume the run, pass in the same ones.
            The keys ``evaluate.tasks`` and, of a recipe for preference pairs, ``data`` take rows too.
        reward: a kind, your own function, a mapping ``{"function": F, "weight": 0.2}``, or a list of these. A function
            that is not async runs in this process.
        name: name of the run's folder; by default the recipe's.
        resume: continue the run of that name. In Python also ``auto``: if there is one.
        overwrite: replace the run of that name.
        papers: folders of papers of your own: their recipes are known by name, their components by kind.
        progress: display of progress: ``live``, ``plain``, ``json``, ``silent``, or ``auto``, by where it runs.
        began: advanced, for programs around a run: called when everything was checked, before a model is loaded, with
            the number of CPU threads, of the tasks that are evaluated, and what the run will take.
        keys: further keys of the recipe.
    Returns:
        The finished run; ``learnt`` says whether its rewards had a learning signal. Where they had none, a warning
        says why.
    Raises:
        RecipeError: invalid settings; nothing was loaded or overwritten.
        NothingGraded: no completion could be graded for several consecutive steps.
        NothingLearnt: no reward has differed within a group in many steps from the first on (max_steps_without_signal).
        Interrupted: stopped by Ctrl-C, with a checkpoint; ``resume=True`` continues.
    """
    use(papers)
    with ExitStack() as until_done:
        if isinstance(recipe, Recipe):
            if overrides or keys or any(value is not None for value in (model, tasks, reward)):
                allowed = "name=NAME, or load_recipe(NAME, overrides) with them"
                raise RecipeError(f"recipe: got a loaded recipe with further keys; allowed: {allowed}")
            loaded, given = recipe if name is None else recipe.model_copy(update={"name": name}), None
        else:
            all_keys = [*overrides, *_overrides(keys, model=folder_of(model), tasks=tasks, reward=reward, name=name)]
            loaded, given = load_from_python(str(recipe), all_keys, until_done.enter_context(folder_for_rows()))
        until_done.enter_context(_displayed(progress))
        interrupts = until_done.enter_context(Interrupts())
        sizes: list[Sizes] = []

        def fits(ready: Ready) -> None:
            sizes.append(sizes_of(ready))
            sizes[0].require_fit()

        try:
            path = run_recipe(
                loaded,
                resume=resume,
                overwrite=overwrite,
                interrupted=interrupts.interrupted,
                checked=fits,
                began=lambda threads, evaluated: began(threads, evaluated, sizes[0]),
                given=given,
            )
        except Interrupted as stopped:
            if stopped.step:  # of a step before the first nothing is kept
                run = str(Path(loaded.output) / loaded.name)
                stopped.advice = (
                    "resume=True in the same call continues",
                    f"lyceum.load_model({run!r}) is the model so far",
                )
            raise
    trained = Trained(path)
    if trained.learnt is False:
        warnings.warn("\n".join(trained.summary["nothing_learnt"]), NothingLearntWarning, stacklevel=3)
    return trained


@checked
def evaluate(
    model: Model | Policy = "base",
    tasks: Tasks | None = None,
    overrides: Overrides = (),
    *,
    k: Sequence[int] = (1, 8),
    n: int = 200,
    samples: int | None = None,
    reward: Any = None,
    greedy: bool = True,
    seed: int = 0,
    workers: int = 1,
    output: Path | str | None = None,
    papers: Folders = (),
    progress: progress.Mode = "auto",
    **keys: Any,
) -> Accuracy:
    """pass@k, avg@k and maj@k of a model on tasks, overall and by level, each with its 95 % interval.

    Args:
        model: as for :func:`train`; of a run or its folder the tasks, reward and sampling are then the defaults.
        tasks: a kind (chain), reasoning-gym:NAME, a file (.jsonl, .parquet, .csv), or a hub dataset; by default those
            of the run. Of generated tasks the held-out ones; every row of a file, unless ``tasks.heldout_share=SHARE``.
            In Python also settings, a list of these, and rows, as for :func:`train`.
        overrides: ``key=value`` as on the command line.
        k: values of k for pass@k and maj@k.
        n: maximum number of tasks.
        samples: samples per task; by default the largest k.
        reward: reward that grades: a kind; by default the tasks' own. In Python also a function, a mapping, or a list
            of these, as for :func:`train`.
        greedy: measure the greedy completion too.
        seed: random seed of tasks and samples.
        workers: processes that share the tasks, each with the model; with more than 1 last bits may differ.
        output: write the metrics to this file, as JSON; one from an earlier evaluation is replaced.
        papers: folders of papers of your own: their recipes are known by name, their components by kind.
        keys: ``temperature``, ``top_p``, ``max_completion_tokens`` and other sampling settings, ``tasks.KEY``,
            ``model.KEY``, ``reward.KEY``.
    Returns:
        The metrics: ``found["overall"]``, ``found["pass_at"]``, ``found["levels"]``, ...
    Raises:
        RecipeError: invalid settings; no model was loaded.
        Unwritten: the metrics could not be written to ``output``; the exception contains them.
    """
    use(papers)
    given = [*overrides, *_overrides(keys, reward=reward)]
    model = folder_of(model)
    loaded = as_policy(model, given)
    if loaded is not None and workers > 1:
        raise RecipeError(f"workers: got {workers} with a model in this process; allowed: 1, or the model's folder")
    with rows_as_file("tasks", tasks) as tasks:
        measurement = Measurement.of(
            model if loaded is None else "base",
            tasks,
            given,
            k=k,
            n=n,
            samples=samples,
            greedy=greedy,
            seed=seed,
            workers=workers,
            loaded=loaded,
        )
        if output is not None:
            measurement.check_output(output)
        with _displayed(progress):
            found = measurement.run()
    if output is not None:
        found.write(output)
    return found


@checked
def grade(
    file: Trained | Path | str | Rows,
    reward: Any = None,
    overrides: Overrides = (),
    *,
    model: Any = None,
    output: Path | str | None = None,
    each: Callable[[Line], None] | None = None,
    papers: Folders = (),
    progress: progress.Mode = "auto",
    **keys: Any,
) -> Graded:
    """Grade completions that are in a file with any reward, in the order of its rows.

    Args:
        file: a file (.jsonl, .parquet, .csv) with columns ``prompt``, ``completion``, ``answer`` and what the reward
            reads, or such rows as :func:`train` takes, or a run or its folder.
        reward: a kind (math, number, choice, exact, regex, json-schema, sql, ...), '{kind: KIND, SETTING: VALUE}',
            FILE.py:FUNCTION, or a recipe, whose whole reward it is; by default a run's own. In Python also your own
            function, or a list of these.
        overrides: ``key=value`` as on the command line: ``reward.KEY``, ``columns.KEY``, ``model.KEY``, ``tasks``.
        model: model that the reward asks, and whose tokenizer counts tokens: as for :func:`evaluate`.
        output: write the lines to this file, too; one from an earlier call is replaced.
        each: called with each row's line: ``row``, ``score``, ``correct``, ``parts``, and ``reason`` where it could not
            be graded.
        papers: folders of papers of your own: their recipes are known by name, their components by kind.
        keys: as ``overrides``.
    Returns:
        The summary: ``graded``, ``mean``, ``parts``, ``reasons``.
    Raises:
        RecipeError: invalid settings, or a file that is none of these; nothing was graded.
    """
    use(papers)
    given = [*overrides, *_overrides(keys)]
    if file is None:
        raise RecipeError("file: got None; allowed: a file, rows, a run or its folder")
    with rows_as_file("file", folder_of(file)) as path:
        grading = Grading.of(path, given, reward=reward_settings(reward), model=model, output=output)
        with _displayed(progress):
            return grading.run(each)


@checked
def search(
    model: Any = "base",
    tasks: Any = None,
    overrides: Overrides = (),
    *,
    strategies: Sequence[Any] = ("all",),
    sizes: Sequence[int] = (1, 4, 16),
    value: str | Path | Mapping[str, Any] | None = "likelihood",
    tokens: Sequence[float] = (),
    n: int = 200,
    reward: Any = None,
    seed: int = 0,
    output: Path | str | None = None,
    papers: Folders = (),
    progress: progress.Mode = "auto",
    **keys: Any,
) -> SearchResult:
    """Test-time search: a model's accuracy after n trajectories, chosen without the verifier, and the cost.

    Args:
        model, overrides: as for :func:`evaluate`.
        tasks: as for :func:`evaluate`.
        strategies: ``greedy``, ``best-of-n``, ``majority``, ``filtered-majority``, ``weighted-majority``, ``beam``,
            ``dvts``, ``mcts``, ``best-first``, ``value-mcts``, or ``all``; or any rollout and a choice, as a mapping
            (``{"rollout": {"kind": "mcts", "width": 2}, "choose": "best"}``) or a
            ``lyceum.analysis.test_time.strategy.Strategy``.
        sizes: numbers of trajectories per task.
        value: value model that ranks trajectories and steps: a kind (likelihood: the model's own), the folder of a
            trained value or process model, or none. In Python also settings.
        tokens: token budgets per task at which accuracy is compared, such as 200,800, interpolated between sizes; by
            default up to four that all strategies of several sizes reach or, where these have little in common, that
            some reach.
        n: as for :func:`evaluate`.
        reward: reward that grades afterwards: a kind; by default the tasks' own. In Python as for :func:`train`.
        seed: as for :func:`evaluate`.
        output: folder for search.json, search.png and every answer, from which the same search resumes. In Python rows
            that are passed as ``tasks`` are kept beside it, in ``rows``.
        papers: folders of papers of your own: their recipes are known by name, their components by kind.
        keys: as for :func:`evaluate`; also ``NAME.KEY`` of a strategy, ``step.KEY`` of all strategies with steps, and
            ``value.KEY``.
    Returns:
        ``found["results"]``: accuracy, tokens and seconds of each strategy at each size; ``found["at_equal_tokens"]``.
    Raises:
        RecipeError: invalid settings; no model was loaded.
        Interrupted: stopped by Ctrl-C between two sizes.
    """
    use(papers)
    given = [*overrides, *_overrides(keys, reward=reward)]
    model = folder_of(model)
    loaded = as_policy(model, given)

    def planned(tasks: Any, output: Path | str | None = None) -> SearchPlan:
        return SearchPlan.of(
            model if loaded is None else "base",
            tasks,
            given,
            strategies=[strategies] if isinstance(strategies, str) else strategies,
            sizes=sizes,
            value=value,
            tokens=tokens,
            n=n,
            seed=seed,
            output=output,
            loaded=loaded,
        )

    if output is not None:
        tasks = rows_kept("tasks", tasks, local_path(output).parent, planned)
    with rows_as_file("tasks", tasks) as tasks:
        plan = planned(tasks, output)
        with _displayed(progress), Interrupts() as interrupts:
            return plan.run(interrupts.interrupted)


@checked
def compare(
    recipes: Sequence[str],
    overrides: Overrides = (),
    *,
    seeds: int = 3,
    tokens: int | None = None,
    jobs: int = 1,
    each: Mapping[str, Mapping[str, Any]] | None = None,
    name: str | None = None,
    output: str = "runs",
    papers: Folders = (),
    progress: progress.Mode = "auto",
    model: Any = None,
    tasks: Any = None,
    reward: Any = None,
    **keys: Any,
) -> Comparison:
    """Compare recipes on the same tasks, seeds and budget; finished runs are not run again.

    Args:
        recipes: names or files; ``grpo@wide`` is grpo under the label ``wide``.
        seeds: runs per recipe.
        tokens: sampled tokens per run; by default each recipe's steps decide.
        jobs: runs at a time. More than 1 are processes, which share the cores; what each says is in its NAME.log.
        each: label -> keys for that recipe only.
        name: NAME of the folder compare-NAME; by default the recipes.
        output: folder that contains it.
        tasks: as for :func:`train`; rows are written to ``output/rows``, where every run reads them.
        papers: folders of papers of your own: their recipes are known by name, their components by kind.
        keys: keys for every recipe.
    Returns:
        ``recipes``, one result each in the order given, and ``sentence``, which says what is shown and what is not.
    Raises:
        RecipeError: invalid settings; nothing was run.
        Interrupted: stopped by Ctrl-C; the same call continues.
    """
    use(papers)
    if is_loaded(model):
        raise RecipeError("model: got a model in memory; allowed: a folder, which every run of a comparison reads")
    own = {label: _overrides(values) for label, values in (each or {}).items()}

    def planned(tasks: Any) -> comparing.ComparisonPlan:
        shared = [*overrides, *_overrides(keys, model=folder_of(model), tasks=tasks, reward=reward)]
        return comparing.plan(recipes, shared, own, seeds=seeds, tokens=tokens, name=name, output=output)

    made = planned(rows_kept("tasks", tasks, Path(output), planned))
    comparing.check_jobs(made, jobs)
    return run_plan(made, progress=progress, jobs=jobs)


def run_plan(
    planned: comparing.ComparisonPlan,
    *,
    progress: progress.Mode = "auto",
    began: Callable[[str], None] | None = None,
    jobs: int = 1,
) -> Any:
    """Run the missing runs of a comparison, and compare."""
    with _displayed(progress), Interrupts() as interrupts:
        return planned.run(interrupts.interrupted, began, jobs=jobs)


@checked
def replay(
    run: Trained | Path | str,
    step: int,
    overrides: Overrides = (),
    *,
    output: Path | str | None = None,
    papers: Folders = (),
    progress: progress.Mode = "auto",
    **keys: Any,
) -> Replayed:
    """Another credit or objective on the trees that a run recorded (``trees_every``), beside the run's own.

    Args:
        run: the finished run, or its folder.
        step: step of the run to replay: the first, or one that follows a checkpoint; its trees must be written.
        overrides: ``key=value`` as on the command line; applied before the keywords.
        output: write each token's coefficients on both sides to this file, as parquet.
        papers: folders of papers of your own: their recipes are known by name, their components by kind.
        keys: further keys of credit and objective: ``credit="leave-one-out"``, ``objective__clip_high=0.3``.
    Returns:
        Both sides and what differs: ``sign_flips``, ``correlation``, ``cosine``, ``tokens()``.
    Raises:
        RecipeError: invalid settings, or a step that cannot be replayed; no model was loaded.
    """
    use(papers)
    folder = run.path if isinstance(run, Trained) else Path(run)
    given = [*overrides, *_overrides(keys)]
    with _displayed(progress):
        return run_replay(folder, step, given, output=None if output is None else Path(output))


@checked
def boundary(
    models: Sequence[Any],
    overrides: Overrides = (),
    *,
    tasks: Any = None,
    samples: int = 64,
    n: int = 200,
    hints: str | None = None,
    reward: Any = None,
    seed: int = 0,
    workers: int = 1,
    output: Path | str | None = None,
    unsolved: Path | str | None = None,
    papers: Folders = (),
    progress: progress.Mode = "auto",
    **keys: Any,
) -> Boundary:
    """What training adds to a base model, from samples of the same tasks.

    Args:
        models: the base first: as for :func:`evaluate` but no loaded ones, ``MODEL@LABEL`` under another label; or
            .jsonl files of samples, a line ``{"task": ID, "correct": [true, false, null]}`` per task.
        tasks: as for :func:`evaluate`; by default those of the first model that is a run.
        overrides: ``key=value`` as on the command line.
        samples: samples per task and model: the largest k.
        n: as for :func:`evaluate`.
        hints: sample under the tasks' hints too: tiers with commas between them, such as planning, or all.
        reward: as for :func:`evaluate`.
        seed: as for :func:`evaluate`.
        workers: as for :func:`evaluate`.
        output: folder for boundary.json, .html and .png and the samples; what is there is not sampled again.
        unsolved: write the tasks that no sample of the base solves to this .jsonl file, for ``tasks=FILE``.
        papers: folders of papers of your own: their recipes are known by name, their components by kind.
        keys: as for :func:`evaluate`.
    Returns:
        ``pass_at``, ``against`` (differences, crossings, solvable sets, expansion), ``help``, ``perplexity``.
    Raises:
        RecipeError: invalid settings; no model was loaded.
        NothingGraded: no sample of a model has a verdict.
    """
    use(papers)
    given = [*overrides, *_overrides(keys, reward=reward)]
    named = [models] if isinstance(models, (str, Path)) else models
    planned = BoundaryPlan.of(
        [folder_of(each) for each in named],
        tasks,
        given,
        samples=samples,
        n=n,
        hints=hints,
        seed=seed,
        workers=workers,
        output=output,
        unsolved=unsolved,
    )
    with _displayed(progress):
        return planned.run()


@checked
def sparsity(
    base: str | Path,
    model: Trained | str | Path,
    other: Trained | str | Path | None = None,
    *,
    atol: float = 1e-5,
    rank: bool = True,
    output: Path | str | None = None,
    progress: progress.Mode = "auto",
) -> Sparsity:
    """Which weights training changed, by kind of layer, and the rank of the updates.

    Args:
        base, model: ``base``, a model's folder, or a run's; read tensor by tensor.
        other: another training of the same base, for the overlap of what both changed.
        atol: difference of two weights up to which they count as unchanged.
        rank: compute the updates' ranks: cubic in the width, hours for 7B parameters on a CPU.
        output: write every tensor's numbers to this file, as JSON.
    Returns:
        ``overall``, ``kinds``, ``tensors``: shares unchanged in bfloat16 (the paper's number) and as stored;
            ``overlap``.
    Raises:
        RecipeError: a folder without safetensors files, or models of different shapes; no weight was read.
    """
    trained = [str(folder_of(each)) for each in (model, other) if each is not None]
    planned = SparsityPlan.of(str(base), trained[0], trained[1] if other is not None else None, atol=atol, rank=rank)
    file = None if output is None else planned.check_output(output)
    with _displayed(progress):
        found = planned.run()
    if file is not None:
        found.write(file)
    return found


@checked
def doctor(
    model: Any = "base",
    overrides: Overrides = (),
    *,
    engine: Any = None,
    learner: Any = None,
    server: str | None = None,
    samples: int = 8,
    tokens: int = 16,
    seed: int = 0,
    length: int | None = None,
    papers: Folders = (),
    progress: progress.Mode = "auto",
    **keys: Any,
) -> Report:
    """Check that a model is sampled and trained right on this machine, and how fast.

    Args:
        model: as for :func:`train`, or a run or its folder.
        overrides: ``key=value`` as on the command line: ``engine.KEY``, ``learner.KEY``, ``model.KEY``, ``tasks``.
        engine: what samples: a kind, or '{kind: KIND, SETTING: VALUE}'; ``engine=...`` as a key.
        learner: what trains: a kind, or '{kind: KIND, SETTING: VALUE}'; ``learner=...`` as a key.
        server: address of a vLLM server that samples, as with engine=vllm-server; it is given the model's weights.
        samples: completions per sampling setting, of which there are four.
        tokens: maximum tokens per completion.
        seed: random seed of tasks and samples.
        length: tokens of a recipe's longest prompt and completion, of which a few are examined; by default just beyond
            the windows and chunks that the model attends within, if it has some.
        papers: folders of papers of your own: their recipes are known by name, their components by kind.
        keys: as ``overrides``.
    Returns:
        The report; its ``failures`` are the checks that failed.
    Raises:
        RecipeError: invalid settings; no model was loaded.
    """
    use(papers)
    given = [*overrides, *_overrides(keys)]
    model = folder_of(model)
    loaded = is_loaded(model)
    with model_as_folder(model) as model:
        request = DoctorRequest.of(
            model,
            given,
            engine=engine,
            learner=learner,
            server=server,
            samples=samples,
            tokens=tokens,
            seed=seed,
            length=length,
        )
        with _displayed(progress):
            report = examine(request)
    if loaded:  # the folder is gone
        request = replace(request, model=request.model.model_copy(update={"path": "a loaded model"}))
    return replace(report, request=request)


@checked
def push(
    run: Trained | Path | str, repository: str, *, which: Literal["model", "best"] = "model", public: bool = False
) -> str:
    """Upload a run's model and its card to the Hugging Face hub; returns the repository's address.

    The card names models and tasks by the paths that you gave.

    Args:
        run: a finished run, or its folder.
        repository: ``owner/name``; made if there is none.
        which: the model after the last step, or the best one (``evaluate.save_best``).
        public: let everybody read it; private by default.
    Raises:
        RecipeError: no such model, an impossible name, or a repository of the other visibility; nothing was uploaded.
        RunError: the hub refused, or cannot be reached.
    """
    return upload(Path(folder_of(run)), repository, which=which, public=public)


@checked
def convert(file: str | Path, overrides: Sequence[str] = (), *, rewards: str | Path = "") -> Conversion:
    """A configuration of TRL, verl or OpenRLHF as a recipe; each of its keys is converted or named. It is not run.

    Args:
        file: a script, a configuration or a shell command.
        overrides: ``KEY=VALUE`` that replace settings, by that library's names, such as ``num_processes=8``.
        rewards: file that a script's reward functions will be in, which ``found.rewards`` is the text of.
    Returns:
        ``found.text``, the recipe's file with a comment for each key that has no counterpart, and ``found.recipe``, its
        plain values; ``found.done`` and ``found.named``, what became of each key.
    Raises:
        RecipeError: the file cannot be read, or is none of these.
    """
    from lyceum.analysis.conversion.convert import convert as converted  # here: few use it

    return converted(str(file), overrides, rewards=str(rewards))


def recipes(papers: Folders = ()) -> dict[str, dict[str, str]]:
    """The recipes that come with lyceum, and those of papers of your own: name -> {title, paper, summary}."""
    use(papers)
    return described_recipes()


@checked
def load_model(model: Any = "base", **keys: Any) -> Policy:
    """A model and its tokenizer: ``base``, a folder, a hub name, a .gguf file, a run's folder, or a copy of a pair
    ``(model, tokenizer)``.

    Of a run that was interrupted it is the model at its last checkpoint. ``.module`` is the transformers model, with
    attention that only lyceum calls: to use it elsewhere, ``.module.save_pretrained(FOLDER)``; ``.tokenizer`` is its
    tokenizer.
    """
    model = folder_of(model)
    if isinstance(model, (str, Path)) and (policy := policy_so_far(local_path(model), keys)) is not None:
        return policy
    with model_as_folder(model) as model:
        return load_policy(model_settings(model, keys))


def _overrides(keys: Mapping[str, Any], **named: Any) -> list[tuple[str, Any]]:
    """Keywords as overrides: those with a name of their own that are given, then the further keys of a recipe."""
    given = {name: value for name, value in named.items() if value is not None}
    if "reward" in given:
        given["reward"] = reward_settings(given["reward"])
    given |= {key.replace("__", "."): value for key, value in keys.items()}
    return [(key, str(value) if isinstance(value, Path) else value) for key, value in given.items()]


@contextmanager
def _displayed(mode: progress.Mode) -> Iterator[None]:
    """Silence libraries, and show progress in the given mode."""
    with quiet(), progress.using(mode):
        yield
