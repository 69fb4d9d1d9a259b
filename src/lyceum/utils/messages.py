"""The text of chat messages, whose content is one text or a list of parts: ``{type: text, text: ...}``, and pictures,
``{type: image, image: ...}``, which have none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lyceum.utils.errors import RecipeError
from lyceum.utils.terminal import quoted

PICTURES = ("image", "image_url")
"""Types of parts that are pictures; the second is OpenAI's, which datasets may have."""


def text_parts(content: Any) -> list[str]:
    """The texts of a message's content, one for each part of text.

    Raises:
        RecipeError: a part is neither text nor a picture.
    """
    if isinstance(content, str):
        return [content]
    return [_text(part) for part in content if not (isinstance(part, Mapping) and part.get("type") in PICTURES)]


def text_of(content: Any) -> str:
    """A message's content as one text, its parts concatenated, as templates that support parts print it."""
    return "".join(text_parts(content))


def prompt_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """The text of a prompt's messages, each part below the one before it, roles left out."""
    return "\n\n".join(text for message in messages for text in text_parts(message["content"]))


def _text(part: Any) -> str:
    text = part.get("text") if isinstance(part, Mapping) and part.get("type", "text") == "text" else part
    if not isinstance(text, str):
        raise RecipeError(
            f"a chat message's content has the part {quoted(part)}; allowed: {{type: text, text: ...}}, "
            "{type: image, image: ...}"
        )
    return text
