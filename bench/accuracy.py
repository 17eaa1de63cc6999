"""Test accuracy after a whole training: with Winograd's convolutions, without them, and PyTorch's, over some seeds.

    python bench/accuracy.py --data FOLDER --model resnet20 [--epochs 5] [--seeds 3] [--rate 0.1] [--json FILE]

FOLDER: four IDX files, or train/ and test/ with a folder of images for each class (Pillow reads them); or the name of a
data set of corenet. The recipe is the same for all: batches of 128, SGD with momentum 0.9 under OneCycle, no
augmentation. Initial weights, order and dropout are each one's own, so accuracies differ by chance: that of the mean is
the spread over the seeds, divided by the root of their number.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

CHECKOUT = Path(__file__).parents[1]
sys.path[:0] = [str(CHECKOUT)]

BATCH = 128
WAYS = ("winograd", "direct", "PyTorch")


def read(given: str) -> tuple[Any, Any]:
    """(train, test)."""
    from corenet import datasets

    folder = Path(given)
    if not (folder / "train").is_dir():
        return datasets.load(given)
    from PIL import Image

    classes = sorted(path.name for path in (folder / "train").iterdir() if path.is_dir())
    parts = []
    for part in ("train", "test"):
        files = [(path, k) for k, name in enumerate(classes) for path in sorted((folder / part / name).iterdir())]
        x = np.stack([np.asarray(Image.open(path).convert("RGB")) for path, _ in files])
        parts.append(datasets.from_arrays(x, np.array([k for _, k in files]), classes=tuple(classes), name=part))
    return parts[0], parts[1]


def with_algorithm(description: Any, algorithm: str) -> Any:
    """A net's description with every 2-D convolution told to go by that algorithm."""
    if isinstance(description, dict):
        changed = {key: with_algorithm(value, algorithm) for key, value in description.items()}
        return changed | {"algorithm": algorithm} if description.get("type") == "Conv2d" else changed
    return [with_algorithm(part, algorithm) for part in description] if isinstance(description, list) else description


def train_corenet(model: str, algorithm: str, data: tuple[Any, Any], seed: int, options: Any) -> float:
    """The accuracy at the end."""
    import corenet

    net = corenet.nn.build(with_algorithm(corenet.nn.describe(corenet.models.get(model)), algorithm))
    optimizer = corenet.optim.SGD(corenet.optim.OneCycle(options.rate, options.epochs), momentum=0.9)
    with corenet.Trainer(net, optimizer, workers=options.cores, seed=seed) as trainer:
        trainer.fit(data[0], epochs=options.epochs, batch_size=BATCH, callbacks=())
        return trainer.evaluate(data[1])["accuracy"]


def train_torch(model: str, data: tuple[Any, Any], seed: int, options: Any) -> float:
    """The accuracy at the end."""
    import torch
    import torch_training as training

    torch.set_num_threads(options.cores)
    torch.manual_seed(seed)
    scaling = data[0].mean, data[0].std
    (x, y), test = (training.tensors(part, scaling) for part in data)
    net = training.channels_last(model)
    optimizer = torch.optim.SGD(net.parameters(), options.rate, momentum=0.9)
    schedule = training.one_cycle(optimizer, options.rate, options.epochs, len(x), BATCH)
    for _ in range(options.epochs):
        training.epoch(net, x, y, BATCH, optimizer, schedule)
    return training.accuracy(net, *test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, metavar="FOLDER")
    parser.add_argument("--model", required=True)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=0.1, help="the highest that OneCycle reaches")
    parser.add_argument("--cores", type=int, default=2, help="workers of corenet, threads of PyTorch")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    options = parser.parse_args()

    from corenet.errors import CorenetError
    from corenet.train.files import write_atomically

    found: dict[str, list[float]] = {way: [] for way in WAYS}
    try:
        data = read(options.data)
        for seed in range(options.seeds):
            for way, accuracies in found.items():
                if way == "PyTorch":
                    accuracies.append(train_torch(options.model, data, seed, options))
                else:
                    algorithm = "auto" if way == "winograd" else way
                    accuracies.append(train_corenet(options.model, algorithm, data, seed, options))
                print(f"seed {seed}: {way:9}{accuracies[-1]:.2%}", flush=True)
    except CorenetError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(
        f"\n{options.model}, {options.epochs} epochs, rate {options.rate}: mean and spread over {options.seeds} seeds"
    )
    for way, accuracies in found.items():
        print(f"  {way:9}{np.mean(accuracies):.2%} ± {np.std(accuracies, ddof=1) if len(accuracies) > 1 else 0:.2%}")
    if options.json:
        write_atomically(options.json, json.dumps(found).encode())


if __name__ == "__main__":
    main()
