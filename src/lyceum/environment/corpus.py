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
from lyceum.environment._notation import Notation, WithinTurn, Written
from lyceum.utils.documents import read_json
from lyceum.utils.errors import RecipeError
from lyceum.utils.paths import local_path

NOTHING = "nothing found"
_KEY, _ADVICE = "environment.path", "allowed: a text file of one passage per line, or .jsonl rows with text, and title"


class Corpus(EnvironmentSettings):
    """A search engine that is always there: for evaluating what self-search has learned, or for training on it.

    A passage whose title is the query comes first, then those with the most similar wording (TF-IDF of their title and
    text, by cosine); a passage that has no word of the query is never found.
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

    def build(self) -> Environment[Written]:
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
        lines = [line for line in local_path(path).read_text("utf-8").splitlines() if line.strip()]
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
        from sklearn.feature_extraction.text import TfidfVectorizer  # here: it takes a second to import

        self.settings, self.passages = settings, read_passages(settings.path)
        self.titled = {_folded(passage.title): passage for passage in reversed(self.passages) if passage.title}
        # Words as white space separates them: an operation such as 37+8 is one.
        self.vectorizer = TfidfVectorizer(token_pattern=r"\S+")
        self.vectors = self.vectorizer.fit_transform(f"{passage.title} {passage.text}" for passage in self.passages)

    async def step(self, state: Written, turn: Node, said: str, context: GradingContext) -> Observation[Written]:
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
        from sklearn.metrics.pairwise import linear_kernel

        similar = linear_kernel(self.vectorizer.transform([query]), self.vectors)[0]
        order = [place for place in (-similar).argsort(kind="stable") if similar[place] > 0]
        exact = self.titled.get(_folded(query))
        ranked = [self.passages[place] for place in order[: self.settings.passages + 1]]
        first = [] if exact is None else [exact]
        return [*first, *(passage for passage in ranked if passage is not exact)][: self.settings.passages]


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()
