"""An environment of verifiers whose agent asks twice in this process, and whose reward does what the prompt says."""

import os
import time

import verifiers.v1 as vf
from openai import AsyncOpenAI


class Hostile(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def does(self, trace) -> float:
        if self.data.prompt == "die":
            os._exit(3)
        if self.data.prompt == "hang":
            time.sleep(600)
        if self.data.prompt == "raise":
            raise KeyError("no such thing")
        return float(trace.num_turns)


class HostileTaskset(vf.Taskset[Hostile, vf.TasksetConfig]):
    def load(self):
        for prompt in ("good", "raise", "die", "hang"):
            yield Hostile(vf.TaskData(prompt=prompt, name=prompt), self.config.task)


class AsksTwice(vf.Harness[vf.HarnessConfig]):
    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None):
        messages = [{"role": "user", "content": data.prompt}]
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0) as client:
            for _ in range(2):
                reply = await client.chat.completions.create(model=ctx.model, messages=messages)
                said = reply.choices[0].message.content
                messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "Again."}]
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


__all__ = ["AsksTwice", "HostileTaskset"]
