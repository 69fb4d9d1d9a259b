"""A run from recipe to trained model: check everything, load, evaluate, run the stages, evaluate, write."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Any, Literal

from lyceum.core.component import own_within
from lyceum.core.settings import EngineSettings, StageSettings
from lyceum.core.sources import gradable, left_out, prompt_hashes, without
from lyceum.core.tree import Tree
from lyceum.core.types import LeftOut, StageRun, TaskSource
from lyceum.evaluation.held_out import EvaluationResult, Evaluator, begun, first_tasks
from lyceum.models.frozen import check_reference, check_teacher
from lyceum.models.limits import context_of
from lyceum.models.load import bytes_of, load_policy, load_tokenizer, save_policy
from lyceum.models.policy import Policy
from lyceum.models.prompts import check_prompts, say_left_out
from lyceum.recipe.resumed import MAY_DIFFER, with_defaults
from lyceum.recipe.schema import Recipe, by_clock
from lyceum.reward.base import Combined, allow_code, combine, named_code
from lyceum.reward.function_registry import is_passed_in
from lyceum.run.checkpoint import CheckpointError
from lyceum.run.files import changed, check_output, checksums, input_paths
from lyceum.run.folder import INITIAL, KEPT, Run
from lyceum.run.trackers import require_login
from lyceum.training.stages.method import Method
from lyceum.training.stages.offline import Offline
from lyceum.training.stages.online import Online
from lyceum.training.stages.session import Session
from lyceum.training.stages.sft import SupervisedStage
from lyceum.training.stages.stopping import Until
from lyceum.training.view.model_card import model_card
from lyceum.utils.aio import run_async
from lyceum.utils.atomic_files import atomic_write, size
from lyceum.utils.errors import Interrupted, LostOutside, RecipeError, RunError, errors_name
from lyceum.utils.garbage_collection import only_new
from lyceum.utils.lazy_imports import torch
from lyceum.utils.numbers import to_json
from lyceum.utils.progress import Progress
from lyceum.utils.threads import chosen, computing_with

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)


def train(
    recipe: Recipe,
    *,
    resume: bool | Literal["auto"] = False,
    overwrite: bool = False,
    interrupted: Callable[[], bool] = lambda: False,
    checked: Callable[[Ready], None] = lambda ready: None,
    began: Callable[[int, int], None] = lambda threads, evaluated: None,
    given: Given | None = None,
) -> Path:
    """Run a recipe; returns the run folder.

    Args:
        resume: continue the run of that name; ``auto`` does so where there is one.
        overwrite: replace the run of that name.
        interrupted: called between steps, and between tasks of the first and last evaluation; True stops the run with
            a checkpoint.
        checked: called before the run's folder is claimed or replaced; what it raises leaves that as it is.
        began: called before a model is loaded, with the number of threads, and of the tasks that are evaluated.
        given: files that the recipe's run keeps in its folder, which are elsewhere as yet.
    Raises:
        RecipeError: something cannot work, found before any model was loaded.
        Interrupted: stopped by ``interrupted``.
        Diverged: weights, logits or every update's loss were not finite, or rewards too large for their credit.
        NothingGraded: nothing could be graded in several steps in a row.
        NothingLearnt: no reward has differed within a group in many steps, from the first on.
        OSError: something could not be written; what was trained is in a checkpoint, where there is space for one.

    A run that finishes without having learnt anything from its rewards says so in its summary: ``learnt`` is False, and
    ``nothing_learnt`` has the cause.
    """

    ready = get_ready(recipe, given, own=resume is not False and not overwrite)
    checked(ready)
    recipe, source, held_out = ready.recipe, ready.source, ready.held_out
    with claimed(recipe, resume=resume, overwrite=overwrite) as run:
        threads = threads_of(recipe, run)
        began(threads, ready.evaluated)
        if run.complete:
            run.begin()
        else:
            with computing_with(threads):
                run_async(_train(recipe, run, source, held_out, interrupted, given))
        from lyceum.training.view.report import write_report  # imports pyarrow, too slow for checking a recipe

        write_report(run.path)
    return run.path


@dataclass(frozen=True)
class Ready:
    """What everything was checked of, before a model is loaded.

    Attributes:
        recipe: the run's, which evaluates only what can be.
        files: the same with the files that were passed in where they are now.
        source, held_out: the tasks to train on, and those to evaluate on.
    """

    recipe: Recipe
    files: Recipe
    source: TaskSource
    held_out: TaskSource
    tokenizer: PreTrainedTokenizerBase

    @property
    def evaluated(self) -> int:
        """Number of tasks that the recipe's evaluations take."""
        return min(self.recipe.evaluate.n, len(self.held_out))


