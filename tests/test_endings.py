"""How commands end: with exit code 0 only where something was reached, and with nothing on the way that is not text."""

from __future__ import annotations

import json
import logging
import shlex
import subprocess
import sys
import warnings

import pytest

from lyceum.cli import main
from lyceum.cli.output import Output
from lyceum.cli.show import held_out_table

COMMAND = f"{shlex.quote(sys.executable)} -c 'from lyceum.cli import main; import sys; sys.exit(main())'"
TINY = [
    *("steps=1", "tasks_per_step=2", "rollout.samples=2", "rollout.sampling.max_completion_tokens=8", "model=scratch"),
    *("evaluate.n=2", "evaluate.samples=2", "evaluate.k=[1,2]", "evaluate.greedy=false"),
]
HOSTILE = "\x1b]0;title\x07 [/b]"


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)


def reward(text: str) -> str:
    """The key of a reward whose file has this text; it runs in this process, which starts in no time."""
    with open("mine.py", "w") as file:
        file.write(text)
    return "reward={kind: function, function: mine.py:reward, processes: 0}"


# -- streams ------------------------------------------------------------------------------------------------------


def test_training_goes_on_when_nobody_reads_any_more(tmp_path):
    train = f"{COMMAND} train grpo {shlex.join(TINY)} {shlex.quote(reward(DIFFERENT))}"
    done = shell(f"{train} 2>&1 | true")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "runs/grpo/summary.json").read_text())["finished"]
    assert (tmp_path / "runs/grpo/report.html").exists()


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("recipes | true", 0, ""),
        ("recipes --json | head -c 1 >/dev/null", 0, ""),
        ("recipes >&-", 0, ""),
        ("recipes 2>&-", 0, ""),
        ("recipes <&- >&- 2>&-", 0, ""),
        ("recipes --json >&-", 0, ""),
        ("recipes 2>/dev/full", 0, ""),
        ("recipes >/dev/full", 1, "standard output could not be written (No space left on device)"),
        ("recipes --json >/dev/full", 1, "standard output could not be written (No space left on device)"),
        ("--help >/dev/full", 1, "standard output could not be written (No space left on device)"),
        ("nonsense 2>&-", 2, ""),
        ("nonsense --json >&-", 2, ""),
    ],
)
def test_streams_that_are_closed_or_full(command, code, said):
    done = shell(f"{COMMAND} {command}")
    assert done.returncode == code
    assert said in done.stderr
    assert done.stderr.count("\n") == bool(said)


def test_a_file_never_gets_the_number_of_a_closed_stream(tmp_path):
    # What is printed, by this process or a child, would stand in the middle of a run's metrics.
    code = (
        "import os, sys; from lyceum.cli.streams import hold; hold(); file = open('file', 'w'); print('printed', "
        "flush=True); os.system('echo of a child; echo of a child >&2'); file.write('whole'); file.close()"
    )
    assert shell(f'{shlex.quote(sys.executable)} -c "{code}" <&- >&- 2>&-').returncode == 0
    assert (tmp_path / "file").read_text() == "whole"


@pytest.mark.parametrize("encoding", ["PYTHONIOENCODING=ascii", "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"])
def test_any_encoding_can_show_everything(encoding):
    code = "from lyceum.cli.streams import hold; hold(); print(chr(0x6F22), chr(0xD800))"
    assert shell(f"{encoding} {shlex.quote(sys.executable)} -c '{code}'").stdout == "\\u6f22 \\ud800\n"
    refused = shell(f"{encoding} {COMMAND} recipes $'a\\xff\\xc3\\xbc'")
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr


# -- plain text ---------------------------------------------------------------------------------------------------


def plain(capsys) -> str:
    text = "".join(capsys.readouterr())
    assert not {"\x1b", "\x07"} & set(text)
    return text


@pytest.mark.parametrize("argv", [[HOSTILE], ["train", HOSTILE], ["train", "grpo", f"--{HOSTILE}"], ["view", HOSTILE]])
def test_what_was_typed_is_said_as_text(argv, capsys):
    assert main(argv) == 2
    assert "\\x1b]0;title" in plain(capsys)


def test_warnings_records_of_libraries_and_tracebacks_are_text(capsys, monkeypatch):
    def noisy(*args, **kwargs):
        warnings.warn(f"one\n{HOSTILE}", UserWarning, stacklevel=2)
        try:
            raise KeyError(HOSTILE)
        except KeyError:
            logging.getLogger("somebody").exception("logged %s", HOSTILE)
        raise ZeroDivisionError(HOSTILE)

    monkeypatch.setattr("lyceum.api.run_recipe", noisy)
    # pytest has handlers of its own: Python's for those who have none is asked here.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    before = warnings.showwarning, logging.getLogRecordFactory()
    assert main(["train", "grpo", *TINY]) == 1
    text = plain(capsys)
    assert "warning: one \\x1b]0;title\\x07 [/b]\n" in text  # on one line, without the line of code
    assert "logged \\x1b]0;title" in text
    assert "KeyError: '\\x1b]0;title" in text
    assert "ZeroDivisionError: \\x1b]0;title" in text
    assert (warnings.showwarning, logging.getLogRecordFactory()) == before


def test_a_recipe_a_column_and_a_reward_are_shown_as_text(capsys, tmp_path):
    (tmp_path / "mine.yaml").write_text(f"extends: grpo\ntitle: {json.dumps(HOSTILE)}\n")
    rows = [{"prompt": f"{i}+1=", "answer": str(i + 1), "level": HOSTILE} for i in range(8)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["tasks=data.jsonl", "tasks.heldout_share=0.5", reward("def reward(level):\n    raise ValueError(level)\n")]
    assert main(["train", "mine.yaml", *TINY, *words]) == 0
    text = plain(capsys)
    assert "recipe      \\x1b]0;title [/b]" in text
    assert "ValueError: \\x1b]0;title" in text
    graded = {"mean": 0.5, "low": 0.4, "high": 0.6}
    of = {"overall": graded, "by_level": {"[/b]": graded}, "greedy": None, "tasks": 2}
    Output(False).show(held_out_table(of, of))  # and a level is no markup
    assert "[/b]" in plain(capsys)


DIFFERENT = "def reward(completion):\n    return sum(map(ord, completion)) % 7\n"
