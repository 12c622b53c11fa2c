"""Devices that share the slots of the span engine: the numbers of the dense engine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

# In its own process: the number of devices is fixed when JAX starts.
SCRIPT = """
import chex, jax, numpy as np
import afga_jax, test_span, toy
from afga_jax import Execution
from afga_jax.seeds import keys_of

jax.config.update("jax_enable_x64", True)
for name in ("ring", "adam", "scaffold", "cycles"):
    data = toy.clients(test_span.CASES[name][1])
    algorithm = test_span.built(name)
    spanned = afga_jax.Trainer(algorithm, Execution("span", slot_width=2), capacity=2)
    dense = afga_jax.Trainer(algorithm, Execution("dense"), capacity=2)
    found, expected = (
        jax.device_get(each.run(test_span.KEY, each.init(test_span.KEY), data, 2))
        for each in (spanned, dense)
    )
    assert spanned.choice.engine == "span", spanned.choice
    assert spanned.choice.devices == 2
    chex.assert_trees_all_close(found, expected, rtol=0, atol=1e-10)

keys = keys_of(0, 2)
wide = Execution("span", slot_width=2)
trainer = afga_jax.Trainer(test_span.built("ring"), wide, capacity=2)
state, seen = trainer.run(keys, trainer.init(keys), toy.clients(20), 2)
state, seen = trainer.run(keys, state, toy.clients(20), 1)
assert seen.loss.shape == (1, 2)
assert (np.asarray(state.round) == 3).all()
print("same numbers")
"""


@pytest.mark.slow
def test_two_devices_share_the_slots():
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=TESTS,
        env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stdout == "same numbers\n", done.stderr
