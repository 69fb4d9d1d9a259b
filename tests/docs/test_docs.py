"""Every command and snippet of the pages: run in a folder of its own with the smallest settings, or checked."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest
from blocks import Block, blocks_of, check, commands_in_tables, commands_of, shortened, smallest

import lyceum
from lyceum.cli.outcome import main

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
RUNS = {page: list(blocks_of(page)) for page in PAGES}


@pytest.mark.parametrize("page", [page for page, blocks in RUNS.items() if blocks], ids=lambda page: page.stem)
def test_every_command_and_snippet_runs(page, tmp_path, monkeypatch, in_short):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    names = {"__name__": "__main__"}
    for block in RUNS[page]:
        where = f"{page.name}:{block.line}"
        if block.title is not None:
            (tmp_path / block.title).parent.mkdir(exist_ok=True)
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
            continue
        if block.language == "python":
            code = compile(block.text, where, "exec")
            if block.not_run is None:
                exec(code, names)
        for command in commands_of(block):
            if block.not_run is not None:
                check(command.words)
            else:
                run(command, f"{page.name}:{command.line}")


@pytest.fixture
def in_short(monkeypatch):
    """``lyceum.train`` and ``lyceum.evaluate`` with the smallest settings, whatever a snippet asks for."""
    import lyceum.api as api

    train, evaluate = api.train, api.evaluate

    def train_in_short(recipe="grpo", overrides=(), **keys):
        if not isinstance(recipe, str):  # a command's
            return train(recipe, overrides, **keys)
        short = smallest(recipe, [*overrides])
        dropped = {setting.partition("=")[0] for setting in short}
        keys = {key: value for key, value in keys.items() if key.replace("__", ".") not in dropped}
        return train(recipe, [*overrides, *short], progress="silent", **keys)

    monkeypatch.setattr(api, "train", train_in_short)
    monkeypatch.setattr(api, "evaluate", lambda *given, **keys: evaluate(*given, **{**keys, "n": 2}))


SIDE = ROOT / "docs/side-by-side.md"


@pytest.fixture
def files_of_side(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    for block in RUNS[SIDE]:
        (tmp_path / str(block.title)).write_text(block.text, encoding="utf-8")


@pytest.mark.usefixtures("files_of_side")
def test_commands_in_tables_are_valid_or_refused_as_they_say(capsys):
    # The key that cures it, or the name that was meant.
    told = {
        "model=models/mine": "models/mine",
        "num_generations=8": "rollout.samples",
        "model.quantise=nf4": "pip install bitsandbytes",
        "objective.clip_hihg=0.3": "clip_high",
    }
    for command, refused in commands_in_tables(SIDE):
        if refused:
            assert main(command.words) == 2, command
            error = capsys.readouterr().err
            assert told.get(command.words[-1], "pip install trackio") in error
        else:
            check(command.words)


@pytest.mark.engines  # 25 commands, each with the smallest settings: two minutes on a busy machine
@pytest.mark.usefixtures("files_of_side")
@pytest.mark.parametrize("number", range(sum(not refused for _, refused in commands_in_tables(SIDE))))
def test_commands_in_tables_run(number):
    command = [command for command, refused in commands_in_tables(SIDE) if not refused][number]
    run(command, f"{SIDE.name}:{command.line}")


def run(command, where):
    refused = command.expected[:1] and command.expected[0].startswith("error:")
    words = command.words if refused else shortened(command.words)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    text = out.getvalue() + err.getvalue()
    # 3: a run of one step may have nothing to learn from; errors are what an example expects.
    allowed = (2, 3) if any(line.startswith("error:") for line in command.expected) else (0, 3)
    assert code in allowed, f"{where}: {words}: exit code {code}\n{text}"
    printed = [squeezed(line) for line in text.splitlines()]
    after = 0
    for line in map(squeezed, command.expected):
        if line == "...":
            continue
        assert line in printed[after:], f"{where}: {words} does not print\n  {line}\nbut\n{text}"
        after = printed.index(line, after) + 1


def squeezed(line):
    return re.sub(r"\s+", " ", line).strip()


def test_links_of_pages_lead_to_files_and_headings():
    broken = []
    for page in PAGES:
        text = re.sub(r"(?ms)^ *```.*?^ *```", "", page.read_text(encoding="utf-8"))
        for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", text):
            place, _, heading = target.partition("#")
            if "://" in target or place.startswith("reference/"):  # made when the site is built
                continue
            to = (page.parent / place).resolve() if place else page
            on_site = to.suffix != ".py"  # the site has pages and results, and no code
            if not to.exists() or not on_site or (heading and heading not in headings(to)):
                broken.append(f"{page.name}: {target}")
    assert not broken


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/method.md", "CONTRIBUTING.md"])
def test_files_that_a_page_names_are_there(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[\w.-]+/)+[\w-]+\.\w+)[:`]", text))
    places = [ROOT, ROOT / "src", ROOT / "src/lyceum"]
    of_the_reader = {name for name in named if re.search(r"\bmy_|_my_|NAME", name)}
    missing = [name for name in named - of_the_reader if not any((place / name).is_file() for place in places)]
    assert named
    assert missing == []


def headings(page):
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))
    found = re.findall(r"(?m)^#+ +(.*)$", text)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in found}


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("lyceum train grpo objective.clip_hihg=0.3  # a comment", "clip_high"),
        ("lyceum train grop steps=2", "grpo"),
        ("lyceum eval runs/a --kk 1,8", "--kk"),
    ],
)
def test_a_command_that_is_not_run_is_checked_all_the_same(command, told):
    block = Block(1, "bash", f"{command}\n", None, "minutes")
    with pytest.raises(Exception, match=told):
        check(commands_of(block)[0].words)


def test_output_that_a_page_shows_and_a_command_does_not_print_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = "$ lyceum train grop\nerror: recipe: no such thing\n"
    [command] = commands_of(Block(1, "console", shown, None, None))
    with pytest.raises(AssertionError, match="does not print"):
        run(command, "page:1")


def test_every_metric_of_a_run_is_explained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    keys = {"evaluate.every": 1, "evaluate.n": 2, "evaluate.samples": 1, "evaluate.k": [1], "track": []}
    run = lyceum.train("ppo", steps=1, tasks_per_step=4, name="run", progress="silent", **keys)
    levels = (("level/\\d+", "level/LEVEL"), ("part/.*", "part/NAME"))
    unexplained = set()
    for line in run.metrics:
        for metric in line:
            for pattern, general in levels:
                metric = re.sub(pattern, general, metric)
            if f"`{metric}`" not in page:
                unexplained.add(metric)
    assert not unexplained


def test_the_page_of_mechanisms_is_that_of_the_results(monkeypatch):
    # Catches a result that was measured again without `python benchmarks/mechanisms.py --page`.
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from mechanisms import page, read

    assert (ROOT / "docs/mechanisms.md").read_text() == page(*read(ROOT / "benchmarks/results/mechanisms.json"))


def test_every_part_of_every_mechanism_acted():
    # Brief runs or, for what acts later, longer ones: none may be listed that never did.
    rows = json.loads((ROOT / "benchmarks/results/mechanisms.json").read_text())["rows"]
    shown = [
        (row["recipe"], of["metric"], of["acted"]) for row in rows for of in (*row["metrics"], *row.get("late", ()))
    ]
    assert [(recipe, metric) for recipe, metric, acted in shown if not acted] == []


def results_and_proofs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests/recipe"))
    from proofs import PROOFS

    rows = json.loads((ROOT / "benchmarks/results/mechanisms.json").read_text())["rows"]
    proofs = {name: proof for name, proof in PROOFS.items() if proof.needs is None}
    return {row["recipe"]: row for row in rows}, proofs


def test_the_results_of_mechanisms_are_of_the_proofs_as_they_are(monkeypatch):
    # Catches a proof that was changed without `python benchmarks/mechanisms.py --only NAME`.
    rows, proofs = results_and_proofs(monkeypatch)
    assert rows.keys() == proofs.keys()
    for name, proof in proofs.items():
        row = rows[name]
        measured = {
            "keys": row["keys"],
            "acted": [shown["metric"] for shown in row["metrics"]],
            "off": [(tuple(off["keys"]), off["differs"] and off["differs"]["part"]) for off in row["off"]],
            "late": {late["metric"]: late["off"] for late in row["late"]},
            "longer": {tuple(late["keys"]) for late in row["late"]},
        }
        assert measured == {
            "keys": list(proof.keys),
            "acted": list(proof.acted),
            "off": [((off,) if isinstance(off, str) else off, part) for off, part in proof.off.items()],
            "late": dict(proof.late),
            "longer": {tuple(proof.longer)} if proof.late else set(),
        }, name


def test_every_part_of_every_mechanism_is_switched_off_by_some_control(monkeypatch):
    # What is the same under every control is no sign of the mechanism, but of what it works on: its proof says so.
    rows, proofs = results_and_proofs(monkeypatch)
    from lyceum.recipe.proof import GIVEN

    for name, row in rows.items():
        unmoved = {
            shown["metric"]
            for number, shown in enumerate(row["metrics"])
            if all(off["values"][number] == shown["shipped"] for off in row["off"])
        }
        assert unmoved - GIVEN.keys() == {*proofs[name].given}, name
        assert [late["metric"] for late in row["late"] if late["then"] == late["shipped"]] == [], name


def test_every_cell_of_the_table_of_mends_is_filled():
    mends = json.loads((ROOT / "benchmarks/results/mends.json").read_text())
    for mend in mends:
        assert mend.keys() == {"recipe", "what", "metric", "before", "after", "seeds", "command"}
        words = [mend[key] for key in mend if key != "seeds"]
        assert all(isinstance(word, str) and word.strip() and "None" not in word for word in words), mend
        assert isinstance(mend["seeds"], list), mend
        assert all(isinstance(seed, int) for seed in mend["seeds"]), mend
