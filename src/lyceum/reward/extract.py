"""Extraction of the answer from a completion: pure functions on text, always linear in its length."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_serializer, model_validator

from lyceum.core.component import Settings
from lyceum.utils.documents import DocumentError, read_json
from lyceum.utils.numbers import to_json
from lyceum.utils.terminal import quoted

FORMS = 'whole, boxed, fenced, {after: "####"}, {tags: answer}, {json: answer}'


class Extract(Settings):
    """``whole``, ``boxed``, ``fenced``, ``{after: MARK}``, ``{tags: NAME}`` or ``{json: FIELD}``."""

    form: Literal["whole", "boxed", "fenced", "after", "tags", "json"] = "whole"
    """The whole completion, the last ``\\boxed{}``, the last closed code block (between lines of three backticks), the
    rest of the line after the last mark, the last ``<tag>``, or a field of the completion, which is a JSON object, or
    an item of it, by number from 0, where it is a list."""
    mark: str = ""
    """The mark of ``after``, the name of ``tags``, or the field or number of ``json``."""

    @model_validator(mode="before")
    @classmethod
    def _from_short_form(cls, given: Any) -> Any:
        if isinstance(given, Extract):
            return given
        if given in ("whole", "boxed", "fenced"):
            return {"form": given}
        if isinstance(given, dict) and len(given) == 1:
            [(form, mark)] = given.items()
            if form in ("after", "tags", "json") and isinstance(mark, str) and mark.strip():
                return {"form": form, "mark": mark}
        raise ValueError(f"got {quoted(given)}; allowed: {FORMS}")

    @model_serializer
    def _to_short_form(self) -> Any:
        return {self.form: self.mark} if self.mark else self.form

    def __call__(self, text: str) -> str | None:
        """The answer without surrounding white space; None where the completion has none in that place."""
        match self.form:
            case "whole":
                return text.strip() or None
            case "boxed":
                return last_boxed(text)
            case "fenced":
                return inside_last_fence(text)
            case "after":
                return after_last(text, self.mark)
            case "tags":
                return inside_last_tags(text, self.mark)
            case "json":
                return json_field(text, self.mark)

    @property
    def _opening(self) -> str:
        """What stands right before an answer; empty for ``whole``."""
        named = {"after": self.mark, "tags": f"<{self.mark}>", "json": f'"{self.mark}":'}
        return {"whole": "", "boxed": "\\boxed{", "fenced": "```", **named}[self.form]

    def before(self, text: str) -> str:
        """The text in front of the answer's mark; all of it where there is no mark."""
        if self.form == "fenced":
            return text if (fence := last_fence(text)) is None else text[: fence[0]]
        before, found, _ = text.rpartition(self._opening) if self._opening else ("", "", "")
        return before if found else text

    def until_answer(self, text: str) -> str | None:
        """The text up to where the answer begins, the mark before it included; None where ``self(text)`` is None."""
        if self.form == "whole" or self(text) is None:
            return None
        if self.form == "fenced":
            return None if (fence := last_fence(text)) is None else text[: fence[1]]
        if self.form == "tags":
            text = text.rpartition(f"</{self.mark}>")[0]
        before, found, _ = text.rpartition(self._opening)
        return before + found

    def answered(self, text: str) -> bool | None:
        """Whether there is an answer in that place; None for ``whole``, where any text is one."""
        return None if self.form == "whole" else self(text) is not None


WHOLE = Extract.model_validate("whole")


def after_last(text: str, mark: str) -> str | None:
    """What follows the last ``mark`` up to the end of its line; None where there is no mark or nothing after it."""
    _, found, rest = text.rpartition(mark)
    return (rest.strip().partition("\n")[0].strip() or None) if found else None


def inside_last_tags(text: str, tag: str) -> str | None:
    """The inside of the last closed ``<tag>...</tag>``; None where no pair is closed, or it is empty."""
    before, closed, _ = text.rpartition(f"</{tag}>")
    _, opened, inside = before.rpartition(f"<{tag}>")
    return (inside.strip() or None) if closed and opened else None


def last_fence(text: str) -> tuple[int, int, int] | None:
    """Where the last closed code block begins, its inside begins, and its inside ends; None where none is closed.

    A block begins with a line of three backticks and at most a language's name, and ends with a line of three
    backticks; an unclosed one is none.
    """
    found: tuple[int, int, int] | None = None
    opened: tuple[int, int] | None = None
    at = 0
    for line in text.splitlines(keepends=True):
        stripped = line.strip()
        if opened is not None and stripped == "```":
            found, opened = (*opened, at), None
        elif opened is None and stripped.startswith("```") and "`" not in stripped[3:]:
            opened = (at, at + len(line))
        at += len(line)
    return found


def inside_last_fence(text: str) -> str | None:
    """The inside of the last closed code block; None where none is closed, or it is empty."""
    fence = last_fence(text)
    return None if fence is None else text[fence[1] : fence[2]].strip() or None


def json_field(text: str, name: str) -> str | None:
    """A field of a JSON object, or the item of a list with this number (from 0): a text as it is, a number, list or
    object as JSON. None where there is none, or the text is not one JSON object or list."""
    try:
        found = read_json(text)
    except DocumentError:
        return None
    if isinstance(found, list):
        found = {str(place): item for place, item in enumerate(found)}
    value = found.get(name) if isinstance(found, dict) else None
    if value is None:
        return None
    return (value if isinstance(value, str) else to_json(value)).strip() or None


def last_boxed(text: str) -> str | None:
    """The inside of the last ``\\boxed{...}``, braces balanced; None where there is none, or it is not closed."""
    _, found, rest = text.rpartition("\\boxed{")
    if not found:
        return None
    depth, escaped = 1, False
    for at, character in enumerate(rest):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return rest[:at].strip() or None
    return None


def vote(completion: str) -> str | None:
    """The answer used for majority voting: the last box, the inside of answer tags or the text after the last ``#``
    marker, or else the last line. Only equality matters here; the grader judges correctness."""
    marked = (last_boxed(completion), inside_last_tags(completion, "answer"), after_last(completion, "#"))
    found = next((answer for answer in marked if answer), None)
    return found or next((line.strip() for line in reversed(completion.splitlines()) if line.strip()), None)
