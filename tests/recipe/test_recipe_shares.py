"""No source of a recipe's advantages drowns the others, over a run, unless its paper means it to, or its header says
that this small world does it."""

import json
from collections import defaultdict
from pathlib import Path

import pytest
from proofs import PROOFS

from lyceum.analysis.proving import mixed
from lyceum.recipe.files import recipe_text

RESULT = Path(__file__).parents[2] / "benchmarks/results/shares.json"
MOST = 0.95

KL = "The KL is a leash and not a signal, as in the paper"
OVERLONG = "The overlong penalty is a bound and not a signal, as in"
INTENDED = {
    "adaptive-dapo": {"code": OVERLONG},
    "archer": {"task": "Q towards the reward plus 0.95 times the target copy's value of the next state"},
    "autotriton": {"code": "decides whether the execution counts"},
    "carl": {"rubric": "one main term, how far a solution gets"},
    "cory": {"outcome": KL},
    "cos-m-o-s": {"curiosity": "whether the text is a chain (one that is none earns half)"},
    "cure": {"task": OVERLONG},
    "dapo": {"task": OVERLONG},
    "deepmath-103k": {"task": OVERLONG},
    "deepsearch": {"outcome": OVERLONG},
    "empg": {"outcome": "With their zeta the bonus is a nuance"},
    "extract-method": {"outcome": KL},
    "grpo-tcr": {"task": OVERLONG},
    "hapo": {"task": OVERLONG},
    "p3o": {"outcome": KL},
    "prof": {"task": "a process reward model only chooses samples and rewards nothing"},
    "r1-reward": {"task": "The factor takes from right choices alone, so that it works against the verdict"},
    "reinforce-plus-plus": {"outcome": KL},
    "rlgf": {"outcome": KL},
    "rlsp": {"task": "pays for more intermediate steps whether the answer is correct or not"},
    "salsa": {"outcome": KL},
    "self-referential": {"task": "a failure whose group has a success 0.6 sigmoid"},
    "spa-rl": {"process": "the outcome itself is not paid again"},
    "thinkless": {"task": "a correct long answer earns less than a correct short one"},
    "time-r1": {"distance": "A bonus of 0.05 for the format"},
    "tulu3": {"outcome": KL},
}
"""Recipe -> source that is nearly all -> the words of its header that say why the paper means it so."""
OF_THIS_WORLD = {
    "spear": {"task": "calls differ little between the samples of a chain, and what is paid for them is 1 %"},
    "sari": {"task": "Most samples have the structure already, which is of this small world and not of the paper"},
    "pcurl": {"task": "of this small world, not of the paper: the fine-tuning teaches the format"},
    "tp-grpo": {"task": "in this small world, which is not what the paper means it to be"},
}
"""The same, where it is an effect of the small tasks and models here."""
PENALTY = {"overlong"}
"""What acts on few samples, but on some: its share is small and not 0."""


def shares():
    found = defaultdict(dict)
    for row in json.loads(RESULT.read_text())["rows"]:
        found[row["recipe"]][row["stage"], row["source"]] = row["share"]
    return found


def test_every_recipe_that_mixes_sources_was_measured():
    mixing = {name: mixed(name) for name, proof in PROOFS.items() if proof.needs is None}
    expected = {
        (name, stage, source)
        for name, stages in mixing.items()
        for stage, sources in stages.values()
        for source in sources
    }
    known = {(name, stage, source) for name, of in shares().items() for stage, source in of if source != "other"}
    assert known == expected


def test_a_penalty_reaches_some_samples():
    for name, rows in shares().items():
        assert [source for (_, source), share in rows.items() if source in PENALTY and not share] == [], name


@pytest.mark.parametrize("name", shares())
def test_no_source_is_nearly_all_of_the_advantage_but_where_the_header_says_why(name):
    loud = {source for (_, source), share in shares()[name].items() if share is not None and share > MOST}
    reasons = INTENDED.get(name, {}) | OF_THIS_WORLD.get(name, {})
    assert loud == reasons.keys()
    header = " ".join(line.removeprefix("#").strip() for line in recipe_text(name).splitlines() if line.startswith("#"))
    for words in reasons.values():
        assert words in " ".join(header.split())
