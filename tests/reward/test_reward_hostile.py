"""Hostile completions (``hostile_answers.py``): none passes, none ends the run, none hangs.

All of them: ``python benchmarks/verifiers.py --only hostile``.
"""

import asyncio
from collections import Counter

from fake_task import NO_MODEL
from hostile_answers import attacks
from leaves import Source, leaf

from lyceum.reward.base import combine


def verdicts(chosen):
    graders = {}

    async def grade(attack):
        key = attack.part.model_dump_json()
        if key not in graders:
            graders[key] = combine([attack.part], Source(attack.task))
        [grade] = await graders[key](attack.task, [leaf(attack.completion, tokens=1)], NO_MODEL)
        return grade

    async def all_of_them():
        return await asyncio.gather(*map(grade, chosen))

    return asyncio.run(all_of_them())


def test_no_hostile_completion_passes_ends_the_run_or_hangs():
    counts = Counter()
    chosen = []
    for number, attack in enumerate(attacks(timeout_seconds=1, workers=1)):
        counts[attack.verifier] += 1
        # Every 41st, a prime, so that payloads, wrappings and extractions take turns; maths has a test of its own.
        if number % 41 == 0 and attack.verifier != "math":
            chosen.append(attack)
    assert counts.total() >= 5000
    assert min(counts.values()) >= 500
    found = list(zip(chosen, verdicts(chosen), strict=True))
    assert not [attack for attack, grade in found if grade.correct or grade.outcome]
    assert not [attack for attack, grade in found if grade.outcome is None and not grade.reason]
