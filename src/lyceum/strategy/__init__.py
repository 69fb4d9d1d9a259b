"""Test-time search: how candidate answers are found, and how one of them is chosen without the verifier."""
