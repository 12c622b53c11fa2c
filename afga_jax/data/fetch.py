"""The originals of a data set over the network, each checked before anybody uses it.

pooch carries the bytes (redirects, proxies from the environment). The loop around it is
ours, because pooch repeats a wrong checksum and a missing page like a dropped
connection, and takes as many bytes as a server cares to send.
"""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from absl import logging

from afga_jax.data.catalog import DataError, Spec, TextSpec

# The edition that LEAF splits; the second address is the one that LEAF itself gives,
# from before the text was moved.
_SHAKESPEARE_URLS = (
    "https://www.gutenberg.org/files/100/old/old/1994-01-100.zip",
    "https://www.gutenberg.org/files/100/old/1994-01-100.zip",
)
# For a file whose size nobody has registered: ten times the works' archive.
_UNREGISTERED_LIMIT = 20 << 20
_CHUNK = 1 << 16


class Original(NamedTuple):
    """A file to download.

    Attributes:
      name: Its file name.
      urls: Its addresses, tried in order.
      size: Its registered number of bytes; None: not registered.
      sha256: Its registered checksum; None: not registered, so the decoded content is
        what is checked.
    """

    name: str
    urls: tuple[str, ...]
    size: int | None = None
    sha256: str | None = None


def originals(spec: Spec) -> tuple[Original, ...]:
    """What must be downloaded for a data set; asking does not touch the network.

    Args:
      spec: The data set.

    Returns:
      Addresses, sizes and checksums from TFDS's own table; for Shakespeare, LEAF's
      address.
    """
    if isinstance(spec, TextSpec):
        return (Original("1994-01-100.zip", _SHAKESPEARE_URLS),)
    # A second to import, and needless where the decoded cache has the data set.
    import tensorflow_datasets as tfds

    return tuple(
        Original(url.rsplit("/", 1)[1], (url,), int(info.size), info.checksum)
        for url, info in _url_infos(tfds.builder_cls(spec.name)).items()
    )


def label_names(spec: Spec) -> tuple[str, ...]:
    """TFDS's names of the classes, for a form whose originals do not hold them."""
    if isinstance(spec, TextSpec) or spec.form != "idx":
        return ()
    import tensorflow_datasets as tfds

    return tuple(tfds.builder(spec.name).info.features["label"].names)


def download(
    owner: str,
    original: Original,
    folder: Path,
    *,
    timeout: float = 30.0,
    attempts: int = 4,
    pause: float = 1.0,
) -> Path:
    """Downloads one file and checks its size and checksum.

    A dropped connection, a time-out or a server in trouble is tried again, after a
    pause that doubles each time. A terminal gets a progress bar.

    Args:
      owner: Name of the data set, for messages.
      original: What to download.
      folder: Where to put it.
      timeout: Seconds without an answer after which a connection counts as dropped.
      attempts: Number of attempts for each address.
      pause: Seconds before the second attempt.

    Returns:
      Path of the file.

    Raises:
      DataError: The file cannot be had or is not the registered one; none is left.
    """
    path = folder / original.name
    failures = []
    for url in original.urls:
        for attempt in range(1, attempts + 1):
            try:
                _transfer(url, original, path, timeout)
            except _Failure as failure:
                path.unlink(missing_ok=True)
                failures.append(f"{url}: {failure}")
                if not failure.passing or attempt == attempts:
                    break
                wait = pause * 2 ** (attempt - 1)
                logging.warning(
                    "%s: %s; attempt %d of %d in %g s.",
                    owner,
                    failures[-1],
                    attempt + 1,
                    attempts,
                    wait,
                )
                time.sleep(wait)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
            else:
                return path
    distinct = dict.fromkeys(failures)
    raise DataError(f"{owner}: download failed: {'; '.join(distinct)}")


def _url_infos(builder):
    try:
        return builder.url_infos
    except ModuleNotFoundError:
        # TFDS 4.9.10 imports importlib_resources there without declaring it. This is
        # the same table by its path.
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core.download import checksums

        table = tfds.core.tfds_path() / "url_checksums" / f"{builder.name}.txt"
        return checksums.load_url_infos(table)


class _Failure(Exception):
    """Why a transfer failed, and whether trying again may help."""

    def __init__(self, reason: str, passing: bool):
        super().__init__(reason)
        self.passing = passing


class _Sink:
    """A file that counts, hashes and limits what is written to it."""

    def __init__(self, file, limit: int, advance: Callable[[int], object]):
        self._file, self._limit, self._advance = file, limit, advance
        self.size, self.hash = 0, hashlib.sha256()

    def write(self, content: bytes) -> None:
        self.size += len(content)
        if self.size > self._limit:
            raise _Failure(f"it sends more than {self._limit:,} bytes", passing=False)
        self._file.write(content)
        self.hash.update(content)
        self._advance(len(content))

    def flush(self) -> None:
        """Leaves buffering to the file."""


def _transfer(url: str, original: Original, path: Path, timeout: float) -> None:
    import pooch
    import requests
    from tqdm import tqdm

    # Some servers would compress a .gz once more, and the sums are of the plain file.
    headers = {"Accept-Encoding": "identity"}
    fetcher = pooch.HTTPDownloader(chunk_size=_CHUNK, timeout=timeout, headers=headers)
    limit = _UNREGISTERED_LIMIT if original.size is None else original.size
    bar = tqdm(
        total=original.size,
        desc=original.name,
        unit="B",
        unit_scale=True,
        dynamic_ncols=True,
        disable=None,
    )
    with bar, open(path, "wb") as file:
        sink = _Sink(file, limit, bar.update)
        try:
            fetcher(url, sink, None)
        except requests.RequestException as error:
            raise _explained(error, timeout) from error
    if original.size is not None and sink.size < original.size:
        raise _Failure(
            f"the connection ended after {sink.size:,} of {original.size:,} bytes",
            passing=True,
        )
    found = sink.hash.hexdigest()
    if original.sha256 is not None and found != original.sha256:
        raise _Failure(
            f"wrong checksum, the file was deleted: sha256 is {found}, registered is "
            f"{original.sha256}",
            passing=False,
        )


def _explained(error, timeout: float) -> _Failure:
    """A reason in plain words; requests' own nest three libraries' messages."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        status = error.response.status_code
        reason = f"the server answered {status} {error.response.reason}".rstrip()
        return _Failure(reason, passing=status in (408, 429) or status >= 500)
    if isinstance(error, requests.Timeout) or "timed out" in str(error):
        return _Failure(f"no answer within {timeout:g} s", passing=True)
    if isinstance(error, requests.exceptions.ProxyError):
        return _Failure("the proxy does not connect", passing=True)
    if isinstance(error, requests.exceptions.SSLError):
        return _Failure("the server's certificate is not trusted", passing=False)
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return _Failure("the connection dropped", passing=True)
    if isinstance(error, requests.ConnectionError):
        return _Failure("nobody answers there", passing=True)
    return _Failure(" ".join(str(error).split()), passing=False)
