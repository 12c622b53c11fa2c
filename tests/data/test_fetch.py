"""Downloads from a server on this machine: what arrives, is refused, is left."""

import gc
import io
import socket
import sys
import threading
import types

import numpy as np
import pooch
import pytest

import loopback
from afga_jax.data.store import archives, catalog, fetch, sources
from afga_jax.data.store.catalog import DataError


@pytest.fixture
def pauses(monkeypatch):
    """The pauses that would have been made, none of which is."""
    made = []
    monkeypatch.setattr(pooch.core, "time", types.SimpleNamespace(sleep=made.append))
    return made


@pytest.fixture
def access(tmp_path):
    (tmp_path / "tfds").mkdir()
    return sources.Access(
        data_dir=tmp_path / "tfds",
        cache_dir=tmp_path / "cache",
        offline=False,
        attempts=3,
    )


def original(server, content, name="file.bin", **changes):
    """Registers content, truly unless changed, and serves it."""
    ((url, (size, sha256)),) = server.stand_in("set", {name: content}).items()
    return fetch.Original(name, (url,), size, sha256)._replace(**changes)


def drops_first(times, content):
    """Serves half of the content a number of times, then all of it."""
    left = [times]

    def handle(handler):
        left[0] -= 1
        whole = left[0] < 0
        sent = content if whole else content[: len(content) // 2]
        loopback.answer(handler, sent, promised=len(content))
        handler.close_connection = True

    return handle


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "fashion_mnist", "mnist"])
def test_fetched_set_equals_the_source(name, server, access, monkeypatch):
    arrays = loopback.arrays_of(name)
    files = loopback.originals_of(name, arrays)
    loopback.register({name: server.stand_in(name, files)}, monkeypatch.setattr)
    data = sources.load(name, access)
    for part in ("train_inputs", "train_targets", "test_inputs", "test_targets"):
        np.testing.assert_array_equal(getattr(data, part), arrays[part])
        assert getattr(data, part).dtype == arrays[part].dtype
    if name.startswith("cifar"):
        assert data.label_names == tuple(arrays["label_names"])
    else:
        assert data.label_names[1] == {"mnist": "1"}.get(name, "Trouser")
    assert [path.name for path in access.cache_dir.iterdir()] == [f"{name}.npz"]
    assert len(server.requests) == len(files)
    again = sources.load(name, access)
    np.testing.assert_array_equal(again.train_inputs, data.train_inputs)
    assert len(server.requests) == len(files)


def test_table_of_addresses_is_tfds_own():
    for name, count in {
        "cifar10": 1,
        "cifar100": 1,
        "fashion_mnist": 4,
        "mnist": 4,
    }.items():
        originals = fetch.originals(catalog.find(name))
        assert len(originals) == count
        for file in originals:
            assert file.urls[0].endswith(file.name)
            assert len(file.sha256) == 64
            assert file.size > 4000
    (cifar,) = fetch.originals(catalog.find("cifar10"))
    assert (cifar.name, cifar.size) == ("cifar-10-binary.tar.gz", 170_052_171)


def test_table_is_the_one_of_the_builders(monkeypatch):
    import tensorflow_datasets as tfds

    # Any class called `Traversable` does for TFDS's question.
    stand_in = types.ModuleType("importlib_resources")
    stand_in.abc = types.SimpleNamespace(Traversable=type(None))
    monkeypatch.setitem(sys.modules, "importlib_resources", stand_in)
    for name in ("cifar10", "cifar100", "fashion_mnist", "mnist"):
        assert fetch._url_infos(name) == tfds.builder(name).url_infos


def test_download_is_the_served_content(server, tmp_path, capfd):
    content = np.random.default_rng(0).bytes(300_000)
    path = fetch.download("set", original(server, content), tmp_path)
    assert path.read_bytes() == content
    assert capfd.readouterr() == ("", "")


def test_terminal_gets_a_progress_bar(server, tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    fetch.download("set", original(server, bytes(300_000)), tmp_path)
    assert "file.bin: 100%" in sys.stderr.getvalue()


def test_dropped_connection_is_tried_again(server, tmp_path, pauses, caplog):
    content = bytes(range(256)) * 1000
    file = original(server, content)
    server.files["/set/file.bin"] = drops_first(2, content)
    path = fetch.download("set", file, tmp_path, attempts=3)
    assert path.read_bytes() == content
    assert len(server.requests) == 3
    assert caplog.text.count("the connection dropped; it is tried again") == 2
    assert pauses == [1, 2]


def test_attempts_have_a_limit(server, tmp_path, pauses):
    content = bytes(1000)
    file = original(server, content)
    server.files["/set/file.bin"] = drops_first(100, content)
    with pytest.raises(DataError, match="connection dropped"):
        fetch.download("set", file, tmp_path, attempts=3)
    assert len(server.requests) == 3
    assert list(tmp_path.iterdir()) == []


def test_short_file_without_a_promised_length_counts_as_dropped(
    server, tmp_path, pauses
):
    def handle(handler):
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(bytes(10))

    file = original(server, bytes(1000))
    server.files["/set/file.bin"] = handle
    with pytest.raises(DataError, match="ended after 10 of 1,000 bytes"):
        fetch.download("set", file, tmp_path, attempts=2)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("status", "requests"), [(404, 1), (403, 1), (500, 3), (503, 3)]
)
def test_only_a_server_in_trouble_is_asked_again(
    status, requests, server, tmp_path, pauses
):
    file = original(server, bytes(10))
    server.files["/set/file.bin"] = lambda handler: handler.send_error(status)
    with pytest.raises(DataError, match=f"answered {status}"):
        fetch.download("set", file, tmp_path, attempts=3)
    assert len(server.requests) == requests
    assert list(tmp_path.iterdir()) == []


