"""The work that a peer repeats: data, who computes on which samples, the first model.

Written by `benchmarks.export` as one `.npz`, so that all contestants compute the same
gradients. Standard library and NumPy only.
"""

import numpy as np


class Work:
    """What is to be done.

    Attributes:
      inputs: Normalised training images, float32 `[samples, height, width, channels]`.
      targets: int64 `[samples]`.
      test_inputs: Likewise.
      test_targets: Likewise.
      active: Who computes, `[rounds, steps, clients]`.
      samples: On which samples, `[rounds, steps, clients, batch]`.
      upload: Who uploads, `[rounds, uploads]`.
      params: The first model in PyTorch's order and layout.
      numbers: Learning rates and the like.
      num_clients: N.
    """

    def __init__(self, path):
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        scale, shift = arrays["scale"], arrays["shift"]
        self.inputs = arrays["inputs"].astype(np.float32) * scale - shift
        self.test_inputs = arrays["test_inputs"].astype(np.float32) * scale - shift
        self.targets = arrays["targets"].astype(np.int64)
        self.test_targets = arrays["test_targets"].astype(np.int64)
        self.active, self.upload = arrays["active"], arrays["upload"]
        self.samples = arrays["samples"]
        self.num_clients = int(arrays["num_clients"])
        count = sum(name.startswith("param_") for name in arrays)
        self.params = [arrays[f"param_{place}"] for place in range(count)]
        prefix = "number_"
        self.numbers = {
            name.removeprefix(prefix): float(value)
            for name, value in arrays.items()
            if name.startswith(prefix)
        }

    def of_client(self, round, place):
        """All samples of one of the round's clients in their order, and the targets.

        Batch after batch: one pass over them without shuffling is its local steps.

        Args:
          round: Counts from 0.
          place: Among the clients of the round.
        """
        chosen = self.samples[round, :, place].reshape(-1)
        return self.inputs[chosen], self.targets[chosen]
