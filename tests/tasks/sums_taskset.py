"""An environment of verifiers as its guide has it: a taskset with a reward. ``make test-engines`` trains it."""

import verifiers.v1 as vf


class Data(vf.TaskData):
    answer: str


class Sum(vf.Task[Data, vf.State, vf.TaskConfig]):
    @vf.reward
    async def correct(self, trace) -> float:
        return float(self.data.answer in (trace.last_reply or ""))

    @vf.metric
    async def letters(self, trace) -> float:
        return float(len(trace.last_reply or ""))


class SumTaskset(vf.Taskset[Sum, vf.TasksetConfig]):
    def load(self):
        for number in range(3):
            yield Sum(Data(prompt=f"What is {number}+2?", answer=str(number + 2)), self.config.task)


__all__ = ["SumTaskset"]
