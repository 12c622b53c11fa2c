"""`python -m experiments.data`: what it prints, its exit codes, what it survives."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import loopback
import numpy as np
import pytest
from absl import flags

from afga_jax.data import cache, fetch, sources
from experiments import data

ROOT = Path(__file__).parent.parent


@pytest.fixture
def server():
    with loopback.serving() as running:
        yield running


@pytest.fixture
def access(tmp_path):
    (tmp_path / "tfds").mkdir()
    return sources.Access(
        data_dir=tmp_path / "tfds",
        cache_dir=tmp_path / "cache",
        offline=False,
        timeout=0.3,
        attempts=1,
    )


@pytest.fixture
def cifar(server, monkeypatch):
    """A small CIFAR-10 on the server; the path that it has there."""
    arrays = loopback.arrays_of("cifar10")
    files = loopback.originals_of("cifar10", arrays)
    loopback.register(
        {"cifar10": server.stand_in("cifar10", files)}, monkeypatch.setattr
    )
    return "/cifar10/cifar10.tar.gz"


def start(tmp_path, server, *arguments, before=None, program=None, **environment):
    """Starts the command, or another program, with small sets as the papers' sets."""
    stand_ins = tmp_path / "stand_ins.json"
    if not stand_ins.exists():
        named = {
            name: server.stand_in(
                name, loopback.originals_of(name, loopback.arrays_of(name))
            )
            for name in ("cifar10", "mnist")
        }
        stand_ins.write_text(json.dumps(named))
    (tmp_path / "tfds").mkdir(exist_ok=True)
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith("AFGA_")
    }
    places = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        "TFDS_DATA_DIR": str(tmp_path / "tfds"),
        "AFGA_CACHE_DIR": str(tmp_path / "cache"),
    }
    command = ["-c", program] if program else [str(ROOT / "tests" / "loopback.py")]
    return subprocess.Popen(
        [sys.executable, *command, str(stand_ins), *arguments],
        env=inherited | places | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,
    )


def finish(process):
    output, errors = process.communicate(timeout=120)
    return process.returncode, output, errors


def one_error_line(capsys):
    output, errors = capsys.readouterr()
    assert output == ""
    (line,) = errors.splitlines()
    assert line.startswith("error: ")
    return line


# In this process.


def test_list_names_every_set(access, cifar, capsys):
    assert data.execute("list", [], access) == 0
    output = capsys.readouterr().out
    for line, name in zip(
        output.splitlines()[1:6],
        ["cifar10", "cifar100", "fashion_mnist", "mnist", "shakespeare"],
        strict=True,
    ):
        assert line.split()[:3] == [name, "missing", "-"]
    assert "cifar10.tar.gz" in output
    assert "size not registered: https://www.gutenberg.org" in output
    assert str(access.data_dir) in output
    assert str(access.cache_dir) in output


def test_fetch_list_verify(access, cifar, server, capsys):
    assert data.execute("fetch", ["cifar10"], access) == 0
    path = cache.path_of("cifar10", access.cache_dir)
    assert capsys.readouterr().out == f"cifar10: cached, 0.2 MB, {path}\n"
    assert data.execute("verify", ["cifar10"], access) == 0
    line = capsys.readouterr().out
    assert "cifar10: whole" in line
    assert "50 train, 10 test, 10 classes" in line
    assert data.execute("list", [], access) == 0
    listed = capsys.readouterr().out.splitlines()[1]
    assert listed.split() == ["cifar10", "cached", "0.2", "MB", str(path)]
    assert data.execute("fetch", ["cifar10"], access) == 0
    assert len(server.requests) == 1


def test_verify_names_the_damage(access, cifar, capsys):
    arrays = loopback.arrays_of("cifar10")
    arrays["train_targets"][3] = 99
    with cache.workspace("cifar10", access.cache_dir) as scratch:
        cache.write("cifar10", access.cache_dir, arrays, "originals", scratch)
    assert data.execute("verify", ["cifar10"], access) == 1
    line = one_error_line(capsys)
    assert "is damaged: train label 99 of sample 3 is outside [0, 10)" in line
    path = cache.path_of("cifar10", access.cache_dir)
    path.write_bytes(path.read_bytes()[:-100])
    assert data.execute("verify", ["cifar10"], access) == 1
    assert f"{path} is damaged" in one_error_line(capsys)
    path.unlink()
    assert data.execute("verify", ["cifar10"], access) == 1
    assert "nothing to verify" in one_error_line(capsys)


