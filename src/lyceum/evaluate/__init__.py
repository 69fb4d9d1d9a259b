"""Measuring: pass@k, majorities, intervals, comparisons. Called, it is :func:`lyceum.api.evaluate`."""

from lyceum.callable_module import callable_as

callable_as(__name__, "lyceum.api:evaluate")