def test_wrong_checksum_is_named_with_both_sums_and_deleted(server, tmp_path, pauses):
    truth = original(server, b"what was served")
    file = truth._replace(sha256="0" * 64)
    with pytest.raises(DataError) as caught:
        fetch.download("set", file, tmp_path)
    assert truth.sha256 in str(caught.value)
    assert file.sha256 in str(caught.value)
    assert "deleted" in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    assert len(server.requests) == 1


@pytest.mark.parametrize("size", [999_999, None])
def test_no_more_bytes_are_taken_than_registered(size, server, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "_UNREGISTERED_LIMIT", 999_999)
    file = original(server, bytes(1_000_000), size=size)
    with pytest.raises(DataError, match="more than 999,999 bytes"):
        fetch.download("set", file, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_silent_server_is_given_up(server, tmp_path, pauses):
    over = threading.Event()
    file = original(server, bytes(10))
    server.files["/set/file.bin"] = lambda handler: over.wait(30)
    with pytest.raises(DataError, match=r"no answer within 0\.2 s"):
        fetch.download("set", file, tmp_path, timeout=0.2, attempts=2)
    over.set()
    assert pauses == [1]
    assert list(tmp_path.iterdir()) == []


def test_server_that_falls_silent_half_way_is_given_up(server, tmp_path, pauses):
    over = threading.Event()

    def handle(handler):
        loopback.answer(handler, bytes(500), promised=1000)
        over.wait(30)

    file = original(server, bytes(1000))
    server.files["/set/file.bin"] = handle
    with pytest.raises(DataError, match=r"no answer within 0\.2 s"):
        fetch.download("set", file, tmp_path, timeout=0.2, attempts=1)
    over.set()
    assert list(tmp_path.iterdir()) == []


def test_nobody_listening(tmp_path, pauses):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/file.bin"
    with pytest.raises(DataError, match="nobody answers"):
        fetch.download("set", fetch.Original("file.bin", (url,)), tmp_path)
    assert pauses == [1, 2, 3]


def test_proxy_of_the_environment_is_used(server, tmp_path, monkeypatch):
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", server.url)
    url = "http://data.invalid/file.bin"
    server.files[url] = b"through the proxy"
    path = fetch.download("set", fetch.Original("file.bin", (url,)), tmp_path)
    assert path.read_bytes() == b"through the proxy"
    assert server.requests == [url]


def test_next_address_is_tried_where_the_first_has_moved(server, tmp_path):
    server.add({"new.zip": b"works"})
    urls = (f"{server.url}/old.zip", f"{server.url}/new.zip")
    path = fetch.download("set", fetch.Original("works.zip", urls), tmp_path)
    assert path.read_bytes() == b"works"
    assert server.requests == ["/old.zip", "/new.zip"]


def test_an_interrupt_leaves_no_file(server, tmp_path, monkeypatch):
    def interrupt(file, content):
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch._Limited, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch.download("set", original(server, bytes(10)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_offline_touches_no_network(server, access, monkeypatch):
    files = loopback.originals_of("mnist", loopback.arrays_of("mnist"))
    loopback.register({"mnist": server.stand_in("mnist", files)}, monkeypatch.setattr)
    monkeypatch.setenv("AFGA_OFFLINE", "1")
    offline = sources.Access(data_dir=access.data_dir, cache_dir=access.cache_dir)
    with pytest.raises(DataError, match="network is switched off") as caught:
        sources.load("mnist", offline)
    assert server.requests == []
    for part in ("mnist", str(access.data_dir), str(access.cache_dir), "load('mnist')"):
        assert part in str(caught.value)
    assert not access.cache_dir.exists()


@pytest.mark.parametrize(
    ("value", "offline"), [("1", True), ("true", True), ("0", False), ("", False)]
)
def test_offline_by_environment(value, offline, monkeypatch):
    monkeypatch.setenv("AFGA_OFFLINE", value)
    assert sources.Access().offline is offline


@pytest.mark.parametrize("name", ["cifar10", "mnist", "shakespeare"])
def test_original_with_a_wrong_checksum_is_not_opened(
    name, server, access, monkeypatch
):
    if name == "shakespeare":
        files = {"works.zip": loopback.zip_of({"100.txt": b"words"})}
    else:
        files = loopback.originals_of(name, loopback.arrays_of(name))
    loopback.register({name: server.stand_in(name, files)}, monkeypatch.setattr)
    for path, content in server.files.items():
        server.files[path] = content[:-1] + bytes([content[-1] ^ 1])

    def opened(*arguments):
        raise AssertionError("it was opened")

    monkeypatch.setattr(archives, "decode", opened)
    with pytest.raises(DataError, match="wrong checksum"):
        sources.load_arrays(catalog.find(name), access)
    assert list(access.cache_dir.iterdir()) == []


def test_works_without_a_registered_checksum_are_checked_by_their_plays(
    server, access, monkeypatch
):
    files = {"works.zip": loopback.zip_of({"100.txt": b"words"})}
    ((url, _),) = server.stand_in("shakespeare", files).items()
    works = fetch.Original("works.zip", (url,))
    monkeypatch.setattr(fetch, "_SHAKESPEARE", works)
    with pytest.raises(DataError, match="not the edition that LEAF splits"):
        sources.load_roles(access)
    assert list(access.cache_dir.iterdir()) == []


def test_wrong_content_is_refused(server, access, monkeypatch):
    files = loopback.originals_of("mnist", loopback.arrays_of("mnist"))
    stand_ins = {"mnist": server.stand_in("mnist", files)}
    loopback.register(stand_ins, monkeypatch.setattr)
    catalog.CATALOG["mnist"].digests["train_inputs"] = "0" * 32
    with pytest.raises(DataError, match="train_inputs has digest"):
        sources.load("mnist", access)
    assert list(access.cache_dir.iterdir()) == []


def test_shakespeare_of_another_edition_is_refused(server, access, monkeypatch):
    speech = "Hence! home, you idle creatures, get you home! " * 2
    lines = [f"  {name}. {speech}" for name in ("FLAVIUS", "MARULLUS")] * 3
    text = "\n".join(["JULIUS CAESAR", "", "by William Shakespeare", "", *lines])
    archive = loopback.zip_of({"100.txt": text.encode()})
    stand_in = server.stand_in("shakespeare", {"works.zip": archive})
    loopback.register({"shakespeare": stand_in}, monkeypatch.setattr)
    with pytest.raises(DataError, match=r"sha256 of its plays is .*, registered is"):
        sources.load_roles(access)
    assert list(access.cache_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("http://[", "it leads to no address"),
        ("http://.x/", "it leads to no address"),
        ("http://h\xf6st.\xff/", "it leads to no address|nobody answers"),
    ],
)
# requests leaves the connection that sent such a redirect to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_redirects_that_lead_nowhere(location, message, server, tmp_path, pauses):
    def handle(handler):
        handler.send_response(302)
        handler._headers_buffer.append(f"Location: {location}\r\n".encode("latin-1"))
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    file = original(server, bytes(10))
    server.files["/set/file.bin"] = handle
    with pytest.raises(DataError, match=message):
        fetch.download("set", file, tmp_path, attempts=2)
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_length_that_is_no_number_does_not_matter(server, tmp_path):
    def handle(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "abc")
        handler.end_headers()
        handler.wfile.write(bytes(10))

    file = original(server, bytes(10))
    server.files["/set/file.bin"] = handle
    path = fetch.download("set", file, tmp_path, attempts=2)
    assert path.read_bytes() == bytes(10)


@pytest.mark.parametrize("part", ["header", "content"])
def test_a_server_that_drips_is_given_up(part, server, tmp_path, pauses):
    over = threading.Event()

    def handle(handler):
        handler.wfile.write(b"HTTP/1.0 200 OK\r\n")
        if part == "content":
            handler.wfile.write(b"Content-Length: 100000\r\n\r\n")
        while not over.wait(0.05):
            handler.wfile.write(b"ab")
            handler.wfile.flush()

    file = original(server, bytes(100_000))
    server.files["/set/file.bin"] = handle
    try:
        with pytest.raises(DataError, match="less than 16,384 bytes came within"):
            fetch.download("set", file, tmp_path, timeout=0.2, attempts=2)
    finally:
        over.set()
    assert len(server.requests) == 2
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_speak_http(server, tmp_path, pauses):
    file = original(server, bytes(10))
    server.files["/set/file.bin"] = lambda handler: handler.wfile.write(b"220 hi\r\n")
    with pytest.raises(DataError, match="does not speak HTTP"):
        fetch.download("set", file, tmp_path, attempts=2)


def test_an_unwritable_cache_is_said_with_its_remedy(access, server, monkeypatch):
    files = loopback.originals_of("mnist", loopback.arrays_of("mnist"))
    loopback.register({"mnist": server.stand_in("mnist", files)}, monkeypatch.setattr)
    access.cache_dir.write_text("a file in the way")
    with pytest.raises(DataError, match=r"cannot be written.*AFGA_CACHE_DIR") as caught:
        sources.load("mnist", access)
    assert "load(" not in str(caught.value)
    assert server.requests == []
