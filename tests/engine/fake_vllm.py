"""A fake vLLM server: replies of a real one (``vllm_replies.json``, of vLLM 0.32), filled by what a small model draws.

It listens on a real port, reads weights from real files, and can be told to misbehave.
"""

import copy
import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import torch
from safetensors.torch import load_file

from lyceum.models.tree_attention import TreePlan

SLOW = 0.6
"""Seconds that a slow answer takes."""

KNOWN = {}
"""Logits by weights and tokens."""

REPLIES = json.loads(Path(__file__).with_name("vllm_replies.json").read_text())


class FakeVllm:
    """
    Attributes:
        faults: what is wrong with the next answers to generate; ``always`` with those after them.
        asked: paths of all requests, in order.
        failed: what was wrong with each answer to generate, None where nothing was.
        hangs: paths that are never answered.
        keeps_weights: it confirms new weights, and does not take them.
        says_version: it confirms this version, whatever it was given.
    """

    def __init__(self, policy, *, version="0.32.0", training=True, tokens=True, layers=None, port=0, **settings):
        self.policy, self.weights = copy.deepcopy(policy), None
        self.info = copy.deepcopy(REPLIES["server_info"]["content"])
        self.info["vllm_config"]["model_config"] |= {k: v for k, v in settings.items() if k != "backend"}
        if "backend" in settings:
            self.info["vllm_config"]["weight_transfer_config"] = settings["backend"] and {
                "backend": settings["backend"]
            }
        self.vllm, self.training, self.tokens, self.layers = version, training, tokens, layers
        self.model = "MODEL"
        self.label, self.paused, self.updating = "default", False, False
        self.faults, self.always, self.hangs = [], None, set()
        self.keeps_weights, self.says_version = False, None
        self.asked, self.generated, self.failed = [], 0, []
        self.files = []
        self.released = threading.Event()
        self._lock = threading.Lock()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                fake.answer(self, None)

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                fake.answer(self, json.loads(body) if body else None)

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # a client that has hung up

        self._listener = Server(("127.0.0.1", port), Handler)
        self.port = self._listener.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self):
        """Refuse connections from now on."""
        self.released.set()
        self._listener.shutdown()
        self._listener.server_close()

    # Answers ---------------------------------------------------------------------------------------------------------

    def answer(self, handler, content):
        path = urlsplit(handler.path).path
        self.asked.append(path)
        if path in self.hangs:
            self.released.wait()
            return
        if path == "/inference/v1/generate":
            with self._lock:
                fault = self.faults.pop(0) if self.faults else self.always
                self.generated += 1
                self.failed.append(fault)
            if fault == "hang":
                self.released.wait()
                return
            status, reply = self.generate(content, fault)
            body = json.dumps(reply).encode()
            if fault == "html":
                body = b"<html>busy</html>"
            if fault == "slow":
                time.sleep(SLOW)
            self.send(handler, status, body, half=fault == "cut", drops=fault == "drops")
            return
        with self._lock:
            status, reply = self.told(path, content)
        self.send(handler, status, json.dumps(reply).encode())

    def send(self, handler, status, body, half=False, drops=False):
        handler.send_response(status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        for place in range(len(body) if drops else 0):
            handler.wfile.write(body[place : place + 1])
            if self.released.wait(0.02):  # a kilobyte takes 20 s
                return
        if drops:
            return
        handler.wfile.write(body[: len(body) // 2] if half else body)
        if half:
            handler.close_connection = True

    def recorded(self, name):
        return REPLIES[name]["status"], copy.deepcopy(REPLIES[name]["content"])

    def told(self, path, content):
        name = path.strip("/")
        if path == "/version":
            return 200, {"version": self.vllm}
        if path == "/v1/models":
            status, reply = self.recorded("models")
            reply["data"][0] |= {"id": self.model, "root": self.model}
            return status, reply
        if not self.training:
            return self.recorded("is_paused without routes for training")
        if name == "server_info":
            return 200, self.info
        if name == "is_paused":
            return 200, {"is_paused": self.paused}
        if name in ("pause", "resume"):
            self.paused = name == "pause"
        if name == "start_weight_update":
            if self.updating:
                return self.recorded("start_weight_update again")
            self.updating = True
        if name == "update_weights":
            if not self.updating:
                return self.recorded("update_weights without start")
            if not self.take(**content["update_info"]):
                self.updating = False
                return self.recorded("update_weights of another digest")
        if name == "finish_weight_update":
            self.updating = False
            self.label = (content or {}).get("weight_version") or self.label
        if name == "weight_info":
            return 200, {"weight_version": self.says_version or self.label}
        if name == "weight_checker":
            return 200, {"checksums": self.checksums()}
        return self.recorded(name)

    def take(self, path, sha256):
        content = Path(path).read_bytes()
        self.files.append(path)
        if hashlib.sha256(content).hexdigest() != sha256:
            return False
        if not self.keeps_weights:
            self.policy.module.load_state_dict(load_file(path), strict=False)
            self.weights = None
        return True

    def checksums(self):
        found = {}
        for name, weight in self.policy.module.named_parameters():
            digest = hashlib.sha256(weight.detach().contiguous().numpy().tobytes()).hexdigest()
            found[f"dp0:pp0:pcp0:tp0:{name}"] = digest
        if self.layers is not None:
            found = {f"dp0:pp0:pcp0:tp0:model.layers.{i}.mlp.down_proj.weight": str(i) for i in range(self.layers)}
        return found

    def generate(self, content, fault):
        if not self.tokens:
            return self.recorded("generate without scale-out")
        if content["model"] != self.model:
            return self.recorded("generate of another model")
        if fault == "status 500":
            return self.recorded("update_weights without start")
        with self._lock:
            return 200, self.drawn(content["token_ids"], content["sampling_params"], fault)

    def drawn(self, prompt, params, fault):
        scored = params.get("logprob_token_ids")
        reply = self.recorded("generate" if scored is None else "score")[1]
        (choice,) = reply["choices"]
        tokens, content, finish = [], [], "length"
        while len(tokens) < params["max_tokens"] and finish == "length":
            logits = self.next_logits([*prompt, *tokens])
            temperature = params.get("temperature", 1.0)
            nats = (logits / (temperature or 1.0)).log_softmax(-1)
            generator = torch.Generator().manual_seed(params.get("seed", 0) % (1 << 62) + len(tokens))
            token = int(nats.argmax() if not temperature else torch.multinomial(nats.exp(), 1, generator=generator))
            others = scored or nats.topk(max(params.get("logprobs") or 1, 1)).indices.tolist()
            listed = list(dict.fromkeys([token, *others]))[: max(params.get("logprobs") or 1, 1)]
            top = [{"token_id": each, "logprob": float(nats[each]), "rank": 1} for each in listed]
            content.append({"token_id": token, "logprob": float(nats[token]), "rank": 1, "top_logprobs": top})
            tokens.append(token)
            finish = "stop" if token in params.get("stop_token_ids", ()) else "length"
        if "prompt_logprobs" in params:
            before = self.logits(prompt).log_softmax(-1)
            reply["prompt_logprobs"] = [None] + [
                {str(token): {"logprob": float(before[at, token]), "rank": 1, "decoded_token": None}}
                for at, token in enumerate(prompt[1:])
            ]
        if fault == "not finite":
            content[-1]["logprob"] = -9999.0
        if fault == "above 0":
            content[-1]["logprob"] = 0.5
        if fault == "half the tokens":
            tokens, content, finish = tokens[: len(tokens) // 2], content[: len(tokens) // 2], "length"
        choice["token_ids"], choice["logprobs"]["content"] = tokens, content
        choice["finish_reason"] = "abort" if fault == "aborted" else finish
        label = "another" if fault == "another version" else self.label
        choice["weight_versions"] = [{"version": label, "start": 0, "end": len(tokens)}]
        if fault == "two versions":
            choice["weight_versions"] = [
                {"version": "before", "start": 0, "end": 1},
                {"version": label, "start": 1, "end": len(tokens)},
            ]
        if fault == "no version":
            choice["weight_versions"] = None
        if fault == "no log-probabilities":
            choice["logprobs"] = None
        if fault == "another token's log-probability":
            content[0]["token_id"] += 1
        if fault == "no choices":
            reply["choices"] = []
        reply["model"] = "another" if fault == "another model" else self.model
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(tokens)}
        reply["usage"] |= usage | {"total_tokens": sum(usage.values())}
        return reply

    def next_logits(self, tokens):
        """Of the token after these; computed once for the same weights, which most servers of the tests have."""
        if self.weights is None or self.weights[0] is not self.policy:
            sums = tuple(float(weight.detach().double().sum()) for weight in self.policy.module.parameters())
            self.weights = self.policy, sums
        key = self.weights[1], tuple(tokens)
        if key not in KNOWN:
            KNOWN[key] = self.logits(tokens)[-1].clone()
        return KNOWN[key]

    @torch.inference_mode()
    def logits(self, tokens):
        position = torch.arange(len(tokens))
        hidden = self.policy.hidden(torch.tensor(tokens), position, TreePlan([position], [0]))
        return self.policy.head(hidden)
