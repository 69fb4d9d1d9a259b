"""Chat messages, whose content is one text or a list of parts: ``{type: text, text: ...}``, and pictures,
``{type: image, image: ...}``, which have no text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


def plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose content is one text: for content in parts, most templates would print Python's repr."""
    content = message.get("content")
    return {**message, "content": text_of(content)} if isinstance(content, list | tuple) else dict(message)


def in_parts(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages as templates of models that see want them: content as a list of parts, of which a picture says no more
    than that it is one."""

    def shown(part: Any) -> dict[str, Any]:
        return {"type": "image"} if is_picture_part(part) else {"type": "text", "text": text_of([part])}

    def parts(content: Any) -> Any:
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        return content if content is None else [shown(part) for part in content]

    return [{**message, "content": parts(message.get("content"))} for message in messages]


def check_text(text: Any) -> None:
    """Refuse half of a surrogate pair, which no tokenizer can encode.

    Raises:
        RecipeError: it says where in the text.
    """
    try:
        if isinstance(text, str):
            text.encode()
    except UnicodeEncodeError as error:
        around = text[max(0, error.start - 20) : error.end + 20]
        raise RecipeError(f"a text has a lone surrogate at {error.start}: {quoted(around)}; allowed: none") from error


def picture_parts(messages: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    """Where the pictures of chat messages are, in their order: a path, or a ``data:`` URI."""
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list | tuple) else ():
            if is_picture_part(part):
                named = part.get("image") or part.get("image_url")
                yield named.get("url") if isinstance(named, Mapping) else named


def is_picture_part(part: Any) -> bool:
    """Whether a part of a message is a picture: ``{"type": "image", "image": PATH_OR_URI}``, or as OpenAI writes it."""
    return isinstance(part, Mapping) and part.get("type") in PICTURES


def _text(part: Any) -> str:
    text = part.get("text") if isinstance(part, Mapping) and part.get("type", "text") == "text" else part
    if not isinstance(text, str):
        raise RecipeError(
            f"a chat message's content has the part {quoted(part)}; allowed: {{type: text, text: ...}}, "
            "{type: image, image: ...}"
        )
    return text
