"""Shares of unchanged weights, on tensors small enough to count."""

import json

import pytest
import torch
from safetensors.torch import save_file

from lyceum import sparsity as compare
from lyceum.analysis import sparsity
from lyceum.analysis.sparsity import rank_of_gram
from lyceum.cli import main
from lyceum.utils.errors import RecipeError


def folder(path, **tensors):
    path.mkdir()
    (path / "config.json").write_text("{}")
    save_file(
        {name.replace("__", "."): tensor.contiguous() for name, tensor in tensors.items()}, path / "model.safetensors"
    )
    return path


def test_float32_training_changes_bits_that_bfloat16_cannot_show(tmp_path):
    # 1 stays; 1 + 1e-6 is within 1e-5; 1.001 is 1 in bfloat16, whose next number is 1.0078; 2 is a change in any.
    before = folder(tmp_path / "a", w=torch.ones(2, 2))
    after = folder(tmp_path / "b", w=torch.tensor([[1.0, 1.000001], [1.001, 2.0]]))
    found = compare(before, after, progress="silent")
    assert (found.overall.equal, found.overall.close, found.overall.close_bfloat16) == (1 / 4, 2 / 4, 3 / 4)
    assert found.overall.rank == 1 / 2  # of the update 0 0 / 0 1
    assert found.stored == "float32"


def test_the_tolerance_is_for_small_weights(tmp_path):
    # Small weights change in bfloat16 by less than 1e-5, which the paper counts as unchanged; with 0 they are not.
    before = folder(tmp_path / "a", w=torch.full((2,), 1e-4).bfloat16())
    after = folder(tmp_path / "b", w=torch.full((2,), 1.05e-4).bfloat16())
    assert compare(before, after, progress="silent").overall.close_bfloat16 == 1
    assert compare(before, after, atol=0, progress="silent").overall.close_bfloat16 == 0


def test_layers_of_a_kind_are_counted_together(tmp_path):
    zeros = {f"layers__{i}__q__weight": torch.zeros(2, 3) for i in range(2)} | {"norm": torch.zeros(4)}
    ones = {**zeros, "layers__1__q__weight": torch.ones(2, 3)}
    found = compare(folder(tmp_path / "a", **zeros), folder(tmp_path / "b", **ones), progress="silent")
    kind = found.kinds["layers.*.q.weight"]
    assert (kind.tensors, kind.elements, kind.close_bfloat16) == (2, 12, 0.5)
    assert kind.rank == 0.25  # ranks 0 and 1 of 2
    assert found.kinds["norm"].rank is None
    assert found.overall.elements == 16


@pytest.mark.parametrize("shape", [(40, 12), (12, 40), (9, 9)])
def test_the_rank_in_pieces_is_that_of_the_whole_matrix(tmp_path, monkeypatch, shape):
    generator = torch.Generator().manual_seed(0)
    low = torch.randn(shape[0], 4, generator=generator) @ torch.randn(4, shape[1], generator=generator)
    before = folder(tmp_path / "a", w=torch.zeros(shape))
    after = folder(tmp_path / "b", w=low)
    monkeypatch.setattr(sparsity, "PIECE", 30)
    found = compare(before, after, progress="silent").tensors[0]
    assert found.rank == torch.linalg.matrix_rank(low.bfloat16().float())
    # Unrounded the rank is that of the factors: rounding to bfloat16 fills it up.
    assert rank_of_gram(low.double().T @ low.double(), max(shape)) == 4
    assert (found.elements, found.equal) == (shape[0] * shape[1], int((low == 0).sum()))


def test_two_trainings_of_a_base_overlap_more_or_less_than_chance(tmp_path):
    base = folder(tmp_path / "a", w=torch.zeros(10))
    first = folder(tmp_path / "b", w=torch.tensor([1.0] * 4 + [0.0] * 6))
    second = folder(tmp_path / "c", w=torch.tensor([0.0] * 2 + [1.0] * 5 + [0.0] * 3))
    overlap = compare(base, first, second, progress="silent").overlap
    # Weights 2 and 3 are in both: 2 of 4, 2 of 5; at random 5 of 10 and 4 of 10.
    assert (overlap.of_first, overlap.of_second) == (0.5, 0.4)
    assert (overlap.chance_first, overlap.chance_second) == (0.5, 0.4)


def test_what_one_model_lacks_and_integers_are_named(tmp_path):
    before = folder(tmp_path / "a", w=torch.zeros(2), head=torch.zeros(2), steps=torch.zeros(2, dtype=torch.int64))
    after = folder(tmp_path / "b", w=torch.zeros(2), steps=torch.zeros(2, dtype=torch.int64), scalar=torch.tensor(1.0))
    found = compare(before, after, progress="silent")
    assert (found.only_in_base, found.only_in_model, found.not_compared) == (["head"], ["scalar"], ["steps"])


def test_scalars_empty_tensors_and_numbers_that_are_not_finite_are_compared(tmp_path):
    before = folder(tmp_path / "a", s=torch.tensor(1.0), e=torch.zeros(0, 3), n=torch.tensor([[float("nan"), 1.0]]))
    found = compare(before, before, progress="silent")
    assert (found.overall.elements, found.overall.close) == (3, 2 / 3)  # nan is no number: not shown to be unchanged
    assert [tensor.rank for tensor in found.tensors] == [None, None, None]


def test_a_model_and_itself_by_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["sparsity", "base", "base", "--output", "w.json", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["overall"]["equal"] == 1
    assert found["overall"]["rank"] == 0
    assert main(["sparsity", "base", "base", "--no-rank", "--output", "w.json"]) == 0
    shown = capsys.readouterr().out
    assert "do not compare these columns with shares in bfloat16" in " ".join(shown.split())
    assert "\n*.post_attention_layernorm " in shown  # whole, in 80 columns


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["base", "nowhere"], "model: got 'nowhere'; allowed: base, base-stories, a model's folder"),
        (["a", "wider"], "1 of 1 tensors have another shape than in a ('w': [3], there [2])"),
        (["a", "other"], "has no tensor of the same name as a"),
        (["a", "pickled"], "which can run code and is not read"),
        (["a", "a", "--atol", "-1"], "atol: got -1.0"),
        (["a", "a", "--atol", "nan"], "atol: got nan"),
        (["a", "a", "--output", "mine.json"], "was not written by lyceum sparsity"),
        (["a", "a", "--output", "a/x.json"], "which lies in"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path, monkeypatch, capsys, words, told):
    monkeypatch.chdir(tmp_path)
    folder(tmp_path / "a", w=torch.zeros(2))
    folder(tmp_path / "wider", w=torch.zeros(3))
    folder(tmp_path / "other", v=torch.zeros(2))
    folder(tmp_path / "pickled", w=torch.zeros(2)).joinpath("model.safetensors").rename(tmp_path / "pickled/x.bin")
    (tmp_path / "mine.json").write_text('{"mine": 1}')
    assert main(["sparsity", *words]) == 2
    assert told in capsys.readouterr().err
    assert (tmp_path / "mine.json").read_text() == '{"mine": 1}'


def test_a_damaged_file_is_named(tmp_path):
    good, bad = folder(tmp_path / "a", w=torch.zeros(2)), folder(tmp_path / "b", w=torch.zeros(2))
    (bad / "model.safetensors").write_bytes((bad / "model.safetensors").read_bytes()[:-4])
    with pytest.raises(RecipeError, match="damaged or incomplete"):
        compare(good, bad, progress="silent")
