"""The commands and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

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

Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON document on standard output, and progress as lines of JSON on standard error."
    ),
]


def _use(folders: list[Path] | None) -> list[Path] | None:
    from lyceum.core.paper_folders import use

    use(folders or [])
    return folders


Papers = Annotated[
    list[Path] | None,
    typer.Option(
        "--papers",
        metavar="DIR",
        help="A paper's folder of your own, or one with several: recipes are known by name, components by kind, and "
        "code is trusted. May be given several times.",
        callback=_use,
    ),
]
Keys = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Recipe keys to change, such as steps=50 objective.clip_high=0.28 (all keys: lyceum recipes show RECIPE).",
    ),
]


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (see: lyceum recipes), or a .yaml file.")],
    keys: Keys = None,
    name: Annotated[str | None, typer.Option(help="Name of the run's folder; by default the recipe's.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run of that name.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run of that name.")] = False,
    nproc: Annotated[
        int, typer.Option(min=1, help="Processes that train together on this machine, with learner.kind=fsdp.")
    ] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, show the plan and the first prompt, and stop.")
    ] = False,
    papers: Papers = None,
    json: Json = False,
) -> None:
    """Train a model by a recipe.

    For example: lyceum train grpo steps=20 model=path/to/folder tasks=data.jsonl

    Ctrl-C stops it after the current step, with a checkpoint that --resume continues from, and says what a second one
    would cost, which stops it at once.
    """
    from lyceum.cli.train import command

    command(
        recipe,
        keys or [],
        name=name,
        resume=resume,
        overwrite=overwrite,
        nproc=nproc,
        dry_run=dry_run,
        as_json=json,
    )


@app.command("eval", short_help="Measure a model: pass@k, maj@k, greedy.")
def evaluate(
    model: Annotated[str, typer.Argument(help="base, a model's folder, a hub name, a .gguf file, or a run's folder.")],
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="Further settings: tasks.levels=[1,2] tasks.columns.prompt=question top_k=20"
        ),
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(
            help="A kind (chain), reasoning-gym:NAME, a file (.jsonl, .parquet, .csv), or a hub dataset; "
            "by default those of the run. Every row of a file is used, unless tasks.heldout_share=SHARE."
        ),
    ] = None,
    k: Annotated[str, typer.Option("--k", help="Values of k for pass@k and maj@k.")] = "1,8",
    n: Annotated[int, typer.Option("--n", help="Maximum number of tasks.")] = 200,
    samples: Annotated[int | None, typer.Option(help="Samples per task; by default the largest k.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sampling top-p.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Maximum tokens per completion.")] = None,
    reward: Annotated[str | None, typer.Option(help="Reward that grades: a kind; by default the tasks' own.")] = None,
    greedy: Annotated[bool, typer.Option(help="Measure the greedy completion too.")] = True,
    seed: Annotated[int, typer.Option(help="Random seed of tasks and samples.")] = 0,
    output: Annotated[Path | None, typer.Option(help="Write the metrics to this file, as JSON.")] = None,
    papers: Papers = None,
    json: Json = False,
) -> None:
    """Measure a model: pass@k, avg@k, maj@k and greedy, each with its 95 % interval, by level.

    For example: lyceum eval runs/demo --k 1,8,64
    """
    from lyceum.cli.evaluate import command

    sampling = _sampling(temperature, top_p, max_tokens)
    command(
        model,
        tasks,
        keys or [],
        sampling,
        k=k,
        n=n,
        samples=samples,
        reward=reward,
        greedy=greedy,
        seed=seed,
        output=output,
        as_json=json,
    )


@app.command(short_help="Grade completions in a file with any reward.")
def grade(
    file: Annotated[
        Path,
        typer.Argument(
            help="A file (.jsonl, .parquet, .csv) with columns prompt, completion, answer and what the reward reads, "
            "or a run's folder."
        ),
    ],
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Settings: reward.extract=boxed reward.workers=8 columns.completion=response model.dtype=bfloat16 "
            "(see: lyceum components reward).",
        ),
    ] = None,
    reward: Annotated[
        str | None,
        typer.Option(
            help="A kind (math, number, choice, exact, regex, json-schema, sql, ...), '{kind: KIND, SETTING: VALUE}', "
            "FILE.py:FUNCTION, or a recipe, whose whole reward it is; by default a run's own."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model that the reward asks, and that counts tokens: as for lyceum eval.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write the lines to this file, too.")] = None,
    papers: Papers = None,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON per row, and nothing else.")] = False,
) -> None:
    """Grade completions that are in a file, with any reward.

    For example: lyceum grade answers.jsonl --reward math --json, or of a run again: lyceum grade runs/demo

    Each line has the row's number, score (null where it could not be graded, with the reason), correct and parts; of a
    run also step, task and the recorded outcome. Rows one after another with the same prompt, answer and column group
    are graded together, for rewards that compare the completions of a group. Exit code 0 whatever the rows hold,
    but 3 where none of them could be graded.
    """
    from lyceum.cli.grade import command

    command(file, keys or [], reward=reward, model=model, output=output, as_json=json)


@app.command(short_help="Search for answers at test time.")
def search(
    model: Annotated[str, typer.Argument(help="base, a model's folder, a hub name, a .gguf file, or a run's folder.")],
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Further settings: tasks.levels=[7,8]; of one strategy beam.width=2, of all with steps "
            "step.by=lines, of the value model value.length_power=0.5 (see: lyceum components rollout).",
        ),
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(
            help="A kind (chain), reasoning-gym:NAME, a file (.jsonl, .parquet, .csv), or a hub dataset; "
            "by default those of the run."
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            help="greedy, best-of-n, majority, filtered-majority, weighted-majority, beam, dvts, best-first, mcts, "
            "value-mcts, or all; or any rollout and a choice (first, best, majority, weighted-majority): "
            "'{rollout: {kind: segments, segment_tokens: 16}, choose: best}'. May be given several times."
        ),
    ] = None,
    sizes: Annotated[str, typer.Option(help="Numbers of trajectories per task.")] = "1,4,16",
    value: Annotated[
        str,
        typer.Option(
            help="Value model that ranks trajectories and steps: a kind (likelihood: the model's own), "
            "the folder of a trained value or process model, or none."
        ),
    ] = "likelihood",
    tokens: Annotated[
        str | None,
        typer.Option(
            help="Token budgets per task at which accuracy is compared, such as 200,800, interpolated between sizes; "
            "by default four that all strategies reach."
        ),
    ] = None,
    n: Annotated[int, typer.Option("--n", help="Maximum number of tasks.")] = 200,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sampling top-p.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Maximum tokens per completion.")] = None,
    reward: Annotated[
        str | None, typer.Option(help="Reward that grades afterwards: a kind; by default the tasks' own.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of tasks and samples.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for search.json, search.png and every answer; the same command resumes from it."),
    ] = None,
    papers: Papers = None,
    json: Json = False,
) -> None:
    """Search for answers at test time: accuracy against tokens spent, every strategy side by side.

    A strategy is a rollout, which grows a tree of trajectories, and a choice of one of them by votes, by likelihood or
    by a value model; the verifier only grades the chosen one afterwards. A size is the number of trajectories per task.
    Tokens spent are those fed to the model (shared prefixes count once), plus those that a value model read.

    For example: lyceum search runs/demo --strategy all --sizes 1,4,16 --output search
    """
    from lyceum.cli.search import command

    sampling = _sampling(temperature, top_p, max_tokens)
    command(
        strategy or ["all"],
        sizes,
        tokens,
        output=output,
        as_json=json,
        model=model,
        tasks=tasks,
        overrides=keys or [],
        value=value,
        n=n,
        reward=reward,
        seed=seed,
        **sampling,
    )


@app.command()
def compare(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE... [KEY=VALUE]... [RECIPE:KEY=VALUE]...",
            help="Recipes, grpo@wide for grpo under the label wide; keys for all, or for one of them.",
        ),
    ],
    seeds: Annotated[int, typer.Option(help="Runs per recipe.")] = 3,
    tokens: Annotated[
        int | None, typer.Option(help="Sampled tokens per run; by default each recipe's steps decide.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="NAME of the folder compare-NAME; by default the recipes.")] = None,
    output: Annotated[str, typer.Option(help="Folder that contains it.")] = "runs",
    papers: Papers = None,
    json: Json = False,
) -> None:
    """Compare recipes on the same tasks, seeds and budget. The same command resumes where it was stopped.

    For example: lyceum compare grpo grpo@wide wide:objective.clip_high=0.28 --seeds 3 --tokens 200000
    """
    from lyceum.cli.compare import command

    command(words, seeds=seeds, tokens=tokens, name=name, output=output, as_json=json)


@app.command(short_help="Say what training added to a base model.")
def boundary(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="BASE [MODEL]... [KEY=VALUE]...",
            help="As for lyceum eval, the base first, MODEL@LABEL under another label; or a .jsonl file of samples "
            '({"task": ID, "correct": [true, false, null]} per line). Keys as for lyceum eval.',
        ),
    ],
    tasks: Annotated[
        str | None, typer.Option(help="As for lyceum eval; by default those of the first model that is a run.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Samples per task and model: the largest k.")] = 64,
    n: Annotated[int, typer.Option("--n", help="Maximum number of tasks.")] = 200,
    hints: Annotated[
        str | None,
        typer.Option(
            help="Sample under the tasks' hints too: tiers with commas between them, such as planning, or all."
        ),
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sampling top-p.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Maximum tokens per completion.")] = None,
    reward: Annotated[str | None, typer.Option(help="Reward that grades: a kind; by default the tasks' own.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed of tasks and samples.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder for boundary.json, .html and .png and the samples; the same command resumes from it."
        ),
    ] = None,
    unsolved: Annotated[
        Path | None,
        typer.Option(help="Write the tasks that no sample of the base solves to this .jsonl file, for tasks=FILE."),
    ] = None,
    papers: Papers = None,
    json: Json = False,
) -> None:
    """Say what training added to a base model: pass@k of both for every k, where the curves cross, which tasks which
    of them solves, perplexity of correct answers under the base, accuracy with hints.

    For example: lyceum boundary base runs/demo --samples 64 --hints all --output study

    Only the base: lyceum boundary base --tasks data.jsonl --samples 256 --unsolved hard.jsonl
    """
    from lyceum.cli.boundary import command

    sampling = _sampling(temperature, top_p, max_tokens)
    command(
        words,
        sampling,
        tasks=tasks,
        samples=samples,
        n=n,
        hints=hints,
        reward=reward,
        seed=seed,
        output=output,
        unsolved=unsolved,
        as_json=json,
    )


@app.command(short_help="Say which weights training changed.")
def sparsity(
    base: Annotated[str, typer.Argument(help="The model before training: base, a model's folder, or a run's.")],
    model: Annotated[str, typer.Argument(help="The trained one.")],
    other: Annotated[
        str | None, typer.Argument(help="Another training of the same base: do both change the same weights?")
    ] = None,
    atol: Annotated[float, typer.Option(help="Difference of two weights up to which they count as unchanged.")] = 1e-5,
    rank: Annotated[
        bool, typer.Option(help="Compute the updates' ranks: cubic in the width, hours for 7B parameters on a CPU.")
    ] = True,
    output: Annotated[Path | None, typer.Option(help="Write every tensor's numbers to this file, as JSON.")] = None,
    json: Json = False,
) -> None:
    """Say which weights training changed: the share that stays, by kind of layer, and the rank of the updates.

    For example: lyceum sparsity base runs/demo

    Weights are read tensor by tensor, in pieces; no model is loaded.
    """
    from lyceum.cli.sparsity import command

    command(base, model, other, atol=atol, rank=rank, output=output, as_json=json)


@app.command(short_help="Write tiered hints for a dataset.")
def hints(
    tasks: Annotated[
        str,
        typer.Argument(help="A file (.jsonl, .parquet, .csv), a hub dataset, or a kind (chain), which needs --n."),
    ],
    output: Annotated[Path, typer.Option(help="A .jsonl file; tasks that it already has are skipped.")],
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Such as tasks.columns.prompt=question model.dtype=bfloat16"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="A local model's folder, hub name or .gguf file; with --endpoint its name there."),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            help="URL of an OpenAI-compatible server, up to and including /v1. "
            "Its key is read only from the environment variable LYCEUM_API_KEY."
        ),
    ] = None,
    tiers: Annotated[
        str, typer.Option(help="Kinds of hints, from abstract to concrete.")
    ] = "knowledge,planning,solution",
    items: Annotated[int, typer.Option(help="Hints of each kind, each adding to those before it.")] = 4,
    n: Annotated[int | None, typer.Option("--n", help="Maximum number of tasks; by default every row.")] = None,
    concurrency: Annotated[int, typer.Option(help="Concurrent requests.")] = 8,
    timeout_seconds: Annotated[float, typer.Option(help="Timeout of a request to the endpoint.")] = 120.0,
    retries: Annotated[
        int,
        typer.Option(help="Maximum retries per task, after a failure, an unusable answer, or hints with the answer."),
    ] = 2,
    temperature: Annotated[float, typer.Option(help="Sampling temperature.")] = 0.7,
    max_tokens: Annotated[int, typer.Option(help="Maximum tokens of the model's answer.")] = 2048,
    papers: Papers = None,
    json: Json = False,
) -> None:
    """Write ladders of hints for a dataset, which guidance uses where a group fails.

    For example: lyceum hints data.jsonl --endpoint http://localhost:8000/v1 --model qwen --output hints.jsonl,
    then: lyceum train scaf-grpo tasks=hints.jsonl tasks.columns.hints=hints

    The model sees each problem with its answer and, where the task has one, its solution or demonstration. Hints that
    reveal the answer are dropped and requested again. Each row is written when it is done: the same command resumes
    where it was stopped, and retries what failed. Exit code 1 if no task got hints.
    """
    from lyceum.cli.hints import command

    command(
        tasks,
        keys or [],
        output=output,
        model=model,
        endpoint=endpoint,
        tiers=tiers,
        items=items,
        n=n,
        concurrency=concurrency,
        timeout_seconds=timeout_seconds,
        retries=retries,
        temperature=temperature,
        max_tokens=max_tokens,
        as_json=json,
    )


@app.command(short_help="List the recipes, or show every key of one.")
def recipes(
    words: Annotated[list[str] | None, typer.Argument(metavar="[show NAME [KEY=VALUE]...]")] = None,
    papers: Papers = None,
    json: Json = False,
) -> None:
    """List the recipes, or show one with every key explained.

    For example: lyceum recipes show grpo steps=50
    """
    from lyceum.cli.recipes import command

    command(words or [], as_json=json)


@app.command(short_help="Search the papers: what each does, and its recipe.")
def papers(
    text: Annotated[list[str] | None, typer.Argument(help="Words of a name, a title or what a paper does.")] = None,
    state: Annotated[
        str | None,
        typer.Option(help="works, 'mechanism only', part, planned, 'not a method' or 'off the field'; by default all."),
    ] = None,
    after: Annotated[
        str | None, typer.Option(help="What recipes were made after: code, paper, reviews or abstract; by default all.")
    ] = None,
    shown: Annotated[
        str | None, typer.Option(help="What was seen of them here: mechanism or gain; by default all.")
    ] = None,
    folders: Papers = None,
    json: Json = False,
) -> None:
    """List the papers of the field: what each does, which recipe does it, and what the others wait for.

    For example: lyceum papers tree search --state works --after code
    """
    from lyceum.cli.papers import command

    command(" ".join(text or []), state, after, shown, as_json=json)


@app.command(short_help="List the components of each slot.")
def components(
    slot: Annotated[str | None, typer.Argument(help="tasks, reward, rollout, credit, objective, ...")] = None,
    kind: Annotated[str | None, typer.Argument(help="One of the slot's components.")] = None,
    papers: Papers = None,
    json: Json = False,
) -> None:
    """List the components of each slot of a recipe, with their settings.

    For example: lyceum components credit gae
    """
    from lyceum.cli.components import command

    command(slot, kind, as_json=json)


@app.command(short_help="Run a paper's proof: its mechanism acts.")
def prove(
    recipes: Annotated[list[str], typer.Argument(help="Recipes in papers' folders, with a line in their proof.py.")],
    papers: Papers = None,
    json: Json = False,
) -> None:
    """Run the proof of a recipe in a paper's folder: briefly trained its mechanism acts, without it the run is another
    one, and killed and resumed it ends in the same bits. No file is left behind. Exit code 1 if a part is not shown.

    For example: lyceum prove my-paper --papers path/to/my_paper
    """
    from lyceum.cli.prove import command

    command(recipes, as_json=json)


@app.command(short_help="Find the first step in which two runs differ.")
def same(
    a: Annotated[Path, typer.Argument(help="A run's folder (trained with digests=true), or a checkout of lyceum.")],
    b: Annotated[Path, typer.Argument(help="The other one.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE|KEY=VALUE",
            help="For two checkouts, recipes to train with both: by default all, for two steps.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Say where two runs first differ: the step, the part (draw, generation, grades, ...) and the metrics.

    For example: lyceum train grpo digests=true --name a, the same under another version or on another machine as b,
    then: lyceum same runs/a runs/b

    Given two checkouts, it trains recipes with the code of each, side by side. Exit code 1 if anything differs.
    """
    from lyceum.cli.same import command

    command(a, b, words or [], as_json=json)


