"""``lyceum train``: the plan, the run, the results."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lyceum.cli.options import Json, takes
from lyceum.cli.outcome import Failure, failure_of
from lyceum.cli.output import Output, printing
from lyceum.core import paper_folders
from lyceum.utils.errors import NOTHING_LEARNT, STOPPED, errors_name
from lyceum.utils.terminal import printable, quoted

if TYPE_CHECKING:  # it takes a second, and --help does not need it
    from lyceum.analysis.sizes import Sizes
    from lyceum.recipe.schema import Recipe


@takes("lyceum.api:train", "name resume overwrite")
def command(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (see: lyceum recipes), or a .yaml file.")],
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Recipe keys to change, such as steps=50 objective.clip_high=0.28 "
            "(all keys: lyceum recipes show RECIPE).",
        ),
    ] = None,
    *,
    name: str | None,
    resume: bool,
    overwrite: bool,
    nproc: Annotated[
        int, typer.Option(min=1, help="Processes that train together on this machine, with learner.kind=fsdp.")
    ] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, show the plan and the first prompt, and stop.")
    ] = False,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="CARD", help="With --dry-run: hold it against a card that is not here, as h100."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a model by a recipe.

    For example: lyceum train grpo steps=20 model=path/to/folder tasks=data.jsonl

    Ctrl-C stops it after the current step, with a checkpoint that --resume continues from, and says what a second one
    would cost, which stops it at once.
    """
    keys = keys or []
    with printing(as_json) as output:
        from lyceum.learner.fsdp import process_number, processes
        from lyceum.recipe.schema import load_recipe
        from lyceum.utils.errors import Interrupted, NothingLearntWarning, RecipeError

        if on is not None and not dry_run:
            raise RecipeError(f"--on: got {quoted(on)} without --dry-run; allowed: both, or neither")
        loaded = load_recipe(recipe, [*keys, *([("name", name)] if name is not None else [])])
        check_processes(loaded, nproc)
        if process_number() > 0:
            return follow(loaded)
        check_paths(loaded, resume=resume, overwrite=overwrite)
        replaced = replaced_parts(recipe, keys)
        if dry_run:
            return rehearse(output, loaded, resume=resume, overwrite=overwrite, replaced=replaced, card=on)
        from lyceum import api  # not before a mistake in a key is answered: it imports what evaluates and compares too
        from lyceum.analysis.run_plan import plan
        from lyceum.analysis.tables import closing_lines
        from lyceum.run.checkpoint import DiskFull
        from lyceum.utils.atomic_files import FULL

        def began(threads: int, evaluated: int, sizes: Sizes) -> None:
            output.show(
                *plan(loaded, resume=resume, threads=threads, evaluated=evaluated, sizes=sizes, replaced=replaced)
            )

        folder = Path(loaded.output) / loaded.name
        warnings.simplefilter("ignore", NothingLearntWarning)  # the last lines say so
        try:
            with processes(nproc, [sys.executable, "-m", "lyceum", "train", recipe, *keys, *paper_folders.options()]):
                run = api.train(loaded, resume=resume, overwrite=overwrite, progress=output.progress, began=began)
        except (Interrupted, KeyboardInterrupt, OSError, DiskFull) as error:
            if isinstance(error, OSError) and error.errno not in FULL:
                raise
            undone = getattr(error, "__notes__", [])
            how = ("--overwrite" if overwrite else "") if undone else "--resume"
            again = resume_command(recipe, keys, name, how=how, nproc=nproc, as_json=as_json)
            lines = [*undone, "to begin again:"] if undone else [saved_in(folder)]
            step = {"step": error.step} if isinstance(error, Interrupted) else {}
            full = failure_of(error)  # None where the user stopped it
            told = [] if full is None else full.lines
            code = STOPPED if full is None else full.code
            raise Failure(code, [*told, *lines, again], path=str(folder), **step, resume=again) from None
        document = {"path": str(run.path), "model": str(run.model), "report": str(run.report), **run.summary}
        output.json(document)
        if not as_json:
            output.show(*closing_lines(run, loaded))
        if run.learnt is False:
            cause, *details = run.summary["nothing_learnt"]
            untold = details if as_json else []  # already printed when it happened
            same = [] if run.summary["tokens_trained"] else [f"{run.model} is the unchanged initial model"]
            raise Failure(NOTHING_LEARNT, [cause, *untold, *same], **document)


def rehearse(
    output: Output, recipe: Recipe, *, resume: bool, overwrite: bool, replaced: str, card: str | None = None
) -> None:
    """Show what the run would begin with, and what it would take."""
    from rich.text import Text

    from lyceum.analysis.rehearsal import rehearse as checked
    from lyceum.analysis.run_plan import plan, sizes_table
    from lyceum.utils.numbers import counted

    found = checked(recipe, resume=resume, overwrite=overwrite, card=card)
    task, sizes = found.first, found.sizes
    told = {"threads": found.threads, "evaluated": found.evaluated, "sizes": sizes}
    output.show(*plan(recipe, resume=resume, replaced=replaced, **told), sizes_table(sizes), "")
    held_out = f", {found.held_out} held out" if found.held_out else ""
    counts = "" if found.tasks is None else f"{counted(found.tasks, 'task')} to train on{held_out}. "
    output.show(
        f"{counts}The prompt of {printable(task.id)}, {counted(found.tokens, 'token')}:",
        "",
        Text(printable(found.prompt)),
        "",
        *([] if found.tasks is None else [Text(f"answer  {'none' if task.answer is None else quoted(task.answer)}")]),
        "nothing was trained or written (--dry-run)",
    )
    output.json(
        {
            "recipe": recipe.resolved(),
            "tasks": found.tasks,
            "held_out": found.held_out,
            "first": {"task_id": task.id, "prompt": found.prompt, "tokens": found.tokens, "answer": task.answer},
            "threads": found.threads,
            "memory": {phase: dict(parts) for phase, parts in sizes.memory.items()},
            "memory_free": sizes.free,
            "disk": dict(sizes.disk),
            "disk_free": sizes.disk_free,
        }
    )


