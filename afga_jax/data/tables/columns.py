"""One column of a table as an array: images, numbers, texts, labels and clients.

A column may lie in several files; what is wrong with it is said with the file and the
row. Types are Arrow's, and what Hugging Face writes beside them: names of classes, and
images as the bytes of a file.
"""

import collections
import contextlib
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from afga_jax import checks
from afga_jax.data.store.catalog import reason
from afga_jax.data.text.shakespeare import encode

# Codes of one byte; the last of so many stands for all rarer characters.
_MOST_CHARACTERS = 256
_OTHER = "\ufffd"


class Part(NamedTuple):
    """Rows of a data set that came together.

    Attributes:
      where: Name of the file, for messages.
      table: Its columns, without types that only wrap another.
    """

    where: str
    table: pa.Table


def part(where: str, table: pa.Table) -> Part:
    """A file's rows, with words in place of dictionaries and arrays' plain lists."""
    for place, field in enumerate(table.schema):
        column = table.column(place)
        if pa.types.is_dictionary(field.type):
            column = column.cast(field.type.value_type)
        elif isinstance(field.type, pa.BaseExtensionType):
            chunks = [chunk.storage for chunk in column.chunks]
            column = pa.chunked_array(chunks, field.type.storage_type)
        else:
            continue
        table = table.set_column(place, field.name, column)
    return Part(where, table)


def check_names(parts: Sequence[Part], names: Sequence[str]) -> None:
    """Refuses a column that a part does not have, or that has rows without a value.

    Args:
      parts: Rows, file by file.
      names: Names of the columns that are needed.
    """
    for where, table in parts:
        for name in names:
            if name not in table.column_names:
                hint = checks.did_you_mean(name, table.column_names)
                raise ValueError(
                    f"{where} has no column {name!r}{f'; {hint}' if hint else '.'} Its "
                    f"columns are {', '.join(table.column_names)}."
                )
            if table.column(name).null_count:
                row = pc.index(pc.is_null(table.column(name)), True).as_py()
                raise ValueError(
                    f"{where}: column {name!r} has no value in row {row}, and in "
                    f"{table.column(name).null_count} of {len(table)} rows: fill them "
                    "in, or leave these rows out."
                )


def inputs(
    parts: Sequence[Part],
    name: str,
    shape: Sequence[int] | None = None,
    length: int | None = None,
    alphabet: str = "",
) -> np.ndarray:
    """Samples of one column: images, numbers, or codes of a length.

    Args:
      parts: Rows, file by file.
      name: Name of the column.
      shape: Shape of a sample whose numbers lie in one list; None: as it is stored.
      length: Number of codes of a sample, by which longer texts are cut and shorter
        ones filled up with 0; None: all have as many.
      alphabet: Characters of a text, whose codes count from 1.

    Returns:
      Images uint8 `[samples, height, width, channels]`, codes int32 `[samples,
      length]`, other numbers float32 `[samples, ...]`.
    """
    kind = kind_of(parts, name)
    if kind == "image":
        return _images(parts, name)
    if kind == "text":
        return _characters(parts, name, length, alphabet)
    if kind != "numbers":
        raise ValueError(
            f"{parts[0].where}: column {name!r} holds {_type(parts, name)}, but a "
            "sample must be an image, a text, a number, or a list of numbers: choose "
            "another column."
        )
    rows = [_numbers(part, name, length) for part in parts]
    shapes = {array.shape[1:] for array in rows}
    if len(shapes) > 1:
        raise ValueError(
            f"column {name!r} has samples of shapes {', '.join(map(str, shapes))} in "
            f"{', '.join(part.where for part in parts)}: make them alike."
        )
    array = np.concatenate(rows)
    if shape is not None:
        size = int(np.prod(array.shape[1:]))
        if size != np.prod(shape):
            raise ValueError(
                f"shape = {tuple(shape)}, but a sample of column {name!r} has {size} "
                "numbers: give a shape of as many."
            )
        array = array.reshape(len(array), *shape)
    return _typed(array)


def kind_of(parts: Sequence[Part], name: str) -> str:
    """What a column holds: `"image"`, `"text"`, `"numbers"`, or `"other"`."""
    kind = _type(parts, name)
    if pa.types.is_struct(kind):
        return "image" if kind.get_field_index("bytes") >= 0 else "other"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "image"
    if _is_text(kind):
        return "text"
    while _is_list(kind):
        kind = kind.value_type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return "numbers" if is_number or pa.types.is_boolean(kind) else "other"


