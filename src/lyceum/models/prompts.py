"""Whether a model can read the prompts of some tasks: checked with its tokenizer, before any weight is loaded."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from lyceum.core.sources import checked_tasks, fitted, left_out
from lyceum.core.types import Task, TaskSource
from lyceum.models.renderer import Renderer
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.lazy_imports import transformers
from lyceum.utils.messages import text_of
from lyceum.utils.terminal import printable, quoted

log = logging.getLogger(__name__)

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""Roles of messages that chat templates know by these names; many write any other as if it were one, too."""

CHECKED = 64
"""Number of tasks of a source whose prompts are rendered before a model is loaded."""


def fitting_prompts(
    key: str, source: TaskSource, tokenizer: transformers.PreTrainedTokenizerBase, limit: int
) -> TaskSource:
    """The tasks that :func:`check_prompts` gives, without rendering the prompts that it checks.

    Raises:
        RecipeError: of a dataset, where a prompt is refused, or none is left.
    """
    return fitted(source, TokenizerReader(key, tokenizer, limit))


def check_prompts(
    key: str,
    source: TaskSource,
    tokenizer: transformers.PreTrainedTokenizerBase,
    limit: int,
    tools: Sequence[Mapping[str, Any]] = (),
) -> TaskSource:
    """The tasks whose prompts the model can read: a dataset's settings say whether others are refused, left out or cut.

    Args:
        key: the recipe's key of the tasks.
        limit: the model's context, in tokens.
        tools: what prompts tell of, as JSON schemas.
    Raises:
        RecipeError: a prompt is refused, among the first tasks or, of a dataset, the longest; or none is left.
    """
    reader = TokenizerReader(key, tokenizer, limit, tools)
    source = fitted(source, reader)
    checked = checked_tasks(source, CHECKED)[:CHECKED]
    for i in checked:
        reader.check(source[i])
    if tools and checked:
        reader.check_tools(source[checked[0]])
    return source


def say_left_out(key: str, source: TaskSource) -> None:
    """Tell the user which rows are not used as they are."""
    unused = left_out(source)
    if unused.dropped or unused.cut:
        log.warning("%s.bad_rows: rows that cannot be used as they are: %s", key, printable(str(unused)))


class TokenizerReader:
    """Implements ``PromptReader`` by a model's tokenizer, before any weight is loaded."""

    def __init__(
        self,
        key: str,
        tokenizer: transformers.PreTrainedTokenizerBase,
        limit: int,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.key, self.tokenizer, self.limit, self.tools = key, tokenizer, limit, tools
        self.renderer = Renderer(tokenizer)

    def check_tools(self, task: Task) -> None:
        """Refuse a template that cannot carry what tools return; say where a prompt tells nothing of them.

        Raises:
            RecipeError: it refuses tools' results, or leaves them out.
        """
        self.renderer.check_results(self.tools)
        told = self.renderer.render(task.messages, self.tools).text
        if told == self.renderer.render(task.messages).text and "<tool_call>" not in told:
            log.warning(
                "model.chat_template: the template used with %s has no place for tools, so that the model is not told "
                "of them; allowed: another model or template, or prompts that say what there is, and that calls are "
                'written <tool_call>{"name": ..., "arguments": {...}}</tool_call>',
                printable(self.tokenizer.name_or_path or "the model"),
            )

    def tokens(self, task: Task) -> int:
        return characters if self.far_too_long(characters := prompt_characters(task)) else len(self._render(task))

    def far_too_long(self, characters: int) -> bool:
        return far_too_long(self.tokenizer, characters, self.limit)

    def check(self, task: Task) -> None:
        key, limit, prompt = self.key, self.limit, f"the prompt of task {task.id!r}"
        if self.far_too_long(characters := prompt_characters(task)):
            raise RecipeError(
                f"{key}: {prompt} has {characters} characters, but the model's context of {limit} tokens holds at most "
                f"{limit * longest_token(self.tokenizer)}"
            )
        template = str(self.tokenizer.chat_template)
        roles = [message["role"] for message in task.messages]
        if strange := [role for role in roles if role not in ROLES and role not in template]:
            raise RecipeError(
                f"{key}: {prompt} has a message of the role {quoted(strange[0])}{nearest(strange[0], ROLES)}, of which "
                f"the model's chat template does not speak; allowed: {', '.join(ROLES)}"
            )
        ids = self._render(task)
        if len(ids) >= limit:
            told = f", its {len(self.tools)} tools' descriptions among them," if self.tools else ","
            raise RecipeError(f"{key}: {prompt} has {len(ids)} tokens{told} the model's context {limit}")
        unknown = self.tokenizer.unk_token_id
        if unknown is not None and unknown in ids:
            text = "".join(text_of(message["content"]) for message in task.messages)
            ids_of = {c: self.tokenizer(c, add_special_tokens=False)["input_ids"] for c in sorted(set(text))}
            strange = [repr(c) for c, ids in ids_of.items() if unknown in ids]
            raise RecipeError(
                f"{key}: the model's vocabulary does not fit: {prompt} has characters it has no token for: "
                f"{' '.join(strange[:10])}"
            )

    def _render(self, task: Task) -> Sequence[int]:
        try:
            return self.renderer.render(task.messages, self.tools).tokens
        except RecipeError as error:
            raise RecipeError(
                [f"{self.key}: the prompt of task {task.id!r} cannot be rendered", *error.lines]
            ) from error


def far_too_long(tokenizer: transformers.PreTrainedTokenizerBase, characters: int, limit: int) -> bool:
    """Whether so many characters cannot fit even if each token were the longest: ten megabytes take the tokenizer half
    a minute."""
    return characters > limit and characters > limit * longest_token(tokenizer)  # most do not ask for the longest


@lru_cache(maxsize=2)
def longest_token(tokenizer: transformers.PreTrainedTokenizerBase) -> int:
    """Characters of the vocabulary's longest token."""
    return max(map(len, tokenizer.get_vocab()), default=1)


def prompt_characters(task: Task) -> int:
    """Characters of the prompt's messages, without the template's."""
    return sum(len(text_of(message["content"])) for message in task.messages)
