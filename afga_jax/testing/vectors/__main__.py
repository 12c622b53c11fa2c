"""Writes all test vectors: `python -m afga_jax.testing.vectors OUT`."""

import sys

from afga_jax.testing import vectors

if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
    sys.exit("python -m afga_jax.testing.vectors OUT: the folder to write to")
for path in vectors.write(sys.argv[1]):
    print(path)
