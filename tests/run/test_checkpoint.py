import errno
import json
import math
import os
import random
import shutil
import signal
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import lyceum.run.checkpoint
import lyceum.utils.atomic_files
from lyceum.run.checkpoint import CheckpointError, latest, load, save, step_of

torch.set_num_threads(1)

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]
TORN = "ignore:checkpoint passed over"


def same(a, b):
    """Equal in type, value and, for tensors and floats, in every bit."""
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bits(a) == bits(b)
    if isinstance(a, dict):
        return type(b) is dict and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return type(b) is float and (a.hex() == b.hex() or (math.isnan(a) and math.isnan(b)))
    return type(a) is type(b) and a == b


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).tolist()


@st.composite
def tensors(draw):
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    width = torch.empty(0, dtype=dtype).element_size() * math.prod(shape)
    # Any bits at all: nans with payloads, infinities, subnormals. A bool is one of two bytes.
    raw = draw(st.lists(st.integers(0, 1 if dtype == torch.bool else 255), min_size=width, max_size=width))
    tensor = torch.tensor(raw, dtype=torch.uint8).view(dtype).reshape(shape)
    return tensor.transpose(0, -1) if tensor.dim() > 1 and draw(st.booleans()) else tensor


leaves = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(max_size=4) | tensors()
)
keys = st.text(max_size=3) | st.integers() | st.booleans() | st.none() | st.tuples(st.integers(), st.text(max_size=2))
names = keys | st.sampled_from(["!", "a.b", "a", "__metadata__", "#2"])
states = st.dictionaries(
    names,
    st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(names, inner, max_size=3)
        ),
        max_leaves=8,
    ),
    max_size=4,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(states)
def test_any_nested_state_comes_back_bit_for_bit(tmp_path, state):
    assert same(state, load(save(tmp_path, 3, state)))


def test_names_that_collide_when_joined_stay_apart(tmp_path):
    # "a.b" the key and "b" under "a" have one dotted name; "__metadata__" is the format's own.
    state = {"a.b": torch.tensor(1), "a": {"b": torch.tensor(2)}, "__metadata__": torch.tensor(3), "!": torch.tensor(4)}
    assert same(state, load(save(tmp_path, 0, state)))


def test_many_files_hold_what_one_would(tmp_path, monkeypatch):
    # 40 bytes a file, 16 a tensor: 2 + 2 + 1 tensors. One larger than a file gets its own.
    monkeypatch.setattr(lyceum.run.checkpoint, "SHARD_BYTES", 40)
    state = {"t": [torch.arange(4, dtype=torch.int32) + i for i in range(5)], "big": torch.arange(99)}
    path = save(tmp_path, 1, state)
    assert len(list(path.glob("*.safetensors"))) == 4
    assert same(state, load(path))


def test_random_generators_continue_where_they_were(tmp_path):
    ours, python = torch.Generator().manual_seed(1), random.Random(1)
    path = save(tmp_path, 1, {"torch": ours.get_state(), "python": python.getstate()})
    expected = torch.rand(3, generator=ours), python.random()
    state = load(path)
    theirs, again = torch.Generator(), random.Random()
    theirs.set_state(state["torch"])
    again.setstate(state["python"])
    assert torch.equal(torch.rand(3, generator=theirs), expected[0])
    assert again.random() == expected[1]


def test_an_optimizer_resumes_with_its_integer_keys(tmp_path):
    def made():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        return model, torch.optim.AdamW(model.parameters(), lr=0.1)

    def train(model, optimizer):
        model(torch.ones(1, 3)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    model, optimizer = made()
    train(model, optimizer)
    path = save(tmp_path, 1, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    train(model, optimizer)
    other, resumed = made()
    state = load(path)
    other.load_state_dict(state["model"])
    resumed.load_state_dict(state["optimizer"])
    train(other, resumed)
    assert same(dict(model.state_dict()), dict(other.state_dict()))


def test_a_tied_weight_is_stored_once_and_a_view_costs_its_own_size(tmp_path):
    table = torch.zeros(1000, 100)
    state = load(path := save(tmp_path, 1, {"embed": table, "head": table, "row": table[3]}))
    assert state["embed"] is state["head"]
    # 400,000 bytes for the table and 400 for the row; the row's storage is the whole table's.
    assert 400_400 <= (path / "tensors-0000.safetensors").stat().st_size < 402_000


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, signal.SIGINT, torch.zeros(2, dtype=torch.complex128), torch.eye(2).to_sparse()]
)
def test_what_could_not_come_back_is_refused_by_key_before_anything_is_written(tmp_path, value):
    with pytest.raises(TypeError, match=r"curriculum\.1"):
        save(tmp_path, 1, {"curriculum": [0, value]})
    assert list(tmp_path.iterdir()) == []


