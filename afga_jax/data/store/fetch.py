"""The originals of a data set over the network, each checked before anybody uses it.

requests downloads, with redirects and proxies of the environment; pooch repeats
attempts. What counts as a failure is decided here: alone they would take as many bytes
as a server cares to send, as slowly as it likes, and repeat a wrong checksum or a
missing page.
"""

import contextlib
import http.client
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from absl import logging

from afga_jax.data.store.catalog import DataError, Spec, TextSpec, reason

# For a file whose size nobody has registered: ten times the works' archive.
_UNREGISTERED_LIMIT = 20 << 20
# Bytes that are written at a time.
_CHUNK = 1 << 14


class Original(NamedTuple):
    """A file to download.

    Attributes:
      name: Name of the file.
      urls: Addresses of the file, tried in order.
      size: Registered number of bytes; None: not registered.
      sha256: Checksum that it must have; None: none is known, so what is inside is all
        that is checked.
      about: About how many bytes it has, where the number is not registered; twice as
        many are refused.
      recorded: File in which an earlier fetch put the checksum; None: it is registered.
    """

    name: str
    urls: tuple[str, ...]
    size: int | None = None
    sha256: str | None = None
    about: int | None = None
    recorded: Path | None = None

    @property
    def limit(self) -> int:
        """Number of bytes after which no more are taken."""
        return self.size or 2 * (self.about or 0) or _UNREGISTERED_LIMIT


# The edition that LEAF splits; the second address is the one that LEAF itself gives,
# from before the text was moved. No published size or checksum of the archive is known;
# the plays in it have one, which `archives` compares before it reads any role.
_SHAKESPEARE = Original(
    "1994-01-100.zip",
    (
        "https://www.gutenberg.org/files/100/old/old/1994-01-100.zip",
        "https://www.gutenberg.org/files/100/old/1994-01-100.zip",
    ),
)


def originals(spec: Spec) -> tuple[Original, ...]:
    """What must be downloaded for a data set; asking does not touch the network.

    Args:
      spec: Description of the data set.

    Returns:
      Addresses, sizes and checksums from TFDS's own table; for Shakespeare, LEAF's
      address; for Parquet files, the publisher's.
    """
    if isinstance(spec, TextSpec):
        return (_SHAKESPEARE,)
    if spec.tables:
        return tuple(
            Original(Path(path).name, (f"{spec.tables.address}/{path}",), about=int(n))
            for path, n in spec.tables.files.values()
        )
    return tuple(
        Original(url.rsplit("/", 1)[1], (url,), int(info.size), info.checksum)
        for url, info in _url_infos(spec.name).items()
    )


def download(
    owner: str,
    original: Original,
    folder: Path,
    *,
    timeout: float = 30.0,
    attempts: int = 4,
) -> Path:
    """Downloads one file and checks its size and checksum.

    A dropped connection, a time-out or a server in trouble is tried again, after a
    pause that grows each time. A terminal gets a progress bar.

    Args:
      owner: Name of the data set, for messages.
      original: File to download.
      folder: Folder for the file.
      timeout: Seconds without an answer, or without another 16 kB of the file, after
        which a connection counts as dropped.
      attempts: Number of attempts for each address.

    Returns:
      Path of the file.

    Raises:
      DataError: The file cannot be had or is not the registered one; none is left.
    """
    import pooch

    # It logs every step; here, only what goes wrong is told.
    pooch.get_logger().setLevel("WARNING")
    failures: list[str] = []

    def attempt(url, path, _):
        try:
            _transfer(url, original, path, timeout)
        except (ValueError, _Final) as failure:
            failures.append(f"{url}: {failure}")
            tries = sum(line.startswith(f"{url}: ") for line in failures)
            if isinstance(failure, ValueError) and tries < attempts:
                logging.warning("%s: %s; it is tried again.", owner, failures[-1])
            raise

    for url in original.urls:
        # The checksum is compared by `_transfer`: pooch would repeat a wrong one.
        files = pooch.create(
            folder,
            base_url="",
            registry={original.name: None},
            urls={original.name: url},
            retry_if_failed=attempts - 1,
        )
        with contextlib.suppress(ValueError, _Final):
            return Path(files.fetch(original.name, downloader=attempt))
    raise DataError(f"{owner}: download failed: {'; '.join(dict.fromkeys(failures))}")


def recorded_in(name: str, folder: Path) -> Path:
    """The file that has a data set's checksums, as `sha256sum` writes them.

    Nobody has published them: they are recorded at the first fetch. That this brought
    the right files they cannot tell; that later ones bring the same, they can.
    """
    return folder / f"{name}.sha256"


def with_recorded(
    name: str, folder: Path, originals: Iterable[Original]
) -> tuple[Original, ...]:
    """Files with the checksums that an earlier fetch recorded.

    Args:
      name: Name of the data set.
      folder: Folder of the cache.
      originals: Files to download.

    Returns:
      The same files; those without a checksum have the recorded one, if there is one.
    """
    path = recorded_in(name, folder)
    lines = path.read_text().splitlines() if path.is_file() else []
    sums = {file: sha256 for sha256, _, file in (x.partition("  ") for x in lines)}
    return tuple(
        original._replace(sha256=sums[original.name], recorded=path)
        if original.sha256 is None and original.name in sums
        else original
        for original in originals
    )


