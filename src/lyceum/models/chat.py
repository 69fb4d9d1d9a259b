"""Chat templates from outside: what is checked before ``renderer.py`` renders messages with one."""

from __future__ import annotations

import multiprocessing
import signal
from pathlib import Path
from typing import Any, cast

import jinja2

from lyceum.models.picture_tokens import pictures_of
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import transformers
from lyceum.utils.messages import in_parts
from lyceum.utils.terminal import quoted

KEY = "model.chat_template"
TRIAL_SECONDS, TRIAL_CPU_SECONDS, TRIAL_BYTES, TRIAL_CHARACTERS = 20.0, 2, 1 << 30, 1_000_000
"""Limits of a template's time, memory and output for one message of one word."""
WORD = "nightingale"

ADVICE = "give another template by model.chat_template, or other messages"


def check_template(tokenizer: transformers.PreTrainedTokenizerBase, path: str) -> None:
    """Refuse a template that is not Jinja, does not end, or drops the user's message, tried on one message of one word.

    It is tried in a separate process, with limits on time and memory: a template from a hub may loop forever. One that
    refuses the word passes (it may require a system message), since the first prompts are rendered before a model is
    loaded. So does one that loops only on some other message.

    Args:
        path: the file or model that it comes from.
    Raises:
        RecipeError: it says which of these.
    """
    template = tokenizer.chat_template
    tried = (str(template), path)
    if tried in _passed:
        return
    fault = _in_process(tokenizer)
    if fault:
        raise RecipeError(f"{KEY}: the template of {path} {fault}; give another by model.chat_template")
    _passed.add(tried)


_passed: set[tuple[str, str]] = set()


def _in_process(tokenizer: transformers.PreTrainedTokenizerBase) -> str:
    """What is wrong, from a process that may be killed; empty where nothing is."""
    if "fork" not in multiprocessing.get_all_start_methods() or multiprocessing.current_process().daemon:
        return _trial(tokenizer)  # on Windows, and where no process may be started: without limits
    # Forked: a fresh process would import for seconds. It runs only Python, without threads or a device.
    processes = multiprocessing.get_context("fork")
    here, there = processes.Pipe(duplex=False)
    process = processes.Process(target=_limited_trial, args=(tokenizer, there), daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(TRIAL_SECONDS):
            return f"does not end within {TRIAL_SECONDS:g} seconds for one message of one word"
        return here.recv_bytes().decode()
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGXCPU:
            return f"takes more than {TRIAL_CPU_SECONDS} seconds for one message of one word"
        return f"ends the process that renders one message of one word (more than {TRIAL_BYTES >> 20} MiB?)"
    finally:
        process.kill()
        process.join()
        here.close()


def _limited_trial(tokenizer: transformers.PreTrainedTokenizerBase, answer: Any) -> None:
    import resource  # not available on Windows

    statm = Path("/proc/self/statm")
    if statm.exists():  # Linux; elsewhere only the limits of time apply
        used = int(statm.read_text().split()[0]) * resource.getpagesize()
        _lower(resource.RLIMIT_AS, used + TRIAL_BYTES)
    spent = resource.getrusage(resource.RUSAGE_SELF)  # a fork begins at 0
    _lower(resource.RLIMIT_CPU, int(spent.ru_utime + spent.ru_stime) + TRIAL_CPU_SECONDS)
    answer.send_bytes(_trial(tokenizer).encode())


def _lower(limit: int, most: int) -> None:
    """Lower a limit of this process, unless it is lower already."""
    import resource

    now, highest = resource.getrlimit(limit)
    given = [each for each in (now, highest) if each != resource.RLIM_INFINITY]
    resource.setrlimit(limit, (min([most, *given]), highest))


def _trial(tokenizer: transformers.PreTrainedTokenizerBase) -> str:
    try:
        chat: list[dict[str, Any]] = [{"role": "user", "content": WORD}]
        chat = chat if pictures_of(tokenizer) is None else in_parts(chat)
        texts = {
            cast(str, tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)) for _ in "ab"
        }
    except jinja2.TemplateSyntaxError as error:
        return f"is not valid Jinja: {error.message}, line {error.lineno}"
    except MemoryError:
        return f"takes more than {TRIAL_BYTES >> 20} MiB for one message of one word"
    except Exception:
        return ""
    text = texts.pop()
    if texts:
        return "renders differently each time"
    if len(text) > TRIAL_CHARACTERS:
        return f"makes {len(text)} characters of one word"
    return "" if WORD in text else f"drops the user's message: {WORD!r} renders as {quoted(text)}"