def test_the_newest_comes_first_by_number_and_keep_counts(tmp_path):
    for step in (999_999, 1_000_000, 1_000_001):  # the last two sort before the first as text
        save(tmp_path, step, {"step": step}, keep=2)
    assert sorted(map(step_of, tmp_path.iterdir())) == [1_000_000, 1_000_001]
    assert load(latest(tmp_path) or "") == {"step": 1_000_001}


def test_a_torn_one_does_not_count_as_kept(tmp_path):
    for step in (1, 2):
        save(tmp_path, step, {"step": step})
    (tmp_path / "step-000002" / "state.json").write_text("")
    save(tmp_path, 3, {"step": 3}, keep=2)
    assert sorted(map(step_of, tmp_path.iterdir())) == [1, 3]


def test_going_back_removes_the_future_that_was_left(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step, {"branch": "old"}, keep=9)
    save(tmp_path, 2, {"branch": "new"}, keep=9)
    assert sorted(map(step_of, tmp_path.iterdir())) == [1, 2]
    assert load(latest(tmp_path) or "") == {"branch": "new"}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["manifest.json", "state.json", "tensors-0000.safetensors"]), st.data())
@pytest.mark.filterwarnings(TORN)
def test_any_damage_to_the_newest_gives_the_one_before(tmp_path, name, data):
    for step in (1, 2):
        save(tmp_path, step, {"step": step, "w": torch.full((5,), step)})
    file = tmp_path / "step-000002" / name
    content = bytearray(file.read_bytes())
    match data.draw(st.sampled_from(["remove", "truncate", "flip", "empty"])):
        case "remove":
            file.unlink()
        case "truncate":
            file.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
        case "flip":
            # In the manifest only what it says of the files matters: a digit of a digest stands for it.
            at = content.index(b'"sha256": "') + 12 if name == "manifest.json" else None
            at = data.draw(st.integers(0, len(content) - 1)) if at is None else at
            content[at] = ord("0") if content[at] != ord("0") else ord("1")
            file.write_bytes(content)
        case "empty":
            shutil.rmtree(file.parent)
            file.parent.mkdir()
    with pytest.raises(CheckpointError, match="step-000002"):
        load(tmp_path / "step-000002")
    with pytest.warns(UserWarning, match="step-000002"):
        path = latest(tmp_path)
    assert path is not None
    assert load(path)["step"] == 1


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b"1" + b"0" * 5000,
        b"\xff\xfe",
        b"3",
        b'{"format": 1, "step": 2, "files": {"state.json": {"bytes": Infinity, "sha256": ""}}}',
        b'{"format": 1, "step": 2, "files": {"a\\u0000b": {"bytes": 1, "sha256": ""}}}',
        b'{"format": 1, "step": 2, "files": {"..": {"bytes": 1, "sha256": ""}}}',
        b'{"format": 1, "step": 2, "files": {"/etc/passwd": {"bytes": 1, "sha256": ""}}}',
        b'{"format": 1, "step": 2, "files": {}}',
        b'{"format": 1, "step": ' + b"9" * 4000 + b', "files": {}}',
        b" " * (17 * 2**20),
    ],
)
@pytest.mark.filterwarnings(TORN)
def test_whatever_a_manifest_holds_the_checkpoint_before_is_found_and_the_message_is_short(tmp_path, content):
    for step in (1, 2):
        save(tmp_path, step, {"step": step}, keep=5)
    (tmp_path / "step-000002" / "manifest.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"step-000002: manifest\.json") as error:
        load(tmp_path / "step-000002")
    assert len(str(error.value)) < 1000
    with pytest.warns(UserWarning, match="step-000002"):
        assert load(latest(tmp_path) or "") == {"step": 1}
    save(tmp_path, 3, {"step": 3})


@pytest.mark.parametrize("file_goes_too", [False, True])
def test_a_manifest_that_leaves_out_a_file_is_torn(tmp_path, file_goes_too):
    for step in (1, 2):
        save(tmp_path, step, {"weights": torch.ones(step)}, keep=5)
    manifest = tmp_path / "step-000002" / "manifest.json"
    written = json.loads(manifest.read_text())
    del written["files"]["tensors-0000.safetensors"]
    manifest.write_text(json.dumps(written))
    if file_goes_too:
        (tmp_path / "step-000002" / "tensors-0000.safetensors").unlink()
    said = "names the tensor 'weights', which no file holds" if file_goes_too else "does not name tensors-0000"
    with pytest.raises(CheckpointError, match=rf"step-000002: .*{said}"):
        load(tmp_path / "step-000002")
    if not file_goes_too:
        with pytest.warns(UserWarning, match="step-000002"):
            assert torch.equal(load(latest(tmp_path) or "")["weights"], torch.ones(1))


def test_what_only_has_a_checkpoints_name_is_neither_read_nor_removed(tmp_path):
    save(tmp_path, 1, {"step": 1})
    (tmp_path / "step-000002").write_text("a file")
    (tmp_path / "step-000003").symlink_to(tmp_path / "step-000001")
    (tmp_path / f"step-{'9' * 200}").mkdir()
    assert latest(tmp_path) == tmp_path / "step-000001"
    save(tmp_path, 4, {"step": 4}, keep=1)
    assert len(list(tmp_path.iterdir())) == 4


def test_no_checkpoint_at_all_is_none(tmp_path):
    assert latest(tmp_path / "missing") is None
    (tmp_path / "step-x").mkdir()
    assert latest(tmp_path) is None


def test_a_kill_between_the_two_renames_of_a_replacement_loses_nothing(tmp_path, monkeypatch):
    save(tmp_path, 2, {"try": 1})
    rename = Path.rename

    def killed(self, target):
        if self.name.startswith(".partial"):
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 2, {"try": 2})
    assert load(latest(tmp_path) or "") == {"try": 1}
    monkeypatch.undo()
    # A further save keeps the set-aside one until it is in place itself, then removes it.
    save(tmp_path, 2, {"try": 3}, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000002"]
    assert load(latest(tmp_path) or "") == {"try": 3}


def full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_fills_up_while_writing_leaves_the_one_before(tmp_path, monkeypatch):
    save(tmp_path, 1, {"step": 1})
    monkeypatch.setattr(os, "fsync", full_disk)  # where a full disk may show last of all
    with pytest.raises(CheckpointError, match=r"step-000002: the disk is full: the checkpoint needs \d+ bytes .* free"):
        save(tmp_path, 2, {"w": torch.zeros(9)})
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]
    assert load(latest(tmp_path) or "") == {"step": 1}


