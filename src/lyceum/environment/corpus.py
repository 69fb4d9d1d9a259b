"""A corpus: queries are answered with the passages of a file that are most like them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from lyceum.core.component import PathText
from lyceum.core.settings import Composition, EnvironmentSettings
from lyceum.core.tree import Node
from lyceum.core.types import Environment, GradingContext, Observation
from lyceum.core.user_files import user_file
from lyceum.environment._notation import AnswerSoFar, Notation, WithinTurn
from lyceum.utils.documents import read_json
from lyceum.utils.errors import RecipeError
from lyceum.utils.paths import local_path
from lyceum.utils.ranking import RankedTexts

NOTHING = "nothing found"
_KEY, _ADVICE = "environment.path", "allowed: a text file of one passage per line, or .jsonl rows with text, and title"


class Corpus(EnvironmentSettings):
    """A search engine that is always there: for evaluating what self-search has learned, or for training on it.

    A passage whose title is the query comes first, then those with the most similar wording (BM25 of their title and
    text); a passage that has no word of the query is never found. Words are letters and digits, whatever their case
    and the punctuation around them; an operation on numbers, such as ``37+8``, is one word.

    Source:
        Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009; by the library bm25s
        (arXiv:2407.03618), in Lucene's form, k1 1.5 and b 0.75.
    """

    kind: Literal["corpus"] = "corpus"
    path: PathText
    """File with the passages: a text file of one passage per line, or ``.jsonl`` rows with ``text`` and, if they have
    one, ``title``."""
    notation: Notation = Notation(begin="<search>", end="</search>", before="<information>", after="</information>")
    """How queries and passages stand within the policy's text."""
    passages: int = Field(default=3, ge=1, le=100)
    """Maximum passages per query, one per line."""
    max_characters: int = Field(default=1000, ge=1)
    """Maximum characters per passage; longer ones are truncated."""

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.notation.end,)

    def check(self, stage: Composition) -> list[str]:
        try:
            read_passages(self.path)
        except RecipeError as error:
            return list(error.lines)
        return []

    def build(self) -> Environment[AnswerSoFar]:
        return CorpusEnvironment(self)


class Passage(NamedTuple):
    text: str
    title: str = ""


def read_passages(path: str) -> list[Passage]:
    """The passages of a file, in order; empty lines are none.

    Raises:
        RecipeError: it cannot be read, holds something else, or no passage.
    """
    with user_file(_KEY, path, _ADVICE):
        file = local_path(path)
        if file.exists() and not file.is_file():
            raise ValueError("no regular file")  # a device may have no end
        lines = [line for line in file.read_text("utf-8").splitlines() if line.strip()]
        found = (
            [_row(read_json(line)) for line in lines] if Path(path).suffix == ".jsonl" else list(map(Passage, lines))
        )
        if not found:
            raise ValueError("no passage")
    return found


def _row(row: object) -> Passage:
    texts = [row.get(name, "") for name in ("text", "title")] if isinstance(row, dict) else []
    if not all(isinstance(text, str) for text in texts) or not "".join(texts[:1]).strip():
        raise ValueError("a row without a text")
    return Passage(*texts)


class CorpusEnvironment(WithinTurn):
    def __init__(self, settings: Corpus) -> None:
        self.settings, self.passages = settings, read_passages(settings.path)
        self.titled = {_folded(passage.title): passage for passage in reversed(self.passages) if passage.title}
        self.ranked = RankedTexts([f"{passage.title} {passage.text}" for passage in self.passages])

    async def step(
        self, state: AnswerSoFar, turn: Node, said: str, context: GradingContext
    ) -> Observation[AnswerSoFar]:
        notation = self.settings.notation
        query = notation.query(state.text, said)
        if query is None:
            return Observation(state, end=True)
        found = [passage.text[: self.settings.max_characters] for passage in self.search(query)]
        answer = f"{notation.before}{chr(10).join(found) or NOTHING}{notation.after}"
        tokens = tuple(context.encode_after(turn.path_tokens(), answer))
        after = state.then(said, answer)
        return Observation(after, tokens=tokens, key=f"{after.calls}:{query}", calls=1, failed=int(not found))

    def search(self, query: str) -> list[Passage]:
        """The most similar passages, the best first; ties go to the earlier one in the file."""
        exact, most = self.titled.get(_folded(query)), self.settings.passages
        first = [] if exact is None else [exact]
        ranked = [self.passages[place] for place in self.ranked.places(query, most + len(first))]
        return [*first, *(passage for passage in ranked if passage is not exact)][:most]


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()
