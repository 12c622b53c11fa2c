"""The files of a data set, by split, as tables of Arrow."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from afga_jax.data.store.catalog import reason
from afga_jax.data.tables import Files
from afga_jax.data.tables.columns import Part, part

# Splits that judge a model, the first that is there.
_TESTS = ("test", "validation", "valid", "val")
_SPLIT = re.compile(rf"(train|{'|'.join(_TESTS)})(?![a-z])", re.IGNORECASE)

Splits = dict[str, list[Part]]


def parquet(files: Files, test: Files | None, columns: Sequence[str]) -> Splits:
    """Rows of Parquet files, for training and, where some are, for testing.

    Args:
      files: Path of a file or a folder, or a list of files.
      test: The same for testing; None: the files whose names say so.
      columns: Names of the columns that are needed.

    Returns:
      Rows of `"train"` and, if there are some, `"test"`, file by file.
    """
    splits = _by_split(_paths(files, (".parquet",)))
    if test is not None:
        apart = [path for _, path in _paths(test, (".parquet",))]
        splits = {"train": splits["train"], "test": apart}
    return {split: _read(paths, columns) for split, paths in splits.items()}


def huggingface(dataset: Any, columns: Sequence[str]) -> Splits:
    """Rows of a data set of Hugging Face's library.

    Args:
      dataset: Folder, data set, dictionary of data sets, or name of one.
      columns: Names of the columns that are needed.

    Returns:
      As `parquet`.
    """
    if isinstance(dataset, str | Path) and Path(dataset).expanduser().exists():
        return _saved(Path(dataset).expanduser(), columns)
    name = "the data set"
    if isinstance(dataset, str | Path):
        name, dataset = str(dataset), _named(str(dataset))
    splits = dataset if hasattr(dataset, "keys") else {"train": dataset}
    chosen = _judged(splits, name)
    return {
        split: [part(f"{name}, {split}", _arrow(rows))]
        for split, rows in chosen.items()
    }


def _paths(files: Files, endings: Sequence[str]) -> list[tuple[str, Path]]:
    """Files with the part of their path that may name a split."""
    listed = [files] if isinstance(files, str | Path) else list(files)
    found: list[tuple[str, Path]] = []
    for path in (Path(name).expanduser() for name in listed):
        if path.is_dir():
            below = [f for f in sorted(path.rglob("*")) if f.suffix in endings]
            if not below:
                raise ValueError(
                    f"{path} has no file {' or '.join('*' + e for e in endings)}: give "
                    "the folder that has them, or a file."
                )
            found += [(str(file.relative_to(path)), file) for file in below]
        elif path.is_file():
            found.append((path.name, path))
        else:
            raise ValueError(
                f"{path} does not exist: give the path of a file or folder."
            )
    if not found:
        raise ValueError("no file is given: give the path of a file or a folder.")
    return found


def _by_split(paths: Iterable[tuple[str, Path]]) -> dict[str, list[Path]]:
    """Files for training and, where their names say so, for testing."""
    splits: dict[str, list[Path]] = {}
    for name, path in paths:
        words = [_SPLIT.match(word) for word in Path(name).parts]
        named = [word.group(1).lower() for word in words if word]
        splits.setdefault(named[-1] if named else "train", []).append(path)
    return _judged(splits, "the files")


def _judged(splits: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Training and the first split that judges a model; nothing but one of these."""
    tests = [split for split in _TESTS if split in splits]
    if "train" not in splits:
        only = list(splits)
        if len(only) == 1:  # one file or split, whatever its name
            return {"train": splits[only[0]]}
        raise ValueError(
            f"{name} have the splits {', '.join(only)}, and none for training: name "
            "one train, or give the files for training and for testing apart."
        )
    chosen = {"train": splits["train"]}
    return chosen | ({"test": splits[tests[0]]} if tests else {})


def _read(paths: Iterable[Path], columns: Sequence[str]) -> list[Part]:
    parts = []
    for path in paths:
        wanted = list(columns)
        try:
            if path.suffix == ".arrow":
                table = _arrow_file(path)
            else:
                there = pq.read_schema(path).names
                read = [name for name in wanted if name in there]
                # All names are for the message, where one of them is missing.
                table = pq.read_table(path, columns=read if read == wanted else None)
        # A folder that is called .parquet, a file cut short: errors of many kinds.
        except (pa.ArrowException, OSError) as error:
            form = "Arrow" if path.suffix == ".arrow" else "Parquet"
            raise ValueError(
                f"{path} cannot be read as {form} ({reason(error)}): write it anew."
            ) from error
        parts.append(part(str(path), table))
    return parts


def _arrow_file(path: Path) -> pa.Table:
    """A table in Arrow's stream format, which Hugging Face writes, or file format."""
    with pa.memory_map(str(path)) as file:
        try:
            return pa.ipc.open_stream(file).read_all()
        except pa.ArrowInvalid:
            file.seek(0)
            return pa.ipc.open_file(file).read_all()


def _saved(folder: Path, columns: Sequence[str]) -> Splits:
    """The splits of a folder that `save_to_disk` wrote, or of files in any folder."""
    if (folder / "dataset_dict.json").is_file():
        splits = json.loads((folder / "dataset_dict.json").read_text())["splits"]
        chosen = _judged({split: folder / split for split in splits}, str(folder))
        paths = {split: _listed(saved) for split, saved in chosen.items()}
    elif (folder / "state.json").is_file():
        paths = {"train": _listed(folder)}
    else:
        paths = _by_split(_paths(folder, (".parquet", ".arrow")))
    return {split: _read(files, columns) for split, files in paths.items()}


def _listed(folder: Path) -> list[Path]:
    """The files of one saved split, in their order."""
    try:
        state = json.loads((folder / "state.json").read_text())
        paths = [folder / file["filename"] for file in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{folder} is not what save_to_disk wrote ({error!r}): save it anew."
        ) from error
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path} does not exist: save the data set anew.")
    return paths


def _arrow(dataset: Any) -> pa.Table:
    """The rows of a `datasets.Dataset`, selected and shuffled as it says."""
    try:
        # The schema's metadata has the names of the classes.
        metadata = dataset.features.arrow_schema.metadata
        table = dataset.with_format("arrow")[:]
    except AttributeError as error:
        raise ValueError(
            f"dataset is a {type(dataset).__name__}, but it must be a folder, a name, "
            "or a Dataset or DatasetDict of Hugging Face's datasets that is in memory."
        ) from error
    return table.replace_schema_metadata(metadata)


def _named(name: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise ValueError(
            f"dataset = {name!r} is no folder here, and to download it by its name "
            "needs Hugging Face's library: pip install 'afga-jax[datasets]', or give a "
            "folder."
        ) from error
    try:
        return datasets.load_dataset(name)
    # Its own errors, and those of everything that it downloads with.
    except Exception as error:
        raise ValueError(
            f"dataset = {name!r} is no folder here, and Hugging Face's library cannot "
            f"load it by that name ({reason(error)})."
        ) from error
