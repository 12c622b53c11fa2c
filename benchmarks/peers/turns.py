"""How a peer takes turns: it runs rounds when asked and answers with their seconds.

For all peers, whatever environment they live in: the standard library and NumPy only.
Requests and answers are one JSON object per line: `{"rounds": n}` is answered with
`{"seconds": s}`, `{"result": true}` with what `result` returns. The end of the input is
the end of the work.
"""

import json
import os
import sys
import time


class Turns:
    """Rounds on request, for a peer whose loop of rounds is its own.

    The peer calls `wait` before its first round and after each round; it returns when
    another round is wanted.

    Args:
      result: Called without arguments when asked for the result; a dict.
    """

    def __init__(self, result):
        self._result = result
        self._left = 0
        self._count = 0
        self._start = None
        # What a library prints must not be taken for an answer.
        self._answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        sys.stdout.flush()
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def wait(self) -> bool:
        """Whether another round is wanted; blocks until that is known."""
        if self._left > 1:
            self._left -= 1
            return True
        if self._left == 1:
            self._left = 0
            self._answer({"seconds": time.perf_counter() - self._start})
        for line in sys.stdin:
            request = json.loads(line)
            if "rounds" in request:
                self._left = request["rounds"]
                self._start = time.perf_counter()
                return True
            self._answer(self._result())
        return False

    def _answer(self, answer: dict) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()
