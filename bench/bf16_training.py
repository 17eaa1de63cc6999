"""Images per second in training with operands of bfloat16 and of float32, on one worker.

    python bench/bf16_training.py [--rounds 3] [--images 2000] [MODEL ...]

Both take turns on random images, and the best epoch of each counts: other programs on the machine only ever add.
"""

from __future__ import annotations

import argparse

import numpy as np

import corenet
from corenet import optim


def measure(model: str, rounds: int, images: int) -> dict[str, float]:
    """The best rate of each precision; the first round only warms up."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (images, *corenet.models.INPUT_SHAPES[model]), dtype=np.uint8)
    data = corenet.datasets.from_arrays(pixels, rng.integers(0, 10, images), classes=tuple("0123456789"))
    best = {}
    trainers = {
        precision: corenet.Trainer(
            corenet.models.get(model), optim.SGD(0.01, momentum=0.9), workers=1, precision=precision
        )
        for precision in ("float32", "bf16")
    }
    for number in range(rounds + 1):
        for precision, trainer in trainers.items():
            rate = trainer.fit(data, batch_size=128, callbacks=())["images_per_second"][0]
            if number:
                best[precision] = max(best.get(precision, 0.0), rate)
    for trainer in trainers.values():
        trainer.close()
    return best


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["mnist_example", "cifar10_quick", "keras_mnist", "lenet5"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", type=int, default=2000)
    options = parser.parse_args()
    for model in options.models:
        best = measure(model, options.rounds, options.images)
        ratio = best["bf16"] / best["float32"]
        print(
            f"{model:16}" + "".join(f"{p:>10} {rate:8,.0f}" for p, rate in best.items()) + f"   ×{ratio:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