def features(
    parts: Sequence[Part], names: Sequence[str], shape: Sequence[int] | None
) -> np.ndarray:
    """Several columns of one number each as samples, float32 `[samples, columns]`.

    Args:
      parts: Rows, file by file.
      names: Names of the columns.
      shape: Shape of a sample; None: one number after another.
    """
    for name in names:
        if kind_of(parts, name) != "numbers" or _is_list(_type(parts, name)):
            raise ValueError(
                f"{parts[0].where}: column {name!r} holds {_type(parts, name)}, but "
                "several columns are one sample only where each holds one number: "
                "give one column, or columns of numbers."
            )
    columns = [inputs(parts, name) for name in names]
    array = np.concatenate(columns, axis=1, dtype=np.float32)
    return array if shape is None else array.reshape(len(array), *shape)


def labels(
    parts: Sequence[Part],
    name: str,
    names: Sequence[str] = (),
    num_classes: int | None = None,
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Classes of a column of whole numbers or words.

    Args:
      parts: Rows, file by file.
      name: Name of the column.
      names: Names of the classes, in the order of their numbers; empty: those that
        Hugging Face stored, else the words that there are, sorted, else the numbers.
      num_classes: Number of classes; None: as many as there are names, or as the
        largest number needs.

    Returns:
      Labels int32 `[samples]`, and one name per class.
    """
    kind = _type(parts, name)
    stored = tuple(names) or _stored_names(parts, name)
    if _is_text(kind):
        stored = stored or tuple(sorted(_distinct(parts, name)))
        code = {word: number for number, word in enumerate(stored)}
        numbers = []
        for where, row, word in _values(parts, name):
            if word not in code:
                hint = checks.did_you_mean(word, code)
                raise ValueError(
                    f"{where}: label {word!r} in row {row} of column {name!r} is no "
                    f"class{f'; {hint}' if hint else '.'} There are {len(code)}: "
                    "repair it, or leave such rows out."
                )
            numbers.append(code[word])
        return np.array(numbers, np.int32), stored
    if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise ValueError(
            f"{parts[0].where}: column {name!r} holds {kind}, but a label must be a "
            "whole number or a word: choose another column, or convert it."
        )
    columns = [part.table.column(name).to_numpy() for part in parts]
    array = np.concatenate(columns).astype(np.int64)
    highest = int(array.max())
    if num_classes is None:
        num_classes = len(stored) or highest + 1
        if not stored and num_classes > len(array):
            raise ValueError(
                f"column {name!r} has label {highest}, but only {len(array)} rows: "
                "number the classes from 0, store them as words, or give num_classes."
            )
    outside = (array < 0) | (array >= num_classes)
    if outside.any():
        where, row = _place(parts, int(outside.argmax()))
        raise ValueError(
            f"{where}: label {array[outside][0]} in row {row} of column {name!r} is no "
            f"class, it must be in [0, {num_classes}): repair it, leave such rows out, "
            "or give num_classes."
        )
    stored = stored if len(stored) == num_classes else ()
    return array.astype(np.int32), stored or tuple(map(str, range(num_classes)))


def clients(parts: Sequence[Part], name: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Clients of a column of numbers or words, numbered in their order.

    Args:
      parts: Rows, file by file.
      name: Name of the column.

    Returns:
      Clients int32 `[samples]`, and one name per client.
    """
    kind = _type(parts, name)
    is_word = _is_text(kind)
    if not is_word and not pa.types.is_integer(kind):
        raise ValueError(
            f"{parts[0].where}: column {name!r} holds {kind}, but a client must be a "
            "whole number or a word: choose another column, or convert it."
        )
    named = _stored_names(parts, name)
    values = sorted(_distinct(parts, name))
    if "" in values:
        where, row = next((w, r) for w, r, v in _values(parts, name) if v == "")
        raise ValueError(
            f"{where}: row {row} of column {name!r} names no client: fill it in, or "
            "leave such rows out."
        )
    if named and not is_word and values != list(range(len(named))):
        empty = next((n for i, n in enumerate(named) if i not in values), None)
        trouble = f"client {empty!r} has no samples" if empty else f"{values[-1]}"
        raise ValueError(
            f"{parts[0].where}: {trouble} among the {len(named)} clients that column "
            f"{name!r} names: give every client at least 1, or leave its name out."
        )
    number = {value: place for place, value in enumerate(values)}
    column = np.array([number[v] for _, _, v in _values(parts, name)], np.int32)
    return column, tuple(named or map(str, values))


def texts(parts: Sequence[Part], name: str) -> list[str]:
    """The texts of a column, row by row."""
    return [value for _, _, value in _values(parts, name)]


def tokens(parts: Sequence[Part], name: str) -> list[np.ndarray]:
    """The codes of a column of lists, row by row, int32 `[length of the row]`."""
    kind = _type(parts, name)
    if not (_is_list(kind) and pa.types.is_integer(kind.value_type)):
        raise ValueError(
            f"{parts[0].where}: column {name!r} holds {kind}, but without a label it "
            "must be a text, or lists of tokens: name the column of the labels."
        )
    rows = []
    for where, row, value in _values(parts, name):
        codes = np.array(value, np.int64)
        if codes.size and not 0 <= codes.min() <= codes.max() < 2**31:
            raise ValueError(
                f"{where}: row {row} of column {name!r} has token {codes.min()}, but "
                "tokens are in [0, 2³¹): number them from 0."
            )
        rows.append(codes.astype(np.int32))
    return rows


def alphabet_of(rows: Sequence[str]) -> str:
    """The characters of texts in the order of their codes, 256 at most.

    Where there are more, the rarest are left to the replacement character.

    >>> alphabet_of(["to be", "or"])
    ' beort'
    """
    counts = collections.Counter(" ".join("\n".join(rows).split()))
    if len(counts) <= _MOST_CHARACTERS:
        return "".join(sorted(counts))
    counts.pop(_OTHER, None)
    common = sorted(c for c, _ in counts.most_common(_MOST_CHARACTERS - 1))
    return "".join([*common, _OTHER])


def within(text: str, alphabet: str) -> str:
    """The text with one character for those that the alphabet leaves to it."""
    if not alphabet.endswith(_OTHER):
        return text
    known = set(alphabet)
    return "".join(
        letter if letter in known or letter.isspace() else _OTHER for letter in text
    )


def _images(parts: Sequence[Part], name: str) -> np.ndarray:
    from PIL import Image

    first, number = None, sum(len(part.table) for part in parts)
    pixels = np.empty((0, 0, 0, 1), np.uint8)
    # It may take minutes, so a terminal gets a progress bar.
    bar = {"total": number, "desc": name, "unit": " images", "delay": 2.0}
    images = tqdm(_encoded(parts, name), **bar, disable=None)
    for place, (where, row, content) in enumerate(images):
        with _readable(where, row, name), Image.open(io.BytesIO(content)) as image:
            (width, height), grey = image.size, image.mode in ("1", "L")
            array = np.asarray(image.convert("L" if grey else "RGB"))
        if first is None:
            first = (width, height, where, row)
            pixels = np.empty((number, height, width, 1 if grey else 3), np.uint8)
        if (width, height) != first[:2]:
            raise ValueError(
                f"{where}: row {row} of column {name!r} has {width} × {height} pixels, "
                f"row {first[3]} of {first[2]} has {first[0]} × {first[1]}: make the "
                "images alike."
            )
        if not grey and pixels.shape[-1] == 1:  # the first one with colour
            pixels = np.repeat(pixels, 3, axis=-1)
        pixels[place] = array.reshape(height, width, -1)
    return pixels


@contextlib.contextmanager
def _readable(where: str, row: int, name: str) -> Iterator[None]:
    """Says which image a decoder's error, of whatever kind, is about."""
    try:
        yield
    except Exception as error:
        raise ValueError(
            f"{where}: row {row} of column {name!r} is no image that can be read "
            f"({reason(error)}): repair it, or leave it out."
        ) from error


def _encoded(parts: Sequence[Part], name: str) -> Iterator[tuple[str, int, bytes]]:
    """The bytes of each image's file."""
    for where, row, value in _values(parts, name):
        content = value["bytes"] if isinstance(value, dict) else value
        if not content:
            path = value.get("path") if isinstance(value, dict) else None
            beside = f", but the path {path!r}" if path else ""
            raise ValueError(
                f"{where}: row {row} of column {name!r} has no bytes{beside}: save the "
                "images themselves into the file."
            )
        yield where, row, content


def _characters(
    parts: Sequence[Part], name: str, length: int | None, alphabet: str
) -> np.ndarray:
    rows = [encode(within(row, alphabet), alphabet) for row in texts(parts, name)]
    if length is None:
        longest = max(map(len, rows))
        raise ValueError(
            f"{parts[0].where}: column {name!r} has texts of up to {longest} "
            "characters: give the length to which they are cut and filled up, or leave "
            "the label out to predict the next character."
        )
    codes = np.zeros((len(rows), length), np.int32)
    for sample, row in enumerate(rows):
        codes[sample, : len(row)] = row[:length] + np.int32(1)
    return codes


def _numbers(part: Part, name: str, length: int | None) -> np.ndarray:
    """A column of numbers, or of lists in lists of equal lengths, with its own type."""
    blocks = []
    for chunk in part.table.column(name).chunks:
        if length is not None and _is_list(chunk.type):
            blocks.append(_cut(chunk, length))
            continue
        shape, values = [len(chunk)], chunk
        while _is_list(values.type):
            lengths = pc.list_value_length(values)
            low, high = (end.as_py() for end in pc.min_max(lengths).values())
            if low != high:
                raise _ragged(part, name, low, high)
            shape.append(high or 0)
            values = values.flatten()
        if values.null_count:
            raise ValueError(
                f"{part.where}: {values.null_count} numbers in lists of column "
                f"{name!r} are missing: fill them in, or leave these rows out."
            )
        block = values.to_numpy(zero_copy_only=False).reshape(shape)
        blocks.append(block[:, None] if block.ndim == 1 else block)
    if len({block.shape[1:] for block in blocks}) > 1:
        counts = sorted({block.shape[1] for block in blocks})
        raise _ragged(part, name, counts[0], counts[-1])
    array = np.concatenate(blocks)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        bad = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
        raise ValueError(
            f"{part.where}: row {bad.argmax()} of column {name!r} is NaN or infinite, "
            f"as {bad.sum()} of {len(array)} rows are: repair them, or leave them out."
        )
    return array


def _ragged(part: Part, name: str, low: int, high: int) -> ValueError:
    return ValueError(
        f"{part.where}: column {name!r} has lists of {low} to {high} numbers: make "
        "them alike, or give the length to which sequences are cut and filled up."
    )


def _cut(chunk: pa.Array, length: int) -> np.ndarray:
    """Sequences of one length: longer ones cut, shorter ones filled up with 0."""
    block = np.zeros((len(chunk), length), np.int64)
    for row, values in enumerate(chunk):
        codes = values.as_py()[:length]
        block[row, : len(codes)] = codes
    return block


def _typed(array: np.ndarray) -> np.ndarray:
    """Pixels as bytes with an axis of channels, codes as int32, others as float32."""
    if array.dtype.kind in "iu" and array.ndim > 2:
        if array.size and 0 <= array.min() <= array.max() <= 255:
            array = array.astype(np.uint8)
            return array[..., None] if array.ndim == 3 else array
        return array.astype(np.float32)
    if array.dtype.kind in "iu" and array.shape[1] > 1:
        return array.astype(np.int32)
    return array.astype(np.float32)


def _stored_names(parts: Sequence[Part], name: str) -> tuple[str, ...]:
    """Names of a column's numbers, where Hugging Face's library stored some."""
    stored = (parts[0].table.schema.metadata or {}).get(b"huggingface")
    try:
        feature = json.loads(stored or b"{}")["info"]["features"][name]
        return tuple(map(str, feature["names"]))
    except (KeyError, TypeError, ValueError):
        return ()


def _type(parts: Sequence[Part], name: str) -> pa.DataType:
    """The column's type, which is the same in every part."""
    kinds: dict[pa.DataType, str] = {}
    for where, table in parts:
        kinds.setdefault(table.schema.field(name).type, where)
    if len(kinds) > 1:
        held = [f"{kind} in {where}" for kind, where in kinds.items()]
        raise ValueError(
            f"column {name!r} is of several types, {', '.join(held)}: make them alike."
        )
    return next(iter(kinds))


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_list(kind: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_one(kind) for is_one in lists)


def _distinct(parts: Sequence[Part], name: str) -> set[Any]:
    return {v for part in parts for v in pc.unique(part.table.column(name)).to_pylist()}


def _values(parts: Sequence[Part], name: str) -> Iterator[tuple[str, int, Any]]:
    """File, row and value, one after another."""
    for where, table in parts:
        row = 0
        for chunk in table.column(name).chunks:
            for value in chunk:
                yield where, row, value.as_py()
                row += 1


def _place(parts: Sequence[Part], sample: int) -> tuple[str, int]:
    for where, table in parts:
        if sample < len(table):
            return where, sample
        sample -= len(table)
    raise IndexError(sample)
