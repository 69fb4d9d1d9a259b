"""Test-time search: strategies against each other, accuracy against tokens. Called, it is :func:`lyceum.api.search`."""

from lyceum.callable_module import callable_as

callable_as(__name__, "lyceum.api:search")
