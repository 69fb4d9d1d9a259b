"""The commands."""

from __future__ import annotations

from typing import Annotated

import typer

from lyceum.cli import (
    boundary,
    compare,
    components,
    convert,
    doctor,
    evaluate,
    grade,
    hints,
    papers,
    prove,
    push,
    recipes,
    replay,
    same,
    search,
    sparsity,
    train,
    view,
)
from lyceum.cli.options import with_papers

app = typer.Typer(
    name="lyceum",
    help="Reinforcement-learning post-training of reasoning language models: every method is a recipe of components.",
    add_completion=False,
    epilog="Exit codes: 0 done; 1 failed while running; 2 invalid input, nothing was started; "
    "3 nothing was learnt (no reward ever differed), or nothing could be graded; 130 Ctrl-C.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("train")(with_papers(train.command))
app.command("eval", short_help="Measure a model: pass@k, maj@k, greedy.")(with_papers(evaluate.command))
app.command("grade", short_help="Grade completions in a file with any reward.")(with_papers(grade.command))
app.command("search", short_help="Search for answers at test time.")(with_papers(search.command))
app.command("compare")(with_papers(compare.command))
app.command("boundary", short_help="Say what training added to a base model.")(with_papers(boundary.command))
app.command("sparsity", short_help="Say which weights training changed.")(sparsity.command)
app.command("hints", short_help="Write tiered hints for a dataset.")(with_papers(hints.command))
app.command("recipes", short_help="List the recipes, or show every key of one.")(with_papers(recipes.command))
app.command("convert", short_help="Make a recipe of a TRL, verl or OpenRLHF file.")(convert.command)
app.command("papers", short_help="Search the papers: what each does, and its recipe.")(with_papers(papers.command))
app.command("components", short_help="List the components of each slot.")(with_papers(components.command))
app.command("prove", short_help="Run a paper's proof: its mechanism acts.")(with_papers(prove.command))
app.command("same", short_help="Find the first step in which two runs differ.")(same.command)
app.command("replay", short_help="Try another credit or objective on recorded trees.")(with_papers(replay.command))
app.command("doctor", short_help="Check that a model is sampled and trained right.")(with_papers(doctor.command))
app.command("view")(view.command)
app.command("push", short_help="Upload a model and its card to the hub.")(push.command)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        from importlib import metadata

        print(metadata.version("lyceum-rl"))
        raise typer.Exit
