"""A Dataset: what from_arrays accepts, what it refuses and how it says so, subsets, augmentation, normalisation."""

import copy
import dataclasses
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from corenet import datasets
from corenet.datasets import Dataset, as_dataset, from_arrays
from corenet.datasets.dataset import normalisation
from corenet.errors import ConfigError, DataError

X = np.arange(6 * 3 * 4, dtype=np.uint8).reshape(6, 3, 4)
Y = [0, 1, 2, 0, 1, 2]


def with_value(value, dtype=np.float32):
    x = np.zeros((3, 2, 2, 1), dtype)
    x[2, 1, 0, 0] = value
    return x


def test_arrays_become_a_dataset():
    data = from_arrays(X, Y, classes=("a", "b", "c"), name="n", mean=0.5, std=[0.25])
    assert data.x.shape == (6, 3, 4, 1) and data.x.dtype == np.uint8 and data.x.flags.c_contiguous
    assert data.y.dtype == np.int64 and data.y.tolist() == Y
    assert (len(data), data.sample_shape, data.n_classes, data.classes) == (6, (3, 4, 1), 3, ("a", "b", "c"))
    assert (data.name, data.mean, data.std, data.shift, data.flip) == ("n", (0.5,), (0.25,), 0, False)
    assert repr(data) == "<Dataset 'n': 6 images 3×4×1 uint8, 3 classes>"


def test_defaults():
    data = from_arrays(X, Y)
    assert (data.name, data.mean, data.std, data.classes) == ("arrays", (0.0,), (1.0,), ("0", "1", "2"))
    data = from_arrays(X)
    assert data.y is None and data.classes == () and "no labels" in repr(data)


@pytest.mark.parametrize(
    ("dtype", "stored", "values"),
    [
        ("uint8", "uint8", [0, 1, 255]),
        ("int64", "uint8", [0, 1, 255]),
        ("int8", "uint8", [0, 1, 127]),
        (">u2", "uint8", [0, 1, 255]),
        ("float32", "float32", [-1.5, 0.1, 300]),
        ("float64", "float32", [-1.5, 0.1, 300]),
        ("float16", "float32", [-1.5, 0.1, 300]),
        (">f4", "float32", [-1.5, 0.1, 300]),
    ],
)
def test_images_of_each_dtype(dtype, stored, values):
    x = np.array(values, dtype).reshape(3, 1, 1)
    data = from_arrays(x)
    assert data.x.dtype == np.dtype(stored) and data.x.dtype.isnative
    np.testing.assert_array_equal(data.x.ravel(), x.ravel().astype(stored))


def test_bool_images_are_0_and_1_to_the_net():
    data = from_arrays(np.array([False, True]).reshape(2, 1, 1))
    assert data.x.dtype == np.uint8 and (data.x.ravel() / 255).tolist() == [0.0, 1.0]


def test_strided_images_are_copied_and_fitting_ones_are_not():
    assert from_arrays(X[..., None].transpose(0, 2, 1, 3)).x.flags.c_contiguous
    assert np.shares_memory(from_arrays(X).x, X)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint64", ">i4", "bool"])
def test_labels_of_each_dtype(dtype):
    data = from_arrays(X, np.array([0, 1, 1, 0, 1, 0], dtype))
    assert data.y.dtype == np.int64 and data.y.tolist() == [0, 1, 1, 0, 1, 0] and data.n_classes == 2


