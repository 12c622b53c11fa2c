"""Settings of the tests that call commands in their own process."""

import sys

import pytest


@pytest.fixture(autouse=True)
def commands_end_as_others(monkeypatch):
    """A command that fails ends its process at once, which here is the tests' own."""

    def leave(code, message=None):
        if message is not None:
            print(message, file=sys.stderr)
        sys.exit(code)

    monkeypatch.setattr("afga_jax.runs.processes.leave", leave)
