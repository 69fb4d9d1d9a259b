"""Checks of the vLLM servers that sample: which they are, whether they take the weights, and how long that lasts."""

from __future__ import annotations

import time

from lyceum.analysis.doctor.result import CheckResult
from lyceum.analysis.doctor.subject import Subject
from lyceum.engine.vllm_server import VllmServerEngine


async def servers(subject: Subject) -> list[CheckResult]:
    """Nothing where the engine has none."""
    engine = subject.engine
    if not isinstance(engine, VllmServerEngine):
        return []
    began = time.perf_counter()
    await engine.load(subject.policy.module, engine.version)
    seconds = time.perf_counter() - began
    results: list[CheckResult] = []
    for server in engine.servers.servers:
        about = f"vLLM {server.vllm}, model {server.model}, {server.dtype}, {server.world_size} processes"
        results.append(CheckResult(f"server {server.url}", "note", about))
        found = "it confirms them, and draws by them" if server.failure is None else str(server.failure)
        results.append(
            CheckResult.of(
                f"server {server.url}: weights",
                server.failure is None,
                found,
                allowed="the version that was given, log-probabilities that are the learner's",
                cure="start it again, with the model that is trained",
            )
        )
    gigabytes = engine.servers.bytes / 1e9
    rate = f"{seconds:.2g} s for {gigabytes:.2g} GB by {engine.config.transfer}: {seconds / gigabytes:.2g} s per GB"
    results.append(CheckResult("servers: weights", "note", f"{rate}, checks included", values={"seconds": seconds}))
    return results