def wrong_checksum(server, path):
    # Of the registered size, so that only the checksum tells.
    server.files[path] = bytes(len(server.files[path]))
    return "wrong checksum"


def truncated(server, path):
    content = server.files[path]
    server.files[path] = lambda handler: loopback.answer(
        handler, content[:-100], promised=len(content) - 100
    )
    return "connection ended after"


def missing_page(server, path):
    del server.files[path]
    return "the server answered 404"


def broken_server(server, path):
    server.files[path] = lambda handler: handler.send_error(500)
    return "the server answered 500"


def silent_server(server, path):
    server.files[path] = lambda handler: threading.Event().wait(1)
    return "no answer within 0.3 s"


@pytest.mark.parametrize(
    "mishap", [wrong_checksum, truncated, missing_page, broken_server, silent_server]
)
def test_mishap_is_one_line_and_leaves_nothing(mishap, access, server, cifar, capsys):
    reason = mishap(server, cifar)
    assert data.execute("fetch", ["cifar10"], access) == 1
    line = one_error_line(capsys)
    assert reason in line
    for part in ("cifar10", str(access.data_dir), str(access.cache_dir), server.url):
        assert part in line
    assert list(access.cache_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"../evil": b""}, "points outside"),
        ({"cifar-10-batches-bin/test_batch.bin": b"short"}, "fewer than 10 records"),
    ],
)
def test_registered_but_harmful_archive(
    members, reason, access, server, monkeypatch, capsys
):
    members = loopback.cifar_members("cifar10", loopback.arrays_of("cifar10")) | members
    files = {"cifar10.tar.gz": loopback.tar_of(members)}
    loopback.register(
        {"cifar10": server.stand_in("cifar10", files)}, monkeypatch.setattr
    )
    assert data.execute("fetch", ["cifar10"], access) == 1
    assert reason in one_error_line(capsys)
    assert list(access.cache_dir.iterdir()) == []


def test_nobody_listening(access, monkeypatch, capsys):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/cifar10.tar.gz"
    loopback.register({"cifar10": {url: [1, "0" * 64]}}, monkeypatch.setattr)
    assert data.execute("fetch", ["cifar10"], access) == 1
    assert f"{url}: nobody answers there" in one_error_line(capsys)
    assert list(access.cache_dir.iterdir()) == []


@pytest.mark.parametrize(
    "words", [["fetch"], ["verify"], ["list", "mnist"], ["steal", "mnist"]]
)
def test_words_that_are_no_command(words, access, capsys):
    assert data.execute(words[0], words[1:], access) == 2
    assert "usage: python -m experiments.data" in one_error_line(capsys)


def test_bad_flag_is_one_line(tmp_path, capsys):
    values = flags.FlagValues()
    data.define_flags(values)
    arguments = values(["data", "fetch", "mnist", f"--data_dir={tmp_path}/nowhere"])
    assert data.main(arguments, values) == 1
    assert "nowhere does not exist" in one_error_line(capsys)


def test_unknown_name(access, capsys):
    assert data.execute("fetch", ["cifar"], access) == 1
    assert "no data set 'cifar'; choose one of cifar10" in one_error_line(capsys)
    assert not access.cache_dir.exists()


def test_interrupt_leaves_nothing(access, cifar, monkeypatch, capsys):
    def interrupt(sink, content):
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch._Sink, "write", interrupt)
    assert data.execute("fetch", ["cifar10"], access) == 130
    assert "stopped" in capsys.readouterr().err
    assert list(access.cache_dir.iterdir()) == []


# In processes of their own.


@pytest.mark.slow
def test_flags_and_exit_code(tmp_path, server):
    process = start(tmp_path, server, "fetch", "cifar10", "--offline")
    code, output, errors = finish(process)
    assert (code, output) == (1, "")
    (line,) = errors.splitlines()
    assert line.startswith(f"error: cifar10 is neither prepared under {tmp_path}")
    assert server.requests == []


