"""`python -m experiments.data` in processes of its own: together, killed, cut short."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import loopback
from afga_jax.data.store import cache

ROOT = Path(__file__).parents[2]
# Seconds until a process counts as stuck; a busy machine takes long to import.
PATIENCE = 300
# Each starts a process or more, which takes seconds to import.
pytestmark = pytest.mark.slow


@pytest.fixture
def start(tmp_path, server):
    """Starts the command, or another program, with small sets as the papers' sets."""
    stand_ins = tmp_path / "stand_ins.json"
    named = {
        name: server.stand_in(
            name, loopback.originals_of(name, loopback.arrays_of(name))
        )
        for name in ("cifar10", "mnist")
    }
    stand_ins.write_text(json.dumps(named))
    (tmp_path / "tfds").mkdir()
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith("AFGA_")
    }
    places = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        "TFDS_DATA_DIR": str(tmp_path / "tfds"),
        "AFGA_CACHE_DIR": str(tmp_path / "cache"),
    }
    started = []

    def begin(*arguments, program=None, **environment):
        command = ["-c", program] if program else [str(ROOT / "tests" / "loopback.py")]
        process = subprocess.Popen(
            [sys.executable, *command, str(stand_ins), *arguments],
            env=inherited | places | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        with process:
            pass


def finish(process):
    output, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, output, errors


def test_flags_and_exit_code(tmp_path, server, start):
    process = start("fetch", "cifar10", "--offline")
    code, output, errors = finish(process)
    assert (code, output) == (1, "")
    (line,) = errors.splitlines()
    assert line.startswith(f"error: cifar10 is neither prepared under {tmp_path}")
    assert server.requests == []


def test_two_processes_fetch_the_same_set(tmp_path, server, start):
    asked, both_there = threading.Event(), threading.Event()
    path = "/cifar10/cifar10.tar.gz"
    content = server.files[path]

    def answer_when_both_are_there(handler):
        asked.set()
        both_there.wait(PATIENCE)
        loopback.answer(handler, content)

    server.files[path] = answer_when_both_are_there
    first = start("fetch", "cifar10", f"--timeout={PATIENCE}")
    assert asked.wait(PATIENCE)
    second = start("fetch", "cifar10")
    note = second.stderr.readline()
    both_there.set()
    assert note == "note: Another process works on cifar10; waiting for it.\n"
    for process in (first, second):
        code, output, errors = finish(process)
        assert (code, errors) == (0, "")
        assert output.startswith("cifar10: cached")
    assert server.requests == [path]
    assert os.listdir(tmp_path / "cache") == ["cifar10.npz"]


@pytest.mark.parametrize("moment", ["download", "decoded"])
def test_killed_in_the_middle_then_success(moment, tmp_path, server, start):
    reached, over = threading.Event(), threading.Event()
    path = "/cifar10/cifar10.tar.gz"
    content = server.files[path]

    def half(handler):
        loopback.answer(handler, content[: len(content) // 2], promised=len(content))
        reached.set()
        over.wait(PATIENCE)

    if moment == "download":
        server.files[path] = half
        process = start("fetch", "cifar10", f"--timeout={PATIENCE}")
        assert reached.wait(PATIENCE)
    else:
        # The decoded file is written and about to get its name.
        program = (
            "import json, os, sys, time, loopback\n"
            "from afga_jax.runs import main\n"
            "loopback.register(json.load(open(sys.argv.pop(1))))\n"
            "os.replace = lambda *_: (print('ready', flush=True), time.sleep(900))\n"
            "main.start('data')\n"
        )
        process = start("fetch", "cifar10", program=program)
        assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGKILL)
    finish(process)
    over.set()
    left = os.listdir(tmp_path / "cache")
    assert "cifar10.npz" not in left
    assert ".cifar10.partial" in left
    server.files[path] = content
    code, output, errors = finish(start("fetch", "cifar10"))
    assert (code, errors) == (0, "")
    assert output.startswith("cifar10: cached")
    assert os.listdir(tmp_path / "cache") == ["cifar10.npz"]
    arrays, _ = cache.read("cifar10", tmp_path / "cache")
    expected = loopback.arrays_of("cifar10")
    np.testing.assert_array_equal(arrays["train_inputs"], expected["train_inputs"])


@pytest.mark.parametrize("victim", ["archive", "decoded file"])
def test_full_disk_leaves_nothing(victim, tmp_path, server, start):
    files = loopback.originals_of("cifar10", loopback.arrays_of("cifar10"))
    archive_size = len(files["cifar10.tar.gz"])
    limit = {"archive": archive_size - 1, "decoded file": archive_size + 1}[victim]

    # A file that cannot grow fails as on a full disk, with another number of error.
    process = start(
        "fetch", "cifar10", FILE_LIMIT=str(limit), PYTHONDONTWRITEBYTECODE="1"
    )
    code, output, errors = finish(process)
    assert (code, output) == (1, "")
    (line,) = errors.splitlines()
    assert "cannot be written (File too large)" in line
    assert os.listdir(tmp_path / "cache") == []


def test_no_tensorflow_from_the_fetch_to_a_trained_model(tmp_path, server, start):
    program = (
        "import json, sys, loopback\n"
        "loopback.register(json.load(open(sys.argv[1])))\n"
        "import jax, afga_jax\n"
        "from afga_jax import data, models\n"
        "mnist = data.load('mnist')\n"
        # Of a set that is not replaced, so that TFDS's own table is read.
        "from afga_jax.data.store import catalog, fetch\n"
        "assert len(fetch.originals(catalog.find('fashion_mnist'))) == 4\n"
        "held = data.partition.build('iid', mnist.train_targets, 5)\n"
        "clients = data.from_dataset(mnist, held, batch_size=8)\n"
        "task = models.classifier(models.create('mlp', 10), (28, 28, 1))\n"
        "afga = afga_jax.build('afga', task, num_clients=5, active=2, local_lr=0.1)\n"
        "result = afga_jax.fit(afga, clients, key=jax.random.key(0), rounds=2)\n"
        "assert result.history.train_loss[1] == result.history.train_loss[1]\n"
        "print('tensorflow' in sys.modules, 'tensorflow_datasets' in sys.modules)\n"
    )
    code, output, errors = finish(start(program=program))
    assert (code, output, errors) == (0, "False True\n", "")
    assert len(server.requests) == 4
