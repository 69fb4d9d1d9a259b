"""The files that an answer may write, and what the file of the reward comes to. Nothing in them is ever executed.

An answer writes a file by ``{c=1}``: the name, and the text that replaces the file's. The files are a dict of one
answer, made from the task when it is graded, so that there is nothing an answer could reach beyond it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lyceum.utils.arithmetic import NotArithmetic, evaluate

CHECKLIST, REWARD = "c", "r"
"""Names of the files: what was done (0 or 1); what an answer is paid, a term in which ``k`` is 1 where it is right."""
RIGHT = "k"
_WRITES = re.compile(r"\{([a-z])=([^{}]*)\}")


def written(files: Mapping[str, str], text: str) -> dict[str, str]:
    """The files after an answer: only those that there are can be written."""
    after = dict(files)
    for name, content in _WRITES.findall(text):
        if name in after:
            after[name] = content
    return after


def without_writes(text: str) -> str:
    return _WRITES.sub("", text)


def paid_by(term: str, right: bool) -> float:
    """What a file of the reward says that an answer is paid, within 0 and 1; 0 where it is no term of numbers."""
    try:
        value, _ = evaluate(term.replace(RIGHT, str(int(right))))
    except NotArithmetic:
        return 0.0
    return min(1.0, max(0.0, float(value)))