def check_paths(recipe: Recipe, *, resume: bool, overwrite: bool) -> None:
    """Refuse at once, before the imports that training takes, a run's folder that is taken, cannot be made or is not
    there to be resumed, a resumed run of another recipe, and tasks of a file that does not exist."""
    from lyceum.recipe.resumed import MAY_DIFFER, with_defaults
    from lyceum.run.files import check_output
    from lyceum.run.folder import check_claim

    def as_given(written: dict[str, Any]) -> dict[str, Any]:
        """Where nothing was evaluated because tasks have no answers, the run has written n=0; they are read later."""
        began = with_defaults(written)
        evaluate = began.get("evaluate")
        if not isinstance(evaluate, dict) or evaluate.get("n") != 0:
            return began
        return began | {"evaluate": {**evaluate, "n": recipe.evaluate.n}}

    check_output("output", Path(recipe.output) / recipe.name, folder=True)
    check_claim(
        recipe.output,
        recipe.name,
        recipe.resolved(),
        resume=resume,
        overwrite=overwrite,
        may_differ=MAY_DIFFER,
        with_defaults=as_given,
    )
    recipe.tasks.check_paths()
    if recipe.evaluate.tasks is not None:
        with errors_name("evaluate.tasks", "tasks"):
            recipe.evaluate.tasks.check_paths()


def check_processes(recipe: Recipe, nproc: int) -> None:
    """Refuse several processes, of this machine or of torchrun, where none of the recipe's learners can share work.

    Raises:
        RecipeError: as above.
    """
    from lyceum.learner.fsdp import process_count
    from lyceum.utils.errors import RecipeError

    if process_count() > 1 and nproc > 1:
        raise RecipeError(f"--nproc: got {nproc} in one of {process_count()} processes of torchrun; allowed: 1")
    number = max(nproc, process_count())
    kinds = sorted({stage.learner.kind for stage in recipe.stages if "processes" not in stage.learner.offers})
    if number > 1 and len(kinds) == len({stage.learner.kind for stage in recipe.stages}):
        what = "--nproc" if nproc > 1 else "WORLD_SIZE (of torchrun)"
        raise RecipeError(f"{what}: got {number}, but learner.kind is {kinds[0]!r}; allowed: 1, or learner.kind=fsdp")


def follow(recipe: Recipe) -> None:
    """Train in one of the other processes, by the orders of the first."""
    from lyceum.learner.fsdp import serve
    from lyceum.models.load import load_policy
    from lyceum.utils.threads import chosen, computing_with

    # On the CPU: its weights are only what shares are made of.
    with computing_with(chosen(recipe.threads)):
        serve(lambda: load_policy(recipe.model.model_copy(update={"device": "cpu"})))


def resume_command(
    recipe: str, keys: Sequence[str], name: str | None, *, how: str = "--resume", nproc: int = 1, as_json: bool
) -> str:
    """The command that resumes the run that this one began, or with another option restarts it."""
    named = ["--name", name] if name is not None else []
    several = ["--nproc", str(nproc)] if nproc > 1 else []
    options = [*named, *([how] if how else []), *several, *(["--json"] if as_json else [])]
    return shlex.join(["lyceum", "train", recipe, *keys, *options, *paper_folders.options()])


def saved_in(folder: Path) -> str:
    """A line about the latest checkpoint of a stopped run."""
    from lyceum.run import checkpoint

    saved = checkpoint.latest(folder / "checkpoints") if (folder / "checkpoints").is_dir() else None
    if saved is None:
        return f"{folder} has no checkpoint yet; to begin again:"
    return f"{folder} has a checkpoint of step {checkpoint.step_of(saved)}; to continue:"


def replaced_parts(recipe: str, keys: Sequence[str]) -> str:
    """Which parts of its reward, besides the verifier, a recipe loses by ``reward=...``, and what to type to keep them;
    empty if none."""
    from lyceum.recipe.schema import read_raw
    from lyceum.utils.documents import read_yaml, write_yaml

    typed = [key.removeprefix("reward=") for key in keys if key.startswith("reward=")]
    own = read_raw(recipe).get("reward") or []
    if not typed or not isinstance(own, list):
        return ""
    given = read_yaml(typed[-1])
    kept = {_kind_of(part) for part in (given if isinstance(given, list) else [given])}
    lost = [part for part in own if isinstance(part, dict) and _kind_of(part) not in kept]
    if not lost:
        return ""
    settings = [write_yaml(part, default_flow_style=True, width=2**31 - 1).strip() for part in lost]
    inner = typed[-1].strip().removeprefix("[").removesuffix("]") if isinstance(given, list) else typed[-1]
    again = shlex.quote(f"reward=[{','.join([inner, *settings])}]")
    return f"of the recipe's own reward, {' and '.join(map(_kind_of, lost))} is left out; to keep it: {again}"


def _kind_of(part: Any) -> str:
    return str(part.get("kind", "function")) if isinstance(part, dict) else str(part)
