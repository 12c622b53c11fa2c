"""Data sets on the disk as TFDS prepares them and as the cache keeps them."""

import io
import json

import numpy as np
import tensorflow_datasets as tfds
from array_record.python import array_record_module
from PIL import Image
from tensorflow_datasets.core.hashing import Hasher
from tensorflow_datasets.proto import tf_example_pb2

from afga_jax.data.store import cache, catalog


def prepare(data_dir, name, arrays, form="array_record"):
    """Writes a set as TFDS prepares it: encoded, in the order of a salted hash."""
    folder = data_dir / name / "3.0.2"
    folder.mkdir(parents=True)
    spec = catalog.find(name)
    names = arrays["label_names"].tolist()
    features = {
        "image": tfds.features.Image(shape=spec.shape),
        "label": tfds.features.ClassLabel(names=names),
    }
    if name.startswith("cifar"):
        features["id"] = tfds.features.Text()
    tfds.features.FeaturesDict(features).save_config(folder)
    splits = []
    for split in ("train", "test"):
        images, labels = arrays[f"{split}_inputs"], arrays[f"{split}_targets"]
        splits.append({"name": split, "shardLengths": [str(len(labels))]})
        splits[-1]["filepathTemplate"] = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
        path = folder / f"{name}-{split}.{form}-00000-of-00001"
        writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
        for row in sorted(range(len(labels)), key=Hasher(split).hash_key):
            file = io.BytesIO()
            Image.fromarray(np.squeeze(images[row])).save(file, "PNG")
            example = tf_example_pb2.Example()
            feature = example.features.feature
            feature["image"].bytes_list.value.append(file.getvalue())
            feature["label"].int64_list.value.append(int(labels[row]))
            if "id" in features:
                feature["id"].bytes_list.value.append(f"{split}_{row:05d}".encode())
            writer.write(example.SerializeToString())
        writer.close()
    info = {"name": name, "version": "3.0.2", "fileFormat": form, "splits": splits}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    return folder


def store(access, name, arrays, origin="originals"):
    """Puts arrays into the cache; returns the file."""
    with cache.workspace(name, access.cache_dir) as scratch:
        cache.write(name, access.cache_dir, arrays, origin, scratch)
    return cache.path_of(name, access.cache_dir)


def assert_same(arrays, expected):
    """Asserts that two contents agree to the last bit and type."""
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype
