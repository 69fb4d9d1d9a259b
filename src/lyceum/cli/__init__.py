"""The command line: ``train``, ``eval``, ``grade``, ``search``, ``compare``, ``hints``, ``recipes``, ``components``,
``same``, ``replay`` and ``view``.

Each command is a function of the Python API with its result printed. Model libraries are imported only inside
the commands: ``lyceum --help`` answers at once.
"""

from lyceum.cli.outcome import main

__all__ = ["main"]
