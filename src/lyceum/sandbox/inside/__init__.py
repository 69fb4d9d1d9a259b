"""What runs inside the sandbox: a judge, which holds the tests, and one process for each run of the program.

The judge forks the program's processes before it reads anything, so that no test is in their memory; then it gives up
its own rights. A program answers calls over a pipe with plain data (JSON), which the judge compares: no code of the
program is ever run in the process that decides, whose verdict goes over a descriptor that the program does not have.

Only the standard library: it is imported by the sandbox's own Python, without site packages, as a package named
``inside``.
"""