def get_ready(recipe: Recipe, given: Given | None = None, *, own: bool) -> Ready:
    """Everything that :func:`train` does before it claims the run's folder.

    Args:
        own: rows and a model that the run itself keeps may be inputs.
    Raises:
        RecipeError: something cannot work.
    """
    check_run_folder(recipe, own=given is not None or own)
    require_login(recipe.track)
    source, held_out, tokenizer = _checked(recipe if given is None else given.recipe)
    for runtime in dict.fromkeys(stage.composition().runtime for stage in recipe.stages):
        if runtime is not None:
            runtime.reach(chosen(recipe.threads))
    if recipe.evaluate.n and not evaluates(recipe, source):
        log.warning(
            "evaluate.n: nothing is evaluated, since the tasks have no answers to compare with; for an evaluation: "
            "tasks.columns.answer=COLUMN, or evaluate.tasks"
        )
        recipe = recipe.model_copy(update={"evaluate": recipe.evaluate.model_copy(update={"n": 0})})
    for key, tasks in (("tasks", source), ("evaluate.tasks", held_out)):
        if tasks is not source or key == "tasks":
            say_left_out(key, tasks)
    return Ready(recipe, recipe if given is None else given.recipe, source, held_out, tokenizer)


def claimed(recipe: Recipe, *, resume: bool | Literal["auto"], overwrite: bool) -> Run:
    return Run.claim(
        recipe.output,
        recipe.name,
        recipe.resolved(),
        resume=resume,
        overwrite=overwrite,
        may_differ=MAY_DIFFER,
        with_defaults=with_defaults,
        keep=recipe.keep_checkpoints,
        rollouts_every=recipe.rollouts_every,
        track=recipe.track,
    )


def threads_of(recipe: Recipe, run: Run) -> int:
    before = run.threads
    threads = chosen(recipe.threads, before)
    if before not in (None, threads):
        warnings.warn(
            f"{run.path} was computed with {before} threads, now with {threads}: its last bits may differ", stacklevel=3
        )
    return threads


def _say_changed(recipe: Recipe, run: Run) -> None:
    """Keep checksums of the files that the run reads; where it resumes with others, which may be wanted, say so."""
    now, before = checksums(recipe), run.summary().get("inputs", {})
    for key in changed(before, now) if run.resumed else ():
        log.warning(
            "%s: %s has changed since the run began: its next steps are those of the new contents; for a run of these "
            "alone: another name",
            key,
            input_paths(recipe)[key],
        )
    run.summary({"inputs": now})


@dataclass(frozen=True)
class Given:
    """Rows and a model that were passed in from Python, in files until the run keeps them.

    Attributes:
        recipe: the run's, with the files where they are now.
        files: name in the run's folder -> file, or folder.
    """

    recipe: Recipe
    files: Mapping[str, Path]


def check_run_folder(recipe: Recipe, *, own: bool = False) -> None:
    """Raise RecipeError for a run folder that cannot be created, or that is, contains or is inside an input.

    Args:
        own: rows and a model that the run itself keeps may be inputs.
    """
    place = Path(recipe.output) / recipe.name
    inputs = input_paths(recipe)
    if own:
        inputs = {key: path for key, path in inputs.items() if Path(path).parent not in (place / KEPT, place / INITIAL)}
    check_output("output", place, folder=True, inputs=inputs)


def check(recipe: Recipe) -> tuple[TaskSource, TaskSource]:
    """Check everything that can be checked before a model is loaded; returns the training and evaluation tasks.

    Raises:
        RecipeError: tasks that cannot be read or are empty, a prompt that fills the model's context, a tokenizer
            without a chat template, ...
    """
    source, held_out, _ = _checked(recipe)
    return source, held_out