BAD = {
    "no images": ((X[:0], []), "'arrays' is empty: expected at least one image"),
    "no pixels": ((np.zeros((2, 0, 3)),), r"empty.*got images of shape \(2, 0, 3, 1\)"),
    "one image": ((X[0],), r"expected shape \(n, h, w\) or \(n, h, w, c\), got shape \(3, 4\)\. .*x\[None\]"),
    "a table": ((X[0],), r"a table \(n, features\) is x\[:, None, None, :\]"),
    "5 dimensions": ((np.zeros((1, 1, 1, 1, 1)),), r"got shape \(1, 1, 1, 1, 1\)\. A volume is .*Reshape"),
    "6 dimensions": ((np.zeros((1, 1, 1, 1, 1, 1)),), r"got shape \(1, 1, 1, 1, 1, 1\)\. Channels come last"),
    "fewer labels": ((X, Y[:5]), "differ in number: expected 6 labels, one for each image, got 5"),
    "no labels": ((X, []), "differ in number: expected 6 labels, one for each image, got 0"),
    "text labels": ((X, list("abcabc")), "labels.*expected integers or floats, got dtype <U1.*numbered first"),
    "one label for all": ((X, 3), r"labels.*expected shape \(n, …\), something for each image, got shape \(\)"),
    "NaN among values": (
        (X, [0, 1, np.nan, 2, 3, 4]),
        r"labels.*expected finite float32 values, got nan at index \(2,\)",
    ),
    "too large a value": ((X, np.full(6, 1e300)), "labels.*expected finite float32 values, got inf"),
    "one label": ((X, 3), r"labels.*got shape \(\)"),
    "label over int64": ((X, np.array([0, 1, 2, 3, 4, 2**63], np.uint64)), "int64, got 9223372036854775808"),
    "NaN": ((with_value(np.nan),), r"finite float32 values, got nan at index \(2, 1, 0, 0\)"),
    "infinity": ((with_value(-np.inf),), r"got -inf at index \(2, 1, 0, 0\)"),
    "too large for float32": ((with_value(1e300, np.float64),), r"got inf at index \(2, 1, 0, 0\)"),
    "integer above 255": ((with_value(256, np.int32),), "integers from 0 to 255, got integers from 0 to 256"),
    "integer below 0": ((with_value(-1, np.int8),), "got integers from -1 to 0"),
    "objects": ((np.full((2, 2, 2), None),), "got dtype object"),
    "complex": ((np.zeros((2, 2, 2), complex),), "got dtype complex128"),
    "text": ((np.full((2, 2, 2), "a"),), "got dtype <U1"),
    "unequal sizes": (([np.zeros((2, 2)), np.zeros((3, 2))],), "images of 'arrays': expected"),
    "unequal labels": ((X, [[0], [1, 2]]), "labels of 'arrays': expected"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arrays(case):
    args, message = BAD[case]
    with pytest.raises(DataError, match=message):
        from_arrays(*args)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": "abc"}, "classes.*expected a sequence of names, got the string 'abc'"),
        ({"std": 0}, r"std of 'arrays': expected finite numbers greater than 0, got \(0\.0,\)"),
        ({"std": -1.0}, "greater than 0"),
        ({"std": np.nan}, "std.*finite"),
        ({"std": np.inf}, "std.*finite"),
        ({"std": "x"}, "std.*expected a number, or one for each channel, got 'x'"),
        ({"mean": np.nan}, "mean.*finite"),
        ({"mean": (0.1, 0.2)}, r"mean.*expected 1 number, in a tuple, got \(0\.1, 0\.2\)"),
        ({"mean": ()}, "mean.*expected 1 number"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(DataError, match=message):
        from_arrays(X, Y, **options)


def test_one_normalisation_for_each_channel():
    x = np.zeros((2, 4, 4, 3), np.uint8)
    data = from_arrays(x, mean=np.array([1, 2, 3]), std=0.5)
    assert (data.mean, data.std) == ((1.0, 2.0, 3.0), (0.5,))
    with pytest.raises(DataError, match="expected 1 number, or 3: one for each channel"):
        from_arrays(x, mean=[1, 2])


def test_names_need_not_be_strings_and_may_outnumber_the_labels():
    assert from_arrays(X, Y, classes=range(5)).classes == ("0", "1", "2", "3", "4")
    assert from_arrays(X, classes=np.array([7, 8])).classes == ("7", "8")


def test_integers_may_be_no_classes():
    """An unlabelled pixel's number, say: the loss knows."""
    data = from_arrays(X, [0, 1, 2, 255, -1, 0], classes=["a", "b", "c"])
    assert data.n_classes == 3 and data.y[3] == 255


GOOD = {"x": X[..., None], "y": np.array(Y), "classes": ("a", "b", "c"), "name": "n"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": X}, r"expected \(n, h, w, c\) uint8 or float32, got uint8 of shape \(6, 3, 4\)\. .*from_arrays"),
        ({"x": X[..., None].astype(float)}, "got float64 of shape"),
        ({"x": X[..., None].astype(">f4")}, "got >f4 of shape"),
        ({"x": [[1]]}, "got list"),
        ({"x": X[..., None][:, ::2]}, "expected a C-contiguous array"),
        ({"x": X[:0, ..., None], "y": None}, "'n' is empty"),
        ({"y": Y}, r"expected \(n, …\) int64 or float32, got list"),
        ({"y": np.array(Y, np.int32)}, "got int32"),
        ({"y": np.array(3)}, r"got int64 of shape \(\)"),
        ({"y": np.array(Y[:5])}, "differ in number"),
        ({"std": 1.0}, "std"),
        ({"std": (0.0,)}, "std"),
    ],
)
def test_the_class_itself_checks_what_is_cheap(change, message):
    assert len(Dataset(**GOOD)) == 6
    with pytest.raises(DataError, match=message):
        Dataset(**{**GOOD, **change})


def test_a_dataset_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        from_arrays(X, Y).name = "other"


def test_a_dataset_can_be_copied_as_for_a_process():
    data = from_arrays(X, Y).with_augmentation(shift=1)
    other = copy.deepcopy(data)
    np.testing.assert_array_equal(other.x, data.x)
    assert (other.classes, other.shift, other.name) == (data.classes, 1, data.name)


@pytest.mark.parametrize("chosen", [slice(1, 4), [1, 2, 3], np.array([1, 2, 3], np.uint8), range(1, 4), [-5, 2, -3]])
def test_subset(chosen):
    data = from_arrays(X, Y, mean=0.1).with_augmentation(flip=True)
    part = data.subset(chosen)
    np.testing.assert_array_equal(part.x[..., 0], X[1:4])
    assert part.y.tolist() == Y[1:4] and part.flip and part.mean == (0.1,) and part.classes == data.classes
    assert np.shares_memory(part.x, X) == isinstance(chosen, slice)


def test_subset_by_mask_by_step_and_without_labels():
    data = from_arrays(X, Y)
    assert data.subset(data.y == 1).y.tolist() == [1, 1]
    assert data.subset(slice(None, None, -2)).x.flags.c_contiguous
    assert data.subset(slice(None, None, -2)).y.tolist() == [2, 0, 1]
    assert from_arrays(X).subset([5]).y is None


@pytest.mark.parametrize("chosen", [[6], [-7], [0.5], [], slice(3, 3), np.zeros(6) > 0, np.ones(5) > 0, 2, [[0]], "a"])
def test_bad_subset(chosen):
    with pytest.raises(DataError, match="subset of 'arrays'"):
        from_arrays(X, Y).subset(chosen)


def test_augmentation_is_a_copy_that_shares_the_images():
    data = from_arrays(X, Y)
    augmented = data.with_augmentation(shift=2, flip=True)
    assert (augmented.shift, augmented.flip, data.shift, data.flip) == (2, True, 0, False)
    assert augmented.x is data.x


@pytest.mark.parametrize("options", [{"shift": -1}, {"shift": 3}, {"shift": 1.5}, {"shift": None}, {"flip": 2}])
def test_bad_augmentation(options):
    with pytest.raises(ConfigError, match=r"(shift|flip) of 'arrays': expected .*, got"):
        from_arrays(X, Y).with_augmentation(**options)


def test_as_dataset():
    data = from_arrays(X, Y)
    assert as_dataset(data) is data
    assert as_dataset((X, Y)).y.tolist() == Y
    assert as_dataset(X).y is None and as_dataset(tensor()).y is None


def tensor():
    class Tensor:
        def __array__(self, dtype=None, copy=None):
            return X

    return Tensor()


@pytest.mark.parametrize(
    ("obj", "got"), [([X, Y], "list"), ((X, Y, Y), "a tuple of 3"), ("digits", "str"), (None, "NoneType"), ({}, "dict")]
)
def test_not_a_dataset(obj, got):
    with pytest.raises(DataError, match=rf"expected a corenet Dataset, a tuple \(x, y\).*got {got}\. "):
        as_dataset(obj)


@pytest.mark.parametrize(
    ("y", "dtype", "classes", "text"),
    [
        ([0, 1, 2, -100, -1, 0], "int64", 3, "3 classes"),
        (np.eye(6, dtype=np.uint8), "int64", 2, "2 classes"),
        (np.arange(6.0), "float32", 0, "1 values each"),
        (np.zeros((6, 2, 3), np.float16), "float32", 0, "2×3 values each"),
        (np.array([True] * 6), "int64", 2, "2 classes"),
        ([0, 1, 2, 3, 4, 999], "int64", 1000, "1000 classes"),
        ([0, 1, 2, 3, 4, 10**12], "int64", 0, "1 values each"),
    ],
)
def test_targets_are_labels_or_values_of_any_shape(y, dtype, classes, text):
    data = from_arrays(X, y)
    assert data.y.dtype == dtype and data.y.tolist() == np.asarray(y).tolist()
    assert data.n_classes == classes and text in repr(data)
    assert data.subset([1, 4]).y.tolist() == np.asarray(y)[[1, 4]].tolist()


def test_normalisation_is_the_mean_and_deviation(monkeypatch):
    monkeypatch.setattr("corenet.datasets.dataset._BLOCK", 7)  # so that blocks of unequal size meet
    assert normalisation(X) == ((float(f"{(X / 255).mean():.4g}"),), (float(f"{(X / 255).std():.4g}"),))
    x = np.random.default_rng(0).normal(3, 2, (5, 4, 4, 3)).astype(np.float32)
    assert normalisation(x) == ((float(f"{x.mean():.4g}"),), (float(f"{x.std():.4g}"),))


@pytest.mark.parametrize("value", [0.0, 0.1, -7e-20])
def test_normalisation_of_equal_values_divides_by_1(value):
    assert normalisation(np.full((3, 5, 5, 1), value, np.float32))[1] == (1.0,)


@settings(deadline=None, max_examples=200)
@given(
    x=hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=3)),
    y=st.none() | hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)),
)
def test_any_arrays_make_a_dataset_or_a_data_error(x, y):
    try:
        data = from_arrays(x, y)
    except DataError as error:
        assert re.search("expected .*, got ", str(error), re.S)
    else:
        assert len(data) == len(x) and np.isfinite(data.x).all()


def test_importing_stays_cheap():
    code = "import sys, corenet.datasets; print(sorted({m.split('.')[0] for m in sys.modules}))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("numba", "PIL", "matplotlib", "multiprocessing"):
        assert f"'{heavy}'" not in modules
    assert sorted(datasets.__all__) == sorted(n for n in datasets.__all__ if hasattr(datasets, n))