@app.command(short_help="Try another credit or objective on recorded trees.")
def replay(
    run: Annotated[Path, typer.Argument(help="A run's folder (trained with trees_every=STEPS).")],
    step: Annotated[
        int,
        typer.Option(
            help="Step of the run to replay: the first, or one that follows a checkpoint; its trees must be written."
        ),
    ],
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Keys of credit and objective to change, such as credit=leave-one-out objective.clip_high=0.28; "
            "none compares the run with itself.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write each token's coefficients on both sides to this file, as parquet.")
    ] = None,
    papers: Papers = None,
    json: Json = False,
) -> None:
    """Compare another credit or objective with a run's own, on the trees of a step that the run recorded.

    For example: lyceum train grpo trees_every=20 checkpoint_every=20 --name a, then:
    lyceum replay runs/a --step 21 credit=leave-one-out

    Both are computed on the same trees under the weights that the step began with; nothing is sampled or changed.
    A token's coefficient is d loss / d log-probability: negative where the update makes the token likelier. A sign
    flip is a token that one side makes likelier and the other less likely; the cosine is that of the gradients of
    all weights.
    """
    from lyceum.cli.replay import command

    command(run, step, keys or [], output=output, as_json=json)


@app.command(short_help="Check that a model is sampled and trained right.")
def doctor(
    model: Annotated[str, typer.Argument(help="base, a model's folder, a hub name, a .gguf file, or a run's folder.")],
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Settings of the run to examine: learner.autocast=bfloat16 engine.pack_weights=false model.lora=true "
            "tasks=data.jsonl (see: lyceum components engine, lyceum components learner).",
        ),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="What samples: a kind, or '{kind: KIND, SETTING: VALUE}'; engine=... as a key.")
    ] = None,
    learner: Annotated[
        str | None, typer.Option(help="What trains: a kind, or '{kind: KIND, SETTING: VALUE}'; learner=... as a key.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Completions per sampling setting, of which there are four.")] = 8,
    tokens: Annotated[int, typer.Option(help="Maximum tokens per completion.")] = 16,
    seed: Annotated[int, typer.Option(help="Random seed of tasks and samples.")] = 0,
    papers: Papers = None,
    json: Json = False,
) -> None:
    """Check that a model is sampled and trained right on this machine, and how fast.

    Whether the chat template and the end of sequence fit the model; the engine's log-probabilities are those of the
    learner and of transformers; gradients are those in float64; new weights reach the engine and the saved folder;
    equal seeds give equal samples. Each line says what was found; where a check fails, also what is allowed and what
    to do.

    For example: lyceum doctor path/to/model, or before a run: lyceum doctor path/to/model learner.autocast=bfloat16

    Seconds for the small model, about a minute for 135M parameters on two cores; --samples 4 --tokens 8 is quicker. No
    file is left behind. Exit code 1 if a check fails.
    """
    from lyceum.cli.doctor import command

    command(model, keys or [], engine=engine, learner=learner, samples=samples, tokens=tokens, seed=seed, as_json=json)


