"""Small originals of the papers' data sets, and a server on this machine for them.

As a program, it is `experiments.data` with small sets in place of the real ones:
`python tests/loopback.py STAND_INS.json [list | fetch NAME... | verify NAME...]`.
"""

import contextlib
import dataclasses
import gzip
import hashlib
import http.server
import io
import json
import os
import resource
import sys
import tarfile
import threading
import types
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from afga_jax.data.store import catalog, fetch

SPLITS = {"train": 50, "test": 10}
LAYOUTS = {
    "cifar10": ("cifar-10-batches-bin", "batches.meta.txt"),
    "cifar100": ("cifar-100-binary", "fine_label_names.txt"),
}


def arrays_of(name: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Random images and labels in the shape of a data set, `SPLITS` samples of them."""
    spec = catalog.CATALOG[name]
    rng = np.random.default_rng(seed)
    arrays = {"label_names": np.array([f"name {k}" for k in range(spec.num_classes)])}
    for split, count in SPLITS.items():
        shape = (count, *spec.shape)
        arrays[f"{split}_inputs"] = rng.integers(0, 256, shape, dtype=np.uint8)
        labels = rng.integers(0, spec.num_classes, count)
        arrays[f"{split}_targets"] = labels.astype(np.int32)
    return arrays


def tables_of(name: str, arrays) -> dict[str, bytes]:
    """The Parquet files that a set is published as; writers of ten samples each."""
    spec = catalog.CATALOG[name]
    label, files = spec.tables.label, {}
    features = {
        "image": {"_type": "Image"},
        label: {"_type": "ClassLabel", "names": arrays["label_names"].tolist()},
    }
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    for split, (path, _) in spec.tables.files.items():
        images, labels = arrays[f"{split}_inputs"], arrays[f"{split}_targets"]
        columns = {"image": [{"bytes": png_of(x), "path": "x.png"} for x in images]}
        if spec.tables.client:
            writers = [f"f{number // 10:04}_14" for number in range(len(labels))]
            columns |= {spec.tables.client: writers, "hsf_id": [0] * len(labels)}
        columns[label] = labels.astype(np.int64)
        file = io.BytesIO()
        pq.write_table(pa.table(columns).replace_schema_metadata(metadata), file)
        files[path.rpartition("/")[2]] = file.getvalue()
    return files


def png_of(image) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image.squeeze()).save(file, "PNG")
    return file.getvalue()


def originals_of(name: str, arrays) -> dict[str, bytes]:
    """The files, by name, that a data set of these arrays would be published as."""
    if catalog.CATALOG[name].tables:
        return tables_of(name, arrays)
    if name in LAYOUTS:
        return {f"{name}.tar.gz": tar_of(cifar_members(name, arrays))}
    files = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images, labels = arrays[f"{split}_inputs"], arrays[f"{split}_targets"]
        files[f"{prefix}-images-idx3-ubyte.gz"] = idx_of(images[..., 0])
        files[f"{prefix}-labels-idx1-ubyte.gz"] = idx_of(labels.astype(np.uint8))
    return files


def cifar_members(name: str, arrays) -> dict[str, bytes]:
    """Members of CIFAR's binary version, which do not come in the order of use."""
    folder, names_member = LAYOUTS[name]
    test = cifar_records(name, arrays["test_inputs"], arrays["test_targets"])
    images, labels = arrays["train_inputs"], arrays["train_targets"]
    names = "\n".join(arrays["label_names"].tolist()) + "\n\n"
    members = {f"{folder}/{names_member}": names.encode()}
    if name == "cifar100":
        members[f"{folder}/coarse_label_names.txt"] = b"coarse\n"
        members[f"{folder}/train.bin"] = cifar_records(name, images, labels)
        return members | {f"{folder}/test.bin": test}
    members |= {f"{folder}/readme.html": b"<html>", f"{folder}/test_batch.bin": test}
    parts = list(zip(np.split(images, 5), np.split(labels, 5), strict=True))
    for number in (4, 1, 5, 2, 3):
        content = cifar_records(name, *parts[number - 1])
        members[f"{folder}/data_batch_{number}.bin"] = content
    return members


def cifar_records(name: str, images, labels) -> bytes:
    """One record per image: the coarse label where there is one, the label, planes."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    columns = [labels[:, None].astype(np.uint8), planes]
    if name == "cifar100":
        columns.insert(0, np.full((len(images), 1), 19, np.uint8))
    return np.concatenate(columns, axis=1).tobytes()


def tar_of(members: dict[str, bytes], compresslevel: int = 1) -> bytes:
    file = io.BytesIO()
    with tarfile.open(
        fileobj=file, mode="w:gz", compresslevel=compresslevel
    ) as archive:
        for name, content in members.items():
            information = tarfile.TarInfo(name)
            information.size = len(content)
            archive.addfile(information, io.BytesIO(content))
    return file.getvalue()


def idx_of(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return gzip.compress(header + array.tobytes())


def zip_of(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


class Server:
    """What a running loopback server serves and has been asked for.

    Attributes:
      url: Its address.
      files: Content by path; a function is called with the request's handler.
      requests: The paths asked for so far.
    """

    def __init__(self, url: str):
        self.url, self.files, self.requests = url, {}, []

    def add(self, files) -> None:
        self.files |= {f"/{name}": content for name, content in files.items()}

    def stand_in(self, name: str, files: dict[str, bytes]) -> dict:
        """Serves originals; returns what `register` wants to know of them."""
        self.add({f"{name}/{file}": content for file, content in files.items()})
        return {
            f"{self.url}/{name}/{file}": [
                len(content),
                hashlib.sha256(content).hexdigest(),
            ]
            for file, content in files.items()
        }


@contextlib.contextmanager
def serving():
    """A server on a free port of this machine, for as long as the block runs."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            server.requests.append(self.path)
            content = server.files.get(self.path)
            if callable(content):
                content(self)
            elif content is None:
                self.send_error(404)
            else:
                answer(self, content)

        def log_message(self, *arguments):
            """Keeps the tests' output clean."""

    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    server = Server(f"http://127.0.0.1:{listener.server_port}")
    thread = threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


def answer(handler, content: bytes, promised: int | None = None) -> None:
    """Sends content; `promised` bytes are announced where that differs."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(promised or len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def register(stand_ins: dict[str, dict], patch=setattr) -> None:
    """Puts small sets into the catalog, and their addresses and sums into TFDS's table.

    Args:
      stand_ins: Per data set, size and sha256 by address.
      patch: `setattr`, or a fixture's version that undoes it.
    """
    specs = dict(catalog.CATALOG)
    for name in stand_ins:
        if specs[name].tables:
            specs[name] = published_at(stand_ins[name], specs[name])
        elif name in LAYOUTS or name.endswith("mnist"):
            specs[name] = dataclasses.replace(specs[name], counts=SPLITS, digests={})
        else:
            ((url, (size, sha256)),) = stand_ins[name].items()
            works = fetch._SHAKESPEARE._replace(urls=(url,), size=size, sha256=sha256)
            patch(fetch, "_SHAKESPEARE", works)
    patch(catalog, "CATALOG", specs)

    registered = fetch._url_infos

    def url_infos(name):
        if name not in stand_ins:
            return registered(name)
        return {
            url: types.SimpleNamespace(size=size, checksum=checksum)
            for url, (size, checksum) in stand_ins[name].items()
        }

    patch(fetch, "_url_infos", url_infos)


def published_at(urls: dict, spec):
    """A small set in place of one that is published as Parquet files."""
    addresses = {url.rpartition("/")[2]: url for url in urls}
    files = {}
    for split, (path, about) in spec.tables.files.items():
        name = path.rpartition("/")[2]
        files[split] = (name, urls[addresses[name]][0] if urls else about)
    address = next(iter(urls), "/").rpartition("/")[0]
    return dataclasses.replace(
        spec,
        counts={split: SPLITS[split] for split in files},
        tables=spec.tables._replace(address=address, files=files),
    )


if __name__ == "__main__":
    from afga_jax.runs import main

    # Set here and not between fork and exec, which JAX's threads would not survive.
    if limit := os.environ.get("FILE_LIMIT"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    with open(sys.argv.pop(1)) as file:
        register(json.load(file))
    main.start("data")