def _checked(recipe: Recipe) -> tuple[TaskSource, TaskSource, PreTrainedTokenizerBase]:
    source, held_out, evaluated = _built(recipe)
    with allow_code():
        graded = evaluated or any(stage.grades for stage in recipe.stages)
        for reward in (recipe.reward if graded else (), *(stage.composition().reward for stage in recipe.stages)):
            if reward:
                combine(reward, source)
            for part in reward:
                part.check_tasks(source)
    for stage in recipe.stages:
        if (data := stage.composition().data) is not None:
            data.check_first_rows()
        with allow_code():
            check_own(stage)
            stage.check_tasks(source)
        if not evaluated and any(isinstance(part, Until) and part.held_out for part in stage.components()):
            raise RecipeError(
                f"stages.{stage.name}.until.accuracy: got 'held-out', but the tasks have no answers to compare with; "
                "allowed: evaluate.tasks, or no until"
            )
    if evaluated:
        with allow_code():
            recipe.evaluation_rollout.check_tasks(held_out)
    tokenizer = load_tokenizer(recipe.model)
    for stage in recipe.stages:
        if (teacher := stage.composition().teacher) is not None:
            check_teacher(teacher, tokenizer)
        if (reference := stage.composition().reference) is not None:
            check_reference(reference, recipe.model, tokenizer)
            if isinstance(stage, (Online, Offline)) and not Method.of(stage).reads_reference(stage):
                raise RecipeError(
                    f"stages.{stage.name}.reference: got an average, but nothing here reads a reference; allowed: "
                    "none, or a loss, credit or reward that does (objective.kl.coefficient, objective.kind=dpo)"
                )
    limit = context_of(recipe.model, tokenizer)
    reach_engines(recipe)
    check_learners(recipe)
    check_recorded(recipe, tokenizer, limit)
    check_stages_tasks(recipe, tokenizer, limit)
    with allow_code():
        told = recipe.evaluation_rollout.tools if evaluated else ()
        shown = [told, *(of.rollout.tools for stage in recipe.stages if (of := stage.composition()).rollout)]
    fitting = check_prompts("tasks", source, tokenizer, limit, max(shown, key=lambda tools: len(to_json(tools))))
    held_out = check_prompts("evaluate.tasks", held_out, tokenizer, limit, told) if evaluated else fitting
    return fitting, held_out, tokenizer


def reach_engines(recipe: Recipe) -> None:
    """Raise RecipeError where a server that an engine needs does not answer, or is another one."""
    own = [stage.composition().engine for stage in recipe.stages]
    for engine in dict.fromkeys([*own, recipe.evaluation_engine if recipe.evaluate.n else None]):
        if engine is not None:
            engine.reach(recipe.model)


def check_learners(recipe: Recipe) -> None:
    """Raise RecipeError where a library that a learner needs is not installed."""
    for learner in (stage.composition().learner for stage in recipe.stages):
        if learner is not None:
            learner.check_installed()


def check_own(stage: StageSettings) -> None:
    """Raise RecipeError where a component of the user's own builds something that its slot cannot use."""
    if isinstance(stage, (Online, Offline)) and own_within((stage.credit, stage.objective)):
        Method.of(stage)
    rollout = stage.composition().rollout
    if rollout is not None and own_within(rollout):
        rollout.build()


def _built(recipe: Recipe) -> tuple[TaskSource, TaskSource, bool]:
    """The training tasks, those to evaluate on, which are not trained, and whether they are evaluated at all."""
    source = recipe.tasks.build("train", recipe.seed)
    if not len(source):
        raise RecipeError("tasks: got an empty source; allowed: at least one task")
    if not evaluates(recipe, source):
        return source, source, False
    with errors_name("tasks" if recipe.evaluate.tasks is None else "evaluate.tasks", "tasks"):
        held_out = (recipe.evaluate.tasks or recipe.tasks).build("heldout", recipe.seed)
    if not len(held_out):
        raise RecipeError("evaluate.tasks: got no held-out task; allowed: at least one, or evaluate.n=0")
    return without(source, prompt_hashes(held_out)), held_out, True


