"""The command line: ``train``, ``eval``, ``search``, ``compare``, ``hints``, ``recipes``, ``components``, ``same``, and
``view``.

Each command is a function of the Python API with its result printed. What needs a model's library is imported inside
the commands: ``lyceum --help`` answers at once.
"""

from lyceum.cli.outcome import main

__all__ = ["main"]
