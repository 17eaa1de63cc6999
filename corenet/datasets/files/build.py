"""Make the shipped data files, and the example images, from the published sets.

    python -m pip install scikit-learn pillow      # in an environment of its own; corenet itself needs neither here
    PYTHONPATH=. python corenet/datasets/files/build.py FASHION_MNIST_FOLDER [--examples examples/images]

FASHION_MNIST_FOLDER holds the four files of the complete set. Inputs and outputs are compared, unpacked, with the
SHA-256 below: the packed bytes depend on the version of zlib.
"""

import argparse
import hashlib
import sys
from pathlib import Path

import numpy as np

from corenet.datasets.builtin import FASHION_CLASSES
from corenet.datasets.idx import find_split, read_idx, write_idx
from corenet.datasets.images import save_image

HERE = Path(__file__).parent
PER_CLASS = {"train": 1_000, "test": 200}  # the first of each class, kept in the published order
EXAMPLES = ("Ankle boot", "Bag", "Trouser", "Pullover", "Sneaker")

# SHA-256 of the values alone, in C order, one byte each: the same whatever the file around them.
INPUTS = {
    "fashion train images": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
    "fashion train labels": "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
    "fashion test images": "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
    "fashion test labels": "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    "digits images": "8f26b2bd9d135c256808f68f14fdabddde6d9c7f869ae419704b051f0f14b3b3",
    "digits labels": "8ba4f891220f5e4c9c819638d1602d74b83618f167043c6da52a2a247841ddf0",
}
OUTPUTS = {
    "fashion-train-images.idx3.gz": "e1427044c614fabc29feeff0f27e6b68f88a9ee2f2cfe7d783b9157159864883",
    "fashion-train-labels.idx1.gz": "2c02745d4ad8b4511333d0eca662ac5664a371860abaa4588b1670e7be59fbdf",
    "fashion-test-images.idx3.gz": "96315b1732ab731e68b8def3c284f34b605f7deb7a61e683c7d786265c827c83",
    "fashion-test-labels.idx1.gz": "b2095bc797d1201e84da76c94012c02d0e6f07af0938df4e00120a3b42d1aa4c",
    "digits-images.idx3.gz": "8f26b2bd9d135c256808f68f14fdabddde6d9c7f869ae419704b051f0f14b3b3",
    "digits-labels.idx1.gz": "8ba4f891220f5e4c9c819638d1602d74b83618f167043c6da52a2a247841ddf0",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fashion_mnist", type=Path, metavar="FASHION_MNIST_FOLDER")
    parser.add_argument("--examples", type=Path, metavar="FOLDER", help="also write the example images there")
    args = parser.parse_args()

    for split, per_class in PER_CLASS.items():
        image_path, label_path = find_split(args.fashion_mnist, split)
        x, y = read_idx(image_path), read_idx(label_path)
        check(f"fashion {split} images", x, INPUTS)
        check(f"fashion {split} labels", y, INPUTS)
        first = np.sort(np.concatenate([np.flatnonzero(y == c)[:per_class] for c in range(10)]))
        write(f"fashion-{split}-images.idx3.gz", x[first])
        write(f"fashion-{split}-labels.idx1.gz", y[first])
        if split == "test" and args.examples:
            for name in EXAMPLES:
                # The next of its class after the shipped ones: in no training set, and not in the shipped test set.
                i = np.flatnonzero(y == FASHION_CLASSES.index(name))[per_class]
                save_image(args.examples / f"{name.lower().replace(' ', '_')}.png", x[i])
                print(f"{name}: number {i} (from 0) of the complete test set")

    from sklearn.datasets import load_digits  # type: ignore[import-not-found,import-untyped,unused-ignore]

    published = load_digits()
    for what, values in (("images.idx3", published.images), ("labels.idx1", published.target)):
        values = values.astype(np.uint8)  # whole numbers from 0 to 16, which it keeps as float64
        check(f"digits {what.split('.')[0]}", values, INPUTS)
        write(f"digits-{what}.gz", values)


def write(name: str, values: np.ndarray) -> None:
    """Write a shipped file, then check what is read back from it."""
    write_idx(HERE / name, values)
    check(name, read_idx(HERE / name), OUTPUTS)


def check(name: str, values: np.ndarray, known: dict[str, str]) -> None:
    """Compare with the known SHA-256; anything else is not the set this package ships."""
    found = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
    print(f"{name}: {values.shape} {values.dtype}, sha256 {found}")
    if found != known[name]:
        sys.exit(f"{name}: expected sha256 {known[name]}: this is not the published set, or not all of it.")


if __name__ == "__main__":
    main()
