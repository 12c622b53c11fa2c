"""Which of a test's many cases run when."""

import pytest


def marked(cases, unmarked):
    """Cases for `parametrize`: all but some are left to the slow tests.

    Cases of several arguments are tuples.
    """
    cases = list(cases)
    assert set(unmarked) <= set(cases)
    values = (case if isinstance(case, tuple) else (case,) for case in cases)
    return [
        pytest.param(*value, marks=() if case in unmarked else pytest.mark.slow)
        for case, value in zip(cases, values, strict=True)
    ]