def evaluates(recipe: Recipe, source: TaskSource) -> bool:
    """Whether accuracy is measured: not where rows to imitate have no answers, and nothing but these is graded."""
    by_answers = recipe.evaluate.tasks is None and all("tasks-verifier" in part.offers for part in recipe.reward)
    answers = gradable(source) or any(stage.grades for stage in recipe.stages)
    return recipe.evaluate.n > 0 and (answers or not by_answers)


def check_recorded(recipe: Recipe, tokenizer: PreTrainedTokenizerBase, limit: int) -> None:
    """Raise RecipeError where trajectories that the stages read cannot be used."""
    for of in (stage.composition() for stage in recipe.stages):
        if of.data is not None:
            of.data.check_files(tokenizer, limit, of.objective)
        if of.replay is not None:
            of.replay.check_files(tokenizer)


def check_stages_tasks(recipe: Recipe, tokenizer: PreTrainedTokenizerBase, limit: int) -> None:
    """Raise RecipeError where the prompts of a stage's own tasks do not fit; say which rows are left out."""
    for stage in recipe.stages:
        if isinstance(stage, SupervisedStage) and (own := stage.fitting(recipe.seed, tokenizer, limit)) is not None:
            say_left_out(f"stages.{stage.name}.tasks", own)


async def _train(
    recipe: Recipe,
    run: Run,
    source: TaskSource,
    evaluation_source: TaskSource,
    interrupted: Callable[[], bool],
    given: Given | None,
) -> None:
    with run.timed("load"):
        policy = load_policy((recipe if given is None else given.recipe).model)
    _require_space(run, policy)
    start_weights = None
    if any(isinstance(stage, SupervisedStage) and stage.start == "run" for stage in recipe.stages):
        start_weights = [p.detach().clone() for p in policy.module.parameters() if p.requires_grad]
    evaluator: Evaluator | None = None
    if recipe.evaluate.n:
        with allow_code():
            evaluator = _evaluator(recipe, evaluation_source, combine(recipe.reward, evaluation_source))
    run.begin()
    run.summary({"threads": torch.get_num_threads(), "by_clock": any(map(by_clock, recipe.stages))})
    run.keep_given({} if given is None else given.files)
    _say_changed(recipe, run)
    if (unused := left_out(source)) != LeftOut():
        run.summary({"left_out": unused})
    found = run.restore()
    total = sum(stage.steps for stage in recipe.stages)
    with Progress(total, done=found[0] if found else 0, title=recipe.name) as progress, only_new():
        progress.saved(found[0] if found else None)
        session = Session(
            policy,
            run,
            progress,
            source,
            recipe.reward,
            evaluator,
            recipe.seed,
            interrupted,
            recipe.checkpoint_every,
            recipe.minutes_between_checkpoints,
            digests=recipe.digests,
            max_steps_without_signal=recipe.max_steps_without_signal,
            trees_every=recipe.trees_every,
            names=[stage.name for stage in recipe.stages],
            left_out=unused,
            save_best=recipe.evaluate.save_best,
            start_weights=start_weights,
            recipe=recipe,
        )
        if "recipe" not in run.summary():
            await _evaluate_before(recipe, session)
        progress.to_come = partial(_to_come, recipe, evaluator)
        progress.at_end = {"saving": 1, "evaluation": 0 if evaluator is None else evaluator.completions}
        if found is not None:  # what the evaluations before the interruption took
            completions = progress.at_end["evaluation"] + progress.to_come(0, found[0])["evaluation"]
            progress.priced("evaluation", run.seconds.get("evaluate", 0.0), completions)
        last = await _stages(recipe, session, found[1] if found else None)
        try:
            await _evaluate_after(recipe, session)
        except (Interrupted, OSError) as error:
            session.first_step -= last.step  # back to the first step of the last stage, whose state is saved
            if isinstance(error, Interrupted):
                session.save(last.step, last.state_dict)
            else:
                with suppress(OSError, CheckpointError):  # what kept the model from being written may keep it too
                    session.save(last.step, last.state_dict)
            raise