def test_want_of_space_is_seen_before_writing(tmp_path, monkeypatch):
    save(tmp_path, 1, {"step": 1})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    monkeypatch.setattr(lyceum.run.checkpoint, "write_file", lambda *_: pytest.fail("something was written"))
    # 4,000,000 bytes of weights and the overhead do not fit in 1,000,000.
    with pytest.raises(CheckpointError, match=r"needs 40\d{5} bytes \(4\.1 MB\), 1000000 are free \(1\.0 MB\)"):
        save(tmp_path, 2, {"w": torch.zeros(1_000_000)})
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]


def test_other_failures_name_the_path(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="step-000001: the checkpoint could not be written"):
        save(tmp_path / "file", 1, {})


@pytest.mark.filterwarnings(TORN)
def test_killed_at_random_moments_the_survivor_always_loads(tmp_path):
    # Each child goes on from what the one before left, as a resumed run does; a few are killed inside a write.
    chance = random.Random(0)
    reached, unfinished, children = 0, 0, 0
    # Until enough kills fell into a write and enough writes were finished; a busy machine needs more children.
    while children < 20 or ((unfinished < 3 or reached < 10) and children < 300):
        children += 1
        child = os.fork()
        if child == 0:
            try:
                step = reached
                while True:
                    step += 1
                    save(tmp_path, step, {"step": step, "w": torch.full((200,), step), "note": "x" * 2000})
            finally:
                os._exit(1)
        time.sleep(chance.uniform(0.005, 0.04))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        unfinished += bool(list(tmp_path.glob(".partial-*")))
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nothing half-written has a checkpoint's name
            path = latest(tmp_path)
        if path is not None:
            state = load(path)
            assert state["step"] == step_of(path) >= reached
            assert torch.equal(state["w"], torch.full((200,), state["step"]))
            reached = state["step"]
    assert unfinished >= 3
    assert reached >= 10
