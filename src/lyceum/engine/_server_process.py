"""A vLLM server of this process's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lyceum.utils.started_server import StartedServer


class OwnServer(StartedServer):
    """vLLM's server.

    Args:
        python: in whose environment vLLM is.
        arguments: of ``vllm serve``, without host and port.
        environment: variables that it has beside this process's.
    """

    def __init__(self, python: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        # Not the command `vllm`, which the CPU build of 0.32 ends with an error: it looks for a package named vllm.
        command = [python, "-m", "vllm.entrypoints.openai.api_server", *arguments, "--host", "127.0.0.1", "--port"]
        super().__init__(lambda port: [*command, str(port)], environment)