@pytest.mark.slow
def test_two_processes_fetch_the_same_set(tmp_path, server):
    asked, both_there = threading.Event(), threading.Event()
    path = "/cifar10/cifar10.tar.gz"
    first = start(tmp_path, server, "fetch", "cifar10")
    content = server.files[path]

    def answer_when_both_are_there(handler):
        asked.set()
        both_there.wait(60)
        loopback.answer(handler, content)

    server.files[path] = answer_when_both_are_there
    assert asked.wait(60)
    second = start(tmp_path, server, "fetch", "cifar10")
    note = second.stderr.readline()
    both_there.set()
    assert note == "note: Another process works on cifar10; waiting for it.\n"
    for process in (first, second):
        code, output, errors = finish(process)
        assert (code, errors) == (0, "")
        assert output.startswith("cifar10: cached")
    assert server.requests == [path]
    assert os.listdir(tmp_path / "cache") == ["cifar10.npz"]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["download", "decoded"])
def test_killed_in_the_middle_then_success(moment, tmp_path, server):
    reached, path = threading.Event(), "/cifar10/cifar10.tar.gz"
    # The second moment: the decoded file is written and about to get its name.
    program = (
        "import json, os, sys, time, loopback\n"
        "from experiments import data\n"
        "loopback.register(json.load(open(sys.argv.pop(1))))\n"
        "os.replace = lambda *paths: (print('ready', flush=True), time.sleep(60))\n"
        "data.run()\n"
    )
    process = start(
        tmp_path,
        server,
        "fetch",
        "cifar10",
        program=program if moment == "decoded" else None,
    )
    content = server.files[path]

    def half(handler):
        loopback.answer(handler, content[: len(content) // 2], promised=len(content))
        reached.set()
        threading.Event().wait(5)

    if moment == "download":
        server.files[path] = half
        assert reached.wait(60)
    else:
        assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGKILL)
    finish(process)
    left = os.listdir(tmp_path / "cache")
    assert "cifar10.npz" not in left
    assert ".cifar10.partial" in left
    server.files[path] = content
    code, output, errors = finish(start(tmp_path, server, "fetch", "cifar10"))
    assert (code, errors) == (0, "")
    assert output.startswith("cifar10: cached")
    assert os.listdir(tmp_path / "cache") == ["cifar10.npz"]
    arrays, _ = cache.read("cifar10", tmp_path / "cache")
    expected = loopback.arrays_of("cifar10")
    np.testing.assert_array_equal(arrays["train_inputs"], expected["train_inputs"])


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["archive", "decoded file"])
def test_full_disk_leaves_nothing(victim, tmp_path, server):
    files = loopback.originals_of("cifar10", loopback.arrays_of("cifar10"))
    archive_size = len(files["cifar10.tar.gz"])
    limit = {"archive": archive_size - 1, "decoded file": archive_size + 1}[victim]

    # A file that cannot grow fails as on a full disk, with another number of error.
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    process = start(
        tmp_path,
        server,
        "fetch",
        "cifar10",
        before=limited,
        PYTHONDONTWRITEBYTECODE="1",
    )
    code, output, errors = finish(process)
    assert (code, output) == (1, "")
    (line,) = errors.splitlines()
    assert "cannot be written (File too large)" in line
    assert os.listdir(tmp_path / "cache") == []


@pytest.mark.slow
def test_no_tensorflow_from_the_fetch_to_a_training_step(tmp_path, server):
    program = (
        "import json, sys, loopback\n"
        "loopback.register(json.load(open(sys.argv[1])))\n"
        "import afga_jax\n"
        "import jax, jax.numpy as jnp\n"
        "from afga_jax.data import sources\n"
        "data = sources.load('mnist')\n"
        "inputs = jnp.asarray(data.train_inputs.reshape(50, -1), jnp.float32) / 255\n"
        "def loss(weights):\n"
        "    scores = jax.nn.log_softmax(inputs @ weights)\n"
        "    return -jnp.mean(scores[jnp.arange(50), data.train_targets])\n"
        "weights = jnp.zeros((784, 10))\n"
        "step = jax.jit(lambda w: w - 0.1 * jax.grad(loss)(w))\n"
        "assert loss(step(weights)) < loss(weights)\n"
        "print('tensorflow' in sys.modules, 'tensorflow_datasets' in sys.modules)\n"
    )
    code, output, errors = finish(start(tmp_path, server, program=program))
    assert (code, output, errors) == (0, "False True\n", "")
    assert len(server.requests) == 4
