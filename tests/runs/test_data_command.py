"""`python -m experiments.data`: what it prints, and its exit codes."""

import dataclasses
import socket
import threading

import pytest

import loopback
from afga_jax.data.store import cache, fetch, sources
from afga_jax.runs import command, main
from afga_jax.runs.commands import data


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


def execute(verb, names, access):
    return command.execute(lambda _: data.execute(verb, names, access), ["data"])


def one_error_line(capsys):
    output, errors = capsys.readouterr()
    assert output == ""
    (line,) = errors.splitlines()
    assert line.startswith("error: ")
    return line


def test_list_names_every_set(access, cifar, capsys):
    assert execute("list", [], access) == 0
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
    assert execute("fetch", ["cifar10"], access) == 0
    path = cache.path_of("cifar10", access.cache_dir)
    assert capsys.readouterr().out == f"cifar10: cached, 0.2 MB, {path}\n"
    assert execute("verify", ["cifar10"], access) == 0
    line = capsys.readouterr().out
    assert "cifar10: whole" in line
    assert "50 train, 10 test, 10 classes" in line
    assert execute("list", [], access) == 0
    listed = capsys.readouterr().out.splitlines()[1]
    assert listed.split() == ["cifar10", "cached", "0.2", "MB", str(path)]
    assert execute("fetch", ["cifar10"], access) == 0
    assert len(server.requests) == 1


def test_verify_names_the_damage(access, cifar, capsys):
    arrays = loopback.arrays_of("cifar10")
    arrays["train_targets"][3] = 99
    with cache.workspace("cifar10", access.cache_dir) as scratch:
        cache.write("cifar10", access.cache_dir, arrays, "originals", scratch)
    assert execute("verify", ["cifar10"], access) == 1
    line = one_error_line(capsys)
    assert "is damaged: train label 99 of sample 3 is outside [0, 10)" in line
    path = cache.path_of("cifar10", access.cache_dir)
    path.write_bytes(path.read_bytes()[:-100])
    assert execute("verify", ["cifar10"], access) == 1
    assert f"{path} is damaged" in one_error_line(capsys)
    path.unlink()
    assert execute("verify", ["cifar10"], access) == 1
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
    if mishap is silent_server:
        access = dataclasses.replace(access, timeout=0.3)
    assert execute("fetch", ["cifar10"], access) == 1
    line = one_error_line(capsys)
    assert reason in line
    for part in ("cifar10", str(access.data_dir), str(access.cache_dir), server.url):
        assert part in line
    assert list(access.cache_dir.iterdir()) == []


def test_registered_but_broken_archive(access, server, monkeypatch, capsys):
    members = loopback.cifar_members("cifar10", loopback.arrays_of("cifar10"))
    members["cifar-10-batches-bin/test_batch.bin"] = b"short"
    files = {"cifar10.tar.gz": loopback.tar_of(members)}
    loopback.register(
        {"cifar10": server.stand_in("cifar10", files)}, monkeypatch.setattr
    )
    assert execute("fetch", ["cifar10"], access) == 1
    assert "fewer than 10 records" in one_error_line(capsys)
    assert list(access.cache_dir.iterdir()) == []


def test_nobody_listening(access, monkeypatch, capsys):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/cifar10.tar.gz"
    loopback.register({"cifar10": {url: [1, "0" * 64]}}, monkeypatch.setattr)
    assert execute("fetch", ["cifar10"], access) == 1
    assert f"{url}: nobody answers there" in one_error_line(capsys)
    assert list(access.cache_dir.iterdir()) == []


def test_show_takes_a_runs_flags(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["data", "show", "--partition=shards", "--num_clients=9", "--algo=cafga"]
    assert command.execute(data.data, words) == 0
    output = capsys.readouterr().out
    assert output.startswith("9 clients of 45 to 45 samples")
    assert output.endswith("\npicture: runs/digits_shards.png\n")
    assert (tmp_path / "runs" / "digits_shards.png").exists()
    assert command.execute(data.data, [*words, "--out=shards"]) == 0
    assert (tmp_path / "shards.png").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "cifar10"], "usage: python -m experiments.data"),
        (["show", "--dataset=quadratic"], "are drawn for each client"),
        (["show", "--partition=natural"], "does not say whose"),
        (["list", "--alpha=1"], "--alpha is not a flag"),
    ],
)
def test_what_cannot_be_shown(words, said, capsys):
    assert command.execute(data.data, ["data", *words]) in (1, 2)
    assert said in one_error_line(capsys)


@pytest.mark.parametrize(
    "words", [["fetch"], ["verify"], ["list", "mnist"], ["steal", "mnist"]]
)
def test_words_that_are_no_command(words, access, capsys):
    assert execute(words[0], words[1:], access) == 2
    assert "usage: python -m experiments.data" in one_error_line(capsys)


@pytest.mark.parametrize(
    ("flag", "code", "said"),
    [
        ("--data_dir={}/nowhere", 1, "nowhere does not exist"),
        ("--attempts=many", 2, "attempts"),
        ("--ofline", 2, "did you mean --offline?"),
    ],
)
def test_bad_flag_is_one_line(flag, code, said, tmp_path, capsys):
    words = ["data", "fetch", "mnist", flag.format(tmp_path)]
    with pytest.raises(SystemExit) as end:
        main.start("data", words)
    assert end.value.code == code
    assert said in one_error_line(capsys)


def test_unknown_name(access, capsys):
    assert execute("fetch", ["cifar"], access) == 1
    assert "no data set 'cifar'; choose one of cifar10" in one_error_line(capsys)
    assert not access.cache_dir.exists()


def test_interrupt_leaves_nothing(access, cifar, monkeypatch, capsys):
    def interrupt(file, content):
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch._Limited, "write", interrupt)
    assert execute("fetch", ["cifar10"], access) == 130
    assert "stopped" in capsys.readouterr().err
    assert list(access.cache_dir.iterdir()) == []
