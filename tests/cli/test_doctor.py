"""``lyceum doctor`` as a command: what it prints, its exit codes, and what it refuses before a model loads."""

from __future__ import annotations

import json

import pytest

from lyceum.cli import main

QUICK = ["--samples", "4", "--tokens", "4"]


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def test_a_line_for_each_check_and_exit_code_0_where_all_pass(capsys, tmp_path):
    assert main(["doctor", "base", *QUICK]) == 0
    out, err = capsys.readouterr()
    assert "ok       greedy: engine and transformers: " in out
    for note in ("speed: tokens per second sampled: ", "in a batch of 32; trained: ", "machine: cpu"):
        assert note in " ".join(out.split())
    assert "all 24 checks passed" in out
    assert "fails" not in out
    assert "doctor: check 11/11, done" in err
    assert not list(tmp_path.iterdir())  # nothing is left behind


def test_json_has_the_figures_of_the_components_that_were_asked_for(capsys):
    argv = ["doctor", "base", "learner.autocast=bfloat16", "--engine", "{kind: embedded, pack_weights: false}"]
    assert main([*argv, "--learner", "local", "--seed", "3", *QUICK, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["seed"], document["samples"]) == (True, 3, 4)
    checks = {check["check"]: check for check in document["checks"]}
    machine = checks["machine"]["values"]
    assert (machine["engine"]["pack_weights"], machine["learner"]["autocast"]) == (False, "bfloat16")
    assert checks["gradients: against float64"]["values"]["cosine"] > 0.9
    assert set(checks["speed"]["values"]["sampled"]) == {"8", "32"}


def test_a_failing_check_says_what_is_allowed_and_the_cure_with_exit_code_1(capsys, tmp_path):
    (tmp_path / "chat.jinja").write_text("{% for m in messages %}<|user|>{{ m['content'] }}<eos>{% endfor %}")
    argv = ["doctor", "base", "model.chat_template=chat.jinja", *QUICK]
    assert main(argv) == 1
    out, err = capsys.readouterr()
    told = " ".join(out.split())
    assert (
        "fails template: special tokens: '<|user|>' is 8 tokens allowed: one token each cure: the template is" in told
    )
    assert "2 of 24 checks failed: template: special tokens, template: generation prompt" in " ".join(err.split())
    assert main([*argv, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert document["error"][0].startswith("2 of 24 checks failed: ")


def test_help_says_what_is_checked_and_how_to_limit_it(capsys):
    assert main(["doctor", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    for word in (
        "gradients are those in float64",
        "--samples 4 --tokens 8",
        "learner.autocast=bfloat16",
        "Exit code 1",
    ):
        assert word in told


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["no-such-model"], "model.path: got 'no-such-model'"),
        (["base", "--engine", "embeded"], "engine.kind: got 'embeded' (did you mean 'embedded'?)"),
        (["base", "--learner", "{kind: local"], "learner: got '{kind: local', which is not YAML"),
        (["base", "learner.layuot=rows"], "learner.layuot: unknown key (did you mean 'layout'?)"),
        (["base", "steps=3"], "steps: unknown key; allowed: engine, learner, tasks, model.KEY"),
        (["base", "model.dtyp=bfloat16"], "model.dtyp: unknown key (did you mean 'dtype'?)"),
        (["base", "--samples", "1"], "samples: got 1; allowed: 4 to 256"),
        (["base", "--tokens", "2000"], "tokens: got 2000; allowed: less than half of the model's context of 2048"),
        (
            ["base", "--length", "2049"],
            "length: got 2049; allowed: 33 (twice tokens, and 1) to the model's context of 2048",
        ),
        (["base", "tasks=none.jsonl"], "none.jsonl"),
    ],
)
def test_what_cannot_work_is_said_before_a_model_loads(argv, said, capsys, monkeypatch):
    monkeypatch.setattr("lyceum.analysis.doctor.run.load_policy", lambda *_: pytest.fail("a model was loaded"))
    assert main(["doctor", *argv]) == 2
    out, err = capsys.readouterr()
    assert said in " ".join((out + err).split())
