"""Judges for tests: functions in the place of the run's model, and an HTTP server on this machine."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from lyceum.core.types import Continuation
from lyceum.utils.seeds import counter_seed


class JudgeContext:
    """A grading context whose tokens are characters and whose model answers by a function of what it is asked.

    Attributes:
        asked: the prompts, in the order in which they came.
    """

    folder = None
    step, progress = 0, 0.0

    def __init__(self, answer=None, *, progress=0.0, key="run"):
        self.answer, self.progress, self.key, self.asked = answer, progress, key, []

    def render(self, messages):
        return [ord(c) for c in "\n".join(f"{message['role']}: {message['content']}" for message in messages)]

    def decode(self, tokens):
        return "".join(map(chr, tokens))

    def seed(self, *key):
        return counter_seed(self.key, *key)

    async def ask(self, prefix, n, sampling, *, key):
        prompt = self.decode(prefix)
        self.asked.append(prompt)
        assert self.answer is not None, "the run's own model is asked"
        replies = self.answer(prompt)
        replies = [replies] * n if isinstance(replies, str) else replies
        assert len(replies) == n
        return [
            Continuation([ord(c) for c in r], [0.0] * len(r), [0.0] * len(r), [0] * len(r), "stop") for r in replies
        ]


class Server:
    """Answers chat completions by a list of (status, body), the last one again and again; or by a function of the body.

    Attributes:
        asked: (path, header Authorization, body) of each question.
    """

    def __init__(self, *replies: Any):
        self.replies, self.asked = list(replies), []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                length = int(self.headers["Content-Length"])
                asked = json.loads(self.rfile.read(length))
                outer.asked.append((self.path, self.headers.get("Authorization"), asked))
                reply = outer.replies.pop(0) if len(outer.replies) > 1 else outer.replies[0]
                status, body = reply(asked) if callable(reply) else reply
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

            def log_message(self, format, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def says(text, read=1000, written=10):
    usage = {"prompt_tokens": read, "completion_tokens": written}
    return 200, {"choices": [{"message": {"content": text}}], "usage": usage}
