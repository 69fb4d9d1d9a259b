"""Checkpoints: the nested state of a run, written whole or not at all, read back to the same bits.

A checkpoint is a folder ``step-000040``::

    state.json             everything that is not a tensor, and where each tensor goes
    tensors-0000.safetensors, ...
    manifest.json          size and SHA-256 of each file above

It is written under a temporary name, flushed to the disk, and renamed into place. Nothing is pickled, so reading one
runs no code. One process writes a folder of checkpoints at a time (a Run holds a lock on it).
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lyceum.models.weights import storable
from lyceum.run.codec import decode, encode
from lyceum.utils.atomic_files import FULL, fsync_folder, size, write_file
from lyceum.utils.errors import RunError
from lyceum.utils.lazy_imports import Tensor
from lyceum.utils.numbers import to_json

SHARD_BYTES = 256 * 2**20
"""Approximate size of a tensor file, which bounds the memory that writing and reading need."""

_STEP = re.compile(r"(\.replaced-)?step-([0-9]{6,18})")
_FILE = re.compile(r"state\.json|tensors-[0-9]{4,9}\.safetensors")
_MANIFEST_BYTES = 16 * 2**20  # about a hundred bytes per file, one file per SHARD_BYTES
_OVERHEAD = 64 * 1024  # bytes: headers, manifest, and what the file system rounds up


class CheckpointError(RunError):
    """A checkpoint could not be written or read; names its path, and on a full disk the bytes needed and free."""


class DiskFull(CheckpointError):
    """A checkpoint that does not fit on the disk."""


def save(folder: Path | str, step: int, state: Mapping[str, Any], *, keep: int = 2) -> Path:
    """Write a checkpoint, then remove the ones that are not needed any more.

    Args:
        folder: folder of all checkpoints of a run; created if missing.
        step: the state's step. Checkpoints of later steps are removed once this one is in place: the run has gone back
            to before them.
        state: dicts, lists, tuples, tensors, numbers, strings, bytes and None, nested in any way. Tensors come back on
            the CPU, without gradient, contiguous; a tensor that occurs twice is stored once.
        keep: number of complete checkpoints kept, this one included. The disk must briefly hold one more.
    Returns:
        The checkpoint's folder.
    Raises:
        CheckpointError: it could not be written, for instance because the disk is full. Earlier checkpoints are intact,
            and nothing of this one is left.
        TypeError: the state holds something else; the message names the key. Nothing was written.
    """
    if step < 0 or keep < 1:
        raise ValueError(f"checkpoint: got step {step}, keep {keep}; allowed: step 0 or more, keep 1 or more")
    folder = Path(folder)
    target = folder / f"step-{step:06d}"
    text, tensors = encode(state)
    needed = len(text) + sum(tensor.nbytes for tensor in tensors.values()) + _OVERHEAD
    partial = folder / f".partial-{target.name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(".partial-*"):  # of killed writes
            shutil.rmtree(leftover)
        if shutil.disk_usage(folder).free < needed:
            raise _full(target, needed)
        try:
            partial.mkdir()
            _write(partial, step, text, tensors)
            _into_place(partial, target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    except OSError as error:
        if error.errno in FULL:
            raise _full(target, needed) from error
        raise CheckpointError(f"{target}: the checkpoint could not be written: {error}") from error
    prune(folder, step, keep)
    return target


def latest(folder: Path | str) -> Path | None:
    """The newest complete checkpoint, or None. Incomplete ones are skipped with a warning that names them."""
    for path in found(folder):
        try:
            for name, entry in _manifest(path).items():
                file = path / name
                _check_size(file, entry)
                with open(file, "rb") as content:
                    _check_digest(file, entry, hashlib.file_digest(content, "sha256").hexdigest())
        except (CheckpointError, OSError) as error:
            warnings.warn(f"checkpoint passed over: {error}", stacklevel=2)
        else:
            return path
    return None


def load(path: Path | str) -> dict[str, Any]:
    """The state that was saved, to the same bits.

    Raises:
        CheckpointError: the checkpoint is torn, truncated or changed; the message names the file.
    """
    path = Path(path)
    tensors: dict[str, Tensor] = {}
    text = b""
    for name, entry in _manifest(path).items():
        file = path / name
        try:
            _check_size(file, entry)
            content = file.read_bytes()
        except OSError as error:
            raise CheckpointError(f"{file}: {error}") from error
        # Parsed from the same bytes that were checked, not from a memory map of a file that a later save may remove.
        _check_digest(file, entry, hashlib.sha256(content).hexdigest())
        if name == "state.json":
            text = content
        else:
            import safetensors.torch

            tensors |= safetensors.torch.load(content)
    try:
        return decode(text, tensors)
    except KeyError as error:
        raise CheckpointError(f"{path}: state.json names the tensor {error}, which no file holds") from error


def step_of(path: Path | str) -> int:
    """The step that a checkpoint's folder is named after."""
    match = _STEP.fullmatch(Path(path).name)
    if match is None:
        raise CheckpointError(f"{path}: not a checkpoint; allowed: a folder named step-NNNNNN")
    return int(match[2])


