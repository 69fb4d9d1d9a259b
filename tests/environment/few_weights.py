"""Policy-gradient steps of a policy of a few weights in a world: what outcomes teach, and compared states."""

import random
from collections import defaultdict


def taught(trajectory, tasks, habit, seed, *, rate, by_states, steps=6, discount=0.95):
    """The weights after some policy-gradient steps of 8 tasks with 8 samples: each command has its trajectory's outcome
    less the group's mean as its advantage, and with ``by_states`` GiGPO's of commands given in the same state too.

    Args:
        trajectory: of a task, weights and a generator, whether it ends well, and of each command the text of the state
            before it and the gradient of its log-probability.
        habit: the weights at first.
        rate: of a step along the mean gradient of a command.
    """
    rng, weights = random.Random(seed), habit
    for _ in range(steps):
        gradient, number = [0.0] * len(habit), 0
        for task in rng.sample(tasks, 8):
            group = [trajectory(task, weights, rng) for _ in range(8)]
            mean = sum(right for right, _ in group) / 8
            returns = [[right * discount ** (len(own) - 1 - t) for t in range(len(own))] for right, own in group]
            at = defaultdict(list)
            for (_, own), of_row in zip(group, returns, strict=True):
                for (text, _), value in zip(own, of_row, strict=True):
                    at[text].append(value)
            for (right, own), of_row in zip(group, returns, strict=True):
                for (text, slope), value in zip(own, of_row, strict=True):
                    more = value - sum(at[text]) / len(at[text]) if by_states else 0
                    gradient = [g + (right - mean + more) * s for g, s in zip(gradient, slope, strict=True)]
                    number += 1
        weights = [w + rate * g / number for w, g in zip(weights, gradient, strict=True)]
    return weights
