"""The examination: load, sample, and run each check in turn."""

from __future__ import annotations

import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from lyceum.analysis.doctor.chat import end_of_sequence, template
from lyceum.analysis.doctor.learning import gradients, publishing, saving
from lyceum.analysis.doctor.loading import loading, speed
from lyceum.analysis.doctor.request import DoctorRequest, Heard
from lyceum.analysis.doctor.result import CheckResult
from lyceum.analysis.doctor.sampling import determinism, greedy, log_probabilities
from lyceum.analysis.doctor.subject import Subject
from lyceum.core.user_files import describe
from lyceum.models.load import load_policy
from lyceum.utils.aio import run_async
from lyceum.utils.garbage_collection import only_new
from lyceum.utils.html import table
from lyceum.utils.progress import Progress

Check = Callable[[Subject], Awaitable[list[CheckResult]]]

CHECKS: dict[str, Check] = {
    "loading": loading,
    "template": template,
    "end of sequence": end_of_sequence,
    "log-probabilities": log_probabilities,
    "greedy": greedy,
    "determinism": determinism,
    "gradients": gradients,
    "publishing": publishing,
    "saving": saving,
    "speed": speed,
}
"""In order: publishing changes the weights."""


@dataclass(frozen=True)
class Report:
    """The doctor's report."""

    request: DoctorRequest
    results: list[CheckResult]
    seconds: float

    @property
    def failures(self) -> list[CheckResult]:
        return [result for result in self.results if result.status == "fails"]

    def __repr__(self) -> str:
        failed = ", ".join(result.check for result in self.failures) or "none"
        return f"Report({self.request.model.path}, {len(self.results)} checks; failed: {failed})"

    def _repr_html_(self) -> str:
        rows = [(each.status, each.check, each.found, each.cure) for each in self.results]
        return table(("", "check", "found", "what to do"), rows, title=self.request.model.path)

    def to_json(self) -> dict[str, Any]:
        request = self.request
        return {
            "ok": not self.failures,
            "model": request.model.path,
            "samples": request.samples,
            "tokens": request.tokens,
            "seed": request.seed,
            "seconds": round(self.seconds, 3),
            "checks": [result.to_json() for result in self.results],
        }


def examine(request: DoctorRequest) -> Report:
    """Run all checks."""
    began = time.perf_counter()
    with Progress(len(CHECKS) + 1, title="doctor", unit="check") as progress, only_new():
        progress.phase("loading the model")
        with Heard() as heard:
            policy = load_policy(request.model)
        subject = Subject(request, policy, request.engine.build(policy), warnings=[*request.warnings, *heard.messages])
        results = run_async(run_checks(subject, progress))
    return Report(request, results, time.perf_counter() - began)


async def run_checks(subject: Subject, progress: Progress) -> list[CheckResult]:
    """Sample what the checks examine, then run them. What an engine or a learner raises fails its check alone."""
    progress.phase("sampling")
    await subject.sample()
    progress.step(1)
    results: list[CheckResult] = []
    for number, (name, check) in enumerate(CHECKS.items(), 2):
        progress.phase(name)
        try:
            results += await check(subject)
        except Exception as error:
            cure = "the traceback says where; engine, learner and model are named in it"
            values = {"traceback": traceback.format_exc()}
            results.append(CheckResult(name, "fails", f"raised {describe(error)}", "no error", cure, values))
        progress.step(number)
    return results