def _write(partial: Path, step: int, text: str, tensors: Mapping[str, Tensor]) -> None:
    import safetensors.torch

    files: dict[str, dict[str, Any]] = {}

    def write(name: str, content: bytes) -> None:
        write_file(partial / name, content)
        files[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    shard: dict[str, Tensor] = {}
    shards = room = 0
    for name, tensor in tensors.items():
        if shard and tensor.nbytes > room:
            write(f"tensors-{shards:04d}.safetensors", safetensors.torch.save(storable(shard)))
            shard, shards = {}, shards + 1
        room = (room if shard else SHARD_BYTES) - tensor.nbytes
        shard[name] = tensor
    if shard:
        write(f"tensors-{shards:04d}.safetensors", safetensors.torch.save(storable(shard)))
    write("state.json", text.encode())
    write_file(partial / "manifest.json", to_json({"format": 1, "step": step, "files": files}, indent=1).encode())
    fsync_folder(partial)


def _into_place(partial: Path, target: Path) -> None:
    if target.exists():
        # A folder cannot be renamed onto another. Killed between the two renames, the old one is still found.
        replaced = target.with_name(f".replaced-{target.name}")
        shutil.rmtree(replaced, ignore_errors=True)
        target.rename(replaced)
    partial.rename(target)
    fsync_folder(target.parent)


def _full(target: Path, needed: int) -> DiskFull:
    free = shutil.disk_usage(target.parent).free
    return DiskFull(
        f"{target}: the disk is full: the checkpoint needs {needed} bytes ({size(needed)}), {free} are free "
        f"({size(free)}); the checkpoints before it are intact: free some space, then resume"
    )


def found(folder: Path | str) -> list[Path]:
    """Checkpoints, complete or not, newest first; for one step the current one before the one it replaced."""
    entries = list(Path(folder).iterdir()) if Path(folder).is_dir() else []
    folders = [path for path in entries if _STEP.fullmatch(path.name) and path.is_dir() and not path.is_symlink()]
    return sorted(folders, key=lambda path: (step_of(path), not path.name.startswith(".")), reverse=True)


def prune(folder: Path, step: int, keep: int) -> None:
    """Remove all but the newest ``keep`` complete checkpoints of that step and before."""
    kept = 0
    for path in found(folder):
        stays = kept < keep and step_of(path) <= step and not path.name.startswith(".") and _has_its_sizes(path)
        if stays:
            kept += 1
        else:
            shutil.rmtree(path)


def _has_its_sizes(path: Path) -> bool:
    """Whether it is complete, judged by sizes: reading every byte again would cost as much as writing did."""
    try:
        for name, entry in _manifest(path).items():
            _check_size(path / name, entry)
    except (CheckpointError, OSError):
        return False
    return True


def _manifest(path: Path) -> dict[str, Any]:
    """Size and digest of each file, after checking that the manifest is as ``save`` writes it."""
    file = path / "manifest.json"
    try:
        if (size := file.stat().st_size) > _MANIFEST_BYTES:
            raise ValueError(f"it has {size} bytes")
        manifest = json.loads(file.read_bytes())
        files = {name: {"bytes": int(e["bytes"]), "sha256": str(e["sha256"])} for name, e in manifest["files"].items()}
        written, step = manifest["format"], manifest["step"]
    # OverflowError: a size of Infinity; RecursionError: lists in lists in lists.
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{path}: manifest.json is missing or torn ({str(error)[:200]})") from error
    if written != 1 or step != step_of(path):
        said = f"format {str(written)[:40]}, step {str(step)[:40]}"
        raise CheckpointError(f"{path}: manifest.json says {said}; allowed: 1, {step_of(path)}")
    strange = [name for name in files if not _FILE.fullmatch(name)]
    if strange or "state.json" not in files:
        said = f"names {strange[0][:100]!r}" if strange else "does not name state.json"
        raise CheckpointError(f"{path}: manifest.json {said}; allowed: state.json, tensors-NNNN.safetensors")
    if unnamed := sorted({found.name for found in path.glob("tensors-*.safetensors")} - files.keys()):
        raise CheckpointError(f"{path}: manifest.json does not name {unnamed[0]}, which lies beside it")
    return files


def _check_size(file: Path, entry: Mapping[str, Any]) -> None:
    if (found := file.stat().st_size) != entry["bytes"]:
        raise CheckpointError(f"{file}: has {found} bytes, {entry['bytes']} were written")


def _check_digest(file: Path, entry: Mapping[str, Any], digest: str) -> None:
    if digest != entry["sha256"]:
        raise CheckpointError(f"{file}: its content is not what was written (SHA-256 differs)")
