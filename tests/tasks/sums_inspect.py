"""A task of Inspect as its tutorial has it. ``make test-engines`` trains it."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes, match
from inspect_ai.solver import generate, system_message


@task
def sums(count=3):
    return Task(
        dataset=[Sample(input=f"What is {number}+2?", target=str(number + 2)) for number in range(count)],
        solver=[system_message("Answer in a word."), generate()],
        scorer=[includes(), match()],
    )
