"""Whether a model can read the prompts of some tasks: checked with its tokenizer, before any weight is loaded."""

from __future__ import annotations

from heapq import nlargest

from lyceum.core.types import Task, TaskSource
from lyceum.models.renderer import Renderer
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import transformers
from lyceum.utils.messages import text_of

CHECKED = 64
"""Number of tasks of a source whose prompts are rendered before a model is loaded."""


def check_prompts(key: str, source: TaskSource, tokenizer: transformers.PreTrainedTokenizerBase, limit: int) -> None:
    """Refuse prompts that the model cannot read: the first tasks, and for a dataset the longest too."""
    tasks = [source[i] for i in source.looked_at(CHECKED)[:CHECKED]]
    # Generators make prompts of similar length; in a dataset the longest row is the one that fails.
    further = source.looked_at(CHECKED)[CHECKED:]
    tasks += nlargest(CHECKED, (source[i] for i in further), key=prompt_characters)
    for task in tasks:
        check_prompt(key, task, tokenizer, limit)


def prompt_characters(task: Task) -> int:
    """Approximate length, to rank prompts by."""
    return sum(len(str(message["content"])) for message in task.messages)


def check_prompt(key: str, task: Task, tokenizer: transformers.PreTrainedTokenizerBase, limit: int) -> None:
    """Refuse a prompt that the model cannot read."""
    refuse_too_long(key, task, tokenizer, limit)
    try:
        ids = Renderer(tokenizer).render(task.messages).tokens
    except RecipeError as error:
        raise RecipeError([f"{key}: the prompt of task {task.id!r} cannot be rendered", *error.lines]) from error
    if len(ids) >= limit:
        raise RecipeError(f"{key}: the prompt of task {task.id!r} has {len(ids)} tokens, the model's context {limit}")
    unknown = tokenizer.unk_token_id
    if unknown is not None and unknown in ids:
        text = "".join(text_of(message["content"]) for message in task.messages)
        strange = sorted({c for c in set(text) if unknown in tokenizer(c, add_special_tokens=False)["input_ids"]})
        raise RecipeError(
            f"{key}: the model's vocabulary does not fit: the prompt of task {task.id!r} has characters it has no "
            f"token for: {' '.join(map(repr, strange[:10]))}"
        )


def refuse_too_long(key: str, task: Task, tokenizer: transformers.PreTrainedTokenizerBase, limit: int) -> None:
    """Refuse a prompt that cannot fit, without tokenizing it: ten megabytes take half a minute.

    Args:
        key: the recipe's key of the tasks.
        limit: the model's context, in tokens.
    Raises:
        RecipeError: even if each token were the vocabulary's longest there would be too many.
    """
    count = sum(len(text_of(message["content"])) for message in task.messages)
    if count <= limit:  # most prompts: the vocabulary is not scanned for them
        return
    longest = max(map(len, tokenizer.get_vocab()), default=1)
    if count > limit * longest:
        raise RecipeError(
            f"{key}: the prompt of task {task.id!r} has {count} characters, but the model's context of {limit} tokens "
            f"holds at most {limit * longest}"
        )