def record(name: str, folder: Path, files: Mapping[str, Path], scratch: Path) -> None:
    """Records the checksums of files that arrived, and says that nobody vouches.

    Args:
      name: Name of the data set.
      folder: Folder of the cache.
      files: Paths of the files without a checksum so far, by their names.
      scratch: Folder that `cache.workspace` yields.
    """
    import pooch

    lines = [f"{pooch.file_hash(str(path))}  {file}\n" for file, path in files.items()]
    unfinished = scratch / "recorded.sha256"
    unfinished.write_text("".join(lines))
    os.replace(unfinished, recorded_in(name, folder))
    logging.warning(
        "%s is unverified: no checksum of its files is published. Today's are in %s, "
        "and every later fetch is compared with them.",
        name,
        recorded_in(name, folder),
    )


def _url_infos(name: str):
    # A second to import, and needless where the decoded cache has the data set.
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download import checksums

    # A builder's `url_infos` is the same table, but in TFDS 4.9.10 it needs a package
    # that TFDS does not declare.
    table = tfds.core.tfds_path() / "url_checksums" / f"{name}.txt"
    return checksums.load_url_infos(table)


class _Final(Exception):
    """A failure that would come again; pooch repeats what ends in a ValueError."""


class _Limited:
    """A file that refuses to become longer than `limit` bytes.

    Attributes:
      size: Number of bytes so far.
      closed: Whether nobody waits for more, so that the next ones are refused.
    """

    def __init__(self, file, limit: int, bar):
        self._file, self._limit, self._bar = file, limit, bar
        self.size, self.closed = 0, False

    def write(self, content: bytes) -> None:
        self.size += len(content)
        if self.closed or self.size > self._limit:
            raise _Final(f"it sends more than {self._limit:,} bytes")
        self._file.write(content)
        self._bar.update(len(content))


def _transfer(url: str, original: Original, path: str, timeout: float) -> None:
    import pooch
    import requests
    import urllib3
    from tqdm import tqdm

    total = original.about or original.limit
    bar = tqdm(total=total, desc=original.name, unit="B", unit_scale=True, disable=None)
    with bar, open(path, "wb") as file:
        limited = _Limited(file, original.limit, bar)
        try:
            _watched(lambda: _get(url, limited, timeout), limited, timeout)
        except requests.RequestException as error:
            raise _explained(error, timeout) from error
        except (http.client.HTTPException, urllib3.exceptions.HTTPError) as error:
            raise _Final(f"its answer is not understood ({reason(error)})") from error
    size = os.path.getsize(path)
    if original.size is not None and size < original.size:
        raise ValueError(
            f"the connection ended after {size:,} of {original.size:,} bytes"
        )
    sha256 = pooch.file_hash(path)
    if original.sha256 is not None and sha256 != original.sha256:
        known = f"registered is {original.sha256}"
        if original.recorded:
            known = (
                f"at the first fetch it was {original.sha256}; if its publisher has "
                f"changed it, delete {original.recorded}"
            )
        raise _Final(
            f"wrong checksum, the file was deleted: sha256 is {sha256}, {known}"
        )


def _get(url: str, file: "_Limited", timeout: float) -> None:
    import requests

    # Some servers would compress a .gz once more, and the sums are of the file.
    headers = {"Accept-Encoding": "identity"}
    try:
        with (
            requests.Session() as session,
            session.get(url, stream=True, headers=headers, timeout=timeout) as response,
        ):
            response.raise_for_status()
            for chunk in response.iter_content(_CHUNK):
                file.write(chunk)
    except requests.RequestException:
        raise
    except ValueError as error:  # of many kinds, where an address is taken apart
        raise _Final(f"it leads to no address ({reason(error)})") from error


def _watched(transfer: Callable[[], None], file: _Limited, timeout: float) -> None:
    """Runs a transfer, and gives it up where too little comes.

    The timeout of a connection alone would start again at every byte.
    """
    failures: list[BaseException] = []

    def run():
        try:
            transfer()
        except BaseException as error:
            failures.append(error)

    # A daemon: whoever gives a server up does not wait for it at the end, either.
    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    before = 0
    while True:
        # The connection's own time-out comes first, where it comes at all.
        worker.join(1.5 * timeout)
        if not worker.is_alive():
            break
        if file.size == before:
            file.closed = True
            raise ValueError(
                f"less than {_CHUNK:,} bytes came within {1.5 * timeout:g} s"
            )
        before = file.size
    if failures:
        raise failures[0]


def _explained(error, timeout: float) -> Exception:
    """A failure in plain words; requests' own nest three libraries' messages."""
    from requests import exceptions

    if isinstance(error, exceptions.HTTPError) and error.response is not None:
        code = error.response.status_code
        words = f"the server answered {code} {error.response.reason}"
        passing = code in (408, 429) or code >= 500
        return ValueError(words) if passing else _Final(words)
    if isinstance(error, exceptions.Timeout) or "timed out" in str(error):
        return ValueError(f"no answer within {timeout:g} s")
    if isinstance(error, exceptions.InvalidURL | exceptions.InvalidSchema):
        return _Final(f"it leads to no address ({reason(error)})")
    if isinstance(error, exceptions.SSLError):
        return _Final("the server's certificate is not trusted")
    if isinstance(error, exceptions.ProxyError):
        return ValueError("the proxy does not connect")
    if isinstance(error, exceptions.ChunkedEncodingError):
        return ValueError("the connection dropped")
    if "BadStatusLine" in str(error):
        return _Final("what answers there does not speak HTTP")
    if isinstance(error, exceptions.ConnectionError):
        return ValueError("nobody answers there")
    return _Final(reason(error))
