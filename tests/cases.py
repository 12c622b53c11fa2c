"""Which of a test's many cases run when."""

import pytest


def marked(cases, unmarked, mark=pytest.mark.slow):
    """Cases for `parametrize`: all but some have a mark, such as `slow`."""
    assert set(unmarked) <= set(cases)
    return [x if x in unmarked else pytest.param(x, marks=mark) for x in cases]
