"""Time and memory of CIFAR-10's way into a run: the archive, the cache, a later start.

    TFDS_DATA_DIR=... python -m benchmarks.fetch

The archive is rebuilt from the prepared set, at the compression of the published one.
Each figure comes from a process of its own: memory is the most it ever held, imports
included, and a later start is counted from nothing.
"""

import argparse
import io
import json
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np

from afga_jax.data.store import archives, cache, catalog, prepared, sources

SPEC = catalog.find("cifar10")
TARGETS = {
    "decode the archive": (10.0, 1000.0),
    "decode the archive and keep it": (10.0, 1000.0),
    "load from the cache": (2.0, 1000.0),
}


def decode(folder: Path) -> None:
    archives.decode(SPEC, {"cifar.tar.gz": folder / "cifar.tar.gz"})


def decode_and_keep(folder: Path) -> None:
    arrays = archives.decode(SPEC, {"cifar.tar.gz": folder / "cifar.tar.gz"})
    with cache.workspace(SPEC.name, folder / "cache") as scratch:
        cache.write(SPEC.name, folder / "cache", arrays, "archive", scratch)


def load(folder: Path) -> None:
    access = sources.Access(data_dir=folder, cache_dir=folder / "cache", offline=True)
    sources.load(SPEC.name, access)


def rebuild(folder: Path) -> None:
    """Writes the binary version's archive from the prepared set."""
    arrays = prepared.read(SPEC, prepared.find(SPEC, sources.Access().data_dir))
    names = "\n".join(arrays["label_names"].tolist())
    members = {"batches.meta.txt": names.encode()}
    images, labels = arrays["train_inputs"], arrays["train_targets"]
    members["test_batch.bin"] = records(arrays["test_inputs"], arrays["test_targets"])
    for number in range(1, 6):
        rows = slice((number - 1) * 10_000, number * 10_000)
        members[f"data_batch_{number}.bin"] = records(images[rows], labels[rows])
    with tarfile.open(folder / "cifar.tar.gz", "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def records(images: np.ndarray, labels: np.ndarray) -> bytes:
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate([labels[:, None].astype(np.uint8), planes], 1).tobytes()


# A process starts out with the peak of the one that made it, so the parent stays small:
# even the archive is made by a job.
JOBS = {
    "rebuild the archive": rebuild,
    "decode the archive": decode,
    "decode the archive and keep it": decode_and_keep,
    "load from the cache": load,
}


def run(job, folder: Path) -> dict[str, float]:
    """Runs a job here; on a busy machine, processor time says more than the wait."""
    start, busy = time.perf_counter(), time.process_time()
    job(folder)
    return {
        "seconds": time.perf_counter() - start,
        "processor": time.process_time() - busy,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measure(job: str, folder: Path) -> dict[str, float]:
    start = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.fetch", "--job", job, str(folder)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output) | {"process": time.perf_counter() - start}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--job", choices=JOBS, help="run one job in this process")
    parser.add_argument("folder", nargs="?", type=Path)
    arguments = parser.parse_args()
    if arguments.job:
        print(json.dumps(run(JOBS[arguments.job], arguments.folder)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        measure("rebuild the archive", folder)
        size = (folder / "cifar.tar.gz").stat().st_size
        print(f"archive: {size / 1e6:.1f} MB; {arguments.repeats} repeats, interleaved")
        rounds = [
            {job: measure(job, folder) for job in TARGETS}
            for _ in range(arguments.repeats)
        ]
    for job, (most_seconds, most_memory) in TARGETS.items():
        seconds, processor, memory, process = (
            sorted(row[job][what] for row in rounds)
            for what in ("seconds", "processor", "megabytes", "process")
        )
        print(
            f"{job:31} {seconds[0]:.2f} to {seconds[-1]:.2f} s (at most "
            f"{most_seconds:g}), processor {processor[0]:.2f} to {processor[-1]:.2f} "
            f"s, {memory[-1]:.0f} MB (at most {most_memory:g}), whole process "
            f"{process[0]:.2f} s"
        )


if __name__ == "__main__":
    main()