@app.command()
def view(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    open: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    json: Json = False,
) -> None:
    """Write a run's report.html again and print its path."""
    from lyceum.cli.view import command

    command(run, open_it=open, as_json=json)


@app.command(short_help="Upload a model and its card to the hub.")
def push(
    run: Annotated[Path, typer.Argument(help="A finished run's folder.")],
    repository: Annotated[str, typer.Argument(help="owner/name on the hub; made if there is none.")],
    best: Annotated[
        bool, typer.Option("--best", help="The model in best/ (evaluate.save_best) and not the last.")
    ] = False,
    public: Annotated[bool, typer.Option("--public", help="Let everybody read it; private by default.")] = False,
    json: Json = False,
) -> None:
    """Upload a run's model and its card to the Hugging Face hub.

    For example: lyceum push runs/demo me/demo

    The card, README.md, names models and tasks by the paths that you gave: read it before --public.
    """
    from lyceum.cli.push import command

    command(run, repository, best=best, public=public, as_json=json)


def _sampling(temperature: float | None, top_p: float | None, max_tokens: int | None) -> dict[str, Any]:
    """The options of sampling that were given, as keys of a recipe."""
    named = {"temperature": temperature, "top_p": top_p, "max_completion_tokens": max_tokens}
    return {key: value for key, value in named.items() if value is not None}


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        from importlib import metadata

        print(metadata.version("lyceum-rl"))
        raise typer.Exit