def _to_come(recipe: Recipe, evaluator: Evaluator | None, done: int, last: int) -> dict[str, float]:
    """How many checkpoints and how many completions of evaluations come between steps, after a step up to another."""
    first, evaluations, checkpoints = 0, 0, 0
    for stage in recipe.stages:
        evaluations += _due(recipe.evaluate.every, first, stage.steps, done, last)
        checkpoints += _due(recipe.checkpoint_every, first, stage.steps, done, last)
        if recipe.keep is not None:
            checkpoints += _due(recipe.keep.every, first, stage.steps, done, last)
        first += stage.steps
    completions = 0 if evaluator is None else evaluations * len(evaluator.tasks) * evaluator.samples
    return {"saving": checkpoints, "evaluation": completions}


def _due(every: int, first: int, steps: int, done: int, last: int) -> int:
    """How often something happens within a stage that follows ``first`` steps, after a step up to another."""
    return sum(done < first + step <= last for step in range(every, steps, every)) if every else 0


def _require_space(run: Run, policy: Policy) -> None:
    """Raise RunError where the trained model cannot be saved: training would be in vain."""
    needed, free = bytes_of(policy.module), disk_usage(run.path).free
    if free < needed:
        raise RunError(
            f"the trained model needs {size(needed)} in {run.model}, and {size(free)} are free: free some space, or "
            "output=FOLDER on another disk"
        )


async def _stages(recipe: Recipe, session: Session, state: dict[str, Any] | None) -> StageRun:
    """Each stage in order, from where a checkpoint's state left off; returns the last one."""
    if state is not None:
        session.stage = session.names.index(state["stage"])
        session.first_step = state["first_step"]
        session.counts.load_state_dict(state["counts"])
    while True:
        settings = recipe.stages[session.stage]
        to_follow = recipe.stages[session.stage + 1 :]
        session.progress.stage = settings.name if len(recipe.stages) > 1 else ""
        session.beside = {}
        stage = settings.build(session)
        session.handed_on = None
        if state is not None:
            stage.load_state_dict(state["of_stage"])
            state = None
            # An engine with a copy of the weights has those from before the checkpoint was read.
            await stage.engine.load(session.policy.module, stage.engine.version)
        elif session.stage and (session.checkpoint_every or session.checkpoint_minutes or session.run.resumed):
            # What the stages before have left is not computed again, and this one's first step can be replayed.
            session.save(0, stage.state_dict)
        session.progress.steps_begin(until=session.first_step + settings.steps if to_follow else None)
        of = settings.composition()
        # Several processes would gather their states after each step.
        shared_out = of.learner is not None and "processes" in of.learner.offers
        session.engine_elsewhere = of.engine is not None and of.engine.elsewhere and not shared_out
        session.remember(stage.step, stage.state_dict)
        try:
            await stage.run()
        except LostOutside as error:
            if not session.save_whole_step(stage):
                raise
            step = session.first_step + stage.step
            saved = f"a checkpoint of step {step} is written; to go on from it: the same command with --resume"
            raise type(error)([*error.lines, saved]) from error
        _note_ending(session, stage)
        session.first_step += stage.step
        # A stage may end before its steps are done.
        session.progress.total = session.first_step + sum(later.steps for later in to_follow)
        if session.stage + 1 == len(recipe.stages):
            session.progress.stage = ""
            return stage
        if recipe.keep_stages:
            with session.run.timed("save"):
                save_policy(session.policy, session.folder(settings.name) / "model")
        session.stage += 1
        following = recipe.stages[session.stage]
        if isinstance(following, Online) and following.value_head == "current":
            session.handed_on = dict(stage.learner.models(("parameters",)))


def _note_ending(session: Session, stage: StageRun) -> None:
    """Write to the summary how many steps a stage had, and tell the user why it ended before its steps were done."""
    name, why = stage.settings.name, stage.ended_by
    known = session.run.summary().get("ended", {})
    session.run.summary({"ended": known | {name: {"steps": stage.step, "why": why or "its steps are done"}}})
    if why and stage.step < stage.settings.steps:
        of = f"stage {name}" if len(session.names) > 1 else "training"
        session.progress.say(f"{of} ends after {stage.step} of {stage.settings.steps} steps: {why}")


