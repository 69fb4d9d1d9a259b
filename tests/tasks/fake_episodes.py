"""An environment as a library would have it, played in a worker process: what its prompt says goes wrong, does."""

import asyncio
import json
import os
import time
import urllib.request


def make(prompts, alone):
    return Environment(prompts, alone)


class Environment:
    def __init__(self, prompts, alone):
        self.prompts = prompts
        self.place = asyncio.Semaphore(1 if alone else 1000)

    def tasks(self, first, last):
        return [{"prompt": each, "answer": None, "data": each} for each in self.prompts[first:last]]

    async def run(self, **asked):
        async with self.place:
            return await self.played(**asked)

    async def played(self, data, base_url, key, model, max_requests, max_tokens):
        said = await asyncio.to_thread(ask, base_url, key, {"messages": [{"role": "user", "content": data}]})
        if data == "die":
            os._exit(3)
        if data == "hang":
            time.sleep(600)
        if data == "wait":
            await asyncio.sleep(600)
        if data == "raise":
            raise KeyError("no such thing")
        if data == "ask on":
            for _ in range(max_requests):
                await asyncio.to_thread(ask, base_url, key, {"messages": [{"role": "user", "content": data}]})
        reward = float("nan") if data == "nothing" else 1.0
        return {"reward": reward, "parts": {"correct": len(said), "limits": max_requests + max_tokens}}


def ask(base_url, key, body):
    headers = {"Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{base_url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]