def _evaluator(recipe: Recipe, source: TaskSource, grader: Combined) -> Evaluator:
    settings = recipe.evaluate
    return Evaluator(
        first_tasks(source, settings.n),
        grader,
        settings.sampling or recipe.stages[-1].sampling,
        settings.samples,
        settings.k,
        settings.greedy,
        settings.every,
        recipe.evaluation_rollout,
        begun(recipe),
    )


async def _evaluate(settings: EngineSettings, session: Session) -> EvaluationResult | None:
    """Evaluate held-out tasks under the current weights.

    Raises:
        Interrupted: between two tasks; nothing of this evaluation is written.
    """
    evaluator = session.evaluator
    if evaluator is None:
        return None

    def done() -> None:
        if session.interrupted():
            raise Interrupted(session.first_step)
        count()

    with session.run.timed("evaluate"), session.progress.apart("evaluation", evaluator.completions):
        session.progress.stops_after = "task"
        count = session.counter("evaluating", len(evaluator.tasks) * (1 + evaluator.greedy))
        result = await evaluator.evaluate(session.policy, settings.build(session.policy), session.seed, done)
        session.progress.stops_after = session.progress.unit
    session.say_ungraded(result.trees)
    return result


async def _evaluate_before(recipe: Recipe, session: Session) -> None:
    before = await _evaluate(recipe.evaluation_engine, session)
    if before is not None:
        session.run.summary({"before": before.metrics()})
        session.run.examples([_example(tree, "before") for tree in before.trees[:EXAMPLES]])
    session.run.summary({"recipe": recipe.label or recipe.name, "title": recipe.title, "seed": recipe.seed})


async def _evaluate_after(recipe: Recipe, session: Session) -> None:
    run = session.run
    with run.timed("save"), session.progress.apart("saving"):  # before anything else can fail
        save_policy(session.policy, run.model)
        for name, policy in session.beside.items():
            save_policy(policy, run.models / name)
    run.keep()
    after = await _evaluate(recipe.evaluation_engine, session)
    if after is not None:
        figures = after.metrics()
        run.summary({"after": figures})
        if figures["overall"] is not None:
            session.keep_if_best(figures["overall"], session.first_step)
        known = {example["task_id"]: example for example in run.read_examples()}
        examples = [known.get(tree.task.id, {}) | _example(tree, "after") for tree in after.trees[:EXAMPLES]]
        # First those that show what was learnt: incorrect before, correct after.
        run.examples(
            sorted(examples, key=lambda e: (e.get("before") or {}).get("correct") or not e["after"]["correct"])
        )
    counts = session.counts
    lesson = {"learnt": counts.learnt, "nothing_learnt": counts.why_nothing_learnt}
    run.summary({"steps": session.first_step, **counts.state_dict(), **lesson})
    written, summary = recipe.resolved(), run.summary()
    names_code = bool(own_within(recipe)) or not all(map(is_passed_in, named_code(recipe)))
    atomic_write(run.model / "README.md", model_card(written, summary, names_code=names_code))
    if best := summary.get("best"):
        of_run = {key: summary[key] for key in ("versions", "before", "learnt") if key in summary}
        of_best = {"overall": best["overall"], "tasks": summary["after"]["tasks"], "samples": recipe.evaluate.samples}
        of_best = of_run | {"after": of_best, "steps": best["step"]}
        atomic_write(run.best / "README.md", model_card(written, of_best, names_code=names_code))
    run.summary({"finished": True})


EXAMPLES = 64
"""Number of tasks whose first completion is written to the examples, before and after training."""


def _example(tree: Tree, when: Literal["before", "after"]) -> dict[str, Any]:
    leaf = tree.trajectories[0]
    task, written = tree.task, "".join(node.text for node in leaf.path()[1:])
    return {
        "task_id": task.id,
        "level": task.columns.get("level"),
        "prompt": tree.root.text,
        "answer": None if task.answer is None else str(task.answer),
        when: {"completion": written, "correct": leaf.grade.verdict if leaf.grade else None},
    }
