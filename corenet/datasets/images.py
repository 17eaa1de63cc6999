"""One image from a file, in the shape a net takes, and back.

Nothing is resized or cropped on the way: a net trained on 28×28 sees another distribution in a shrunk photo, and the
person who has the photo should decide how it is cut. Pillow is needed for anything but `.npy`, and imported only then.
"""

import io
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, FileError, MissingExtraError, ShapeError
from .claims import is_page, regular_file, wrong_kind
from .npz import parse_npy

# What people have images in. Pillow reads more, some of it through other programs: PostScript through Ghostscript.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
MAX_BYTES = 64 << 20  # of a file; a net takes small images
MAX_TILE = 1 << 22  # pixels of a TIFF's tile, which is unpacked as a whole, however small the image
_MODES = {1: "L", 3: "RGB"}  # Pillow's names for grey and colour, 8 bits a channel


def read_image(path: str | os.PathLike[str], shape: tuple[int, int, int]) -> NDArray[Any]:
    """Read an image of exactly `shape` (h, w, c): uint8, or float32 if a .npy holds that; ShapeError, FileError.

    Grey for c = 1, RGB for c = 3; other c from .npy only. MissingExtraError without Pillow, DataError for NaN.
    """
    path = Path(path)
    return _read_npy(path, shape) if path.suffix.lower() == ".npy" else _read_pillow(path, shape)


def _content(path: Path, wanted: str) -> bytes:
    size = regular_file(path, wanted)
    if size > MAX_BYTES:
        raise FileError(str(path), expected=f"at most {MAX_BYTES:,} bytes", got=f"{size:,}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(str(path), expected=wanted, got=f"'{error.strerror or error}'") from None
    if not content or is_page(content[:64]):
        raise wrong_kind(path, wanted, content[:64])
    return content


def save_image(path: str | os.PathLike[str], array: NDArray[Any]) -> None:
    """Save (h, w), (h, w, 1) or (h, w, 3) uint8 in the format of the file's ending; DataError, FileError."""
    path, array = Path(path), np.asarray(array)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.dtype != np.uint8 or not array.size or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)):
        raise DataError(
            f"cannot save {path}",
            expected="(h, w), (h, w, 1) or (h, w, 3) uint8",
            got=f"{array.dtype} of shape {array.shape}",
        )
    image = _pillow()
    try:
        image.fromarray(np.ascontiguousarray(array)).save(path)
    except OSError as error:  # no folder, no permission, no space
        raise FileError(f"cannot save {path}", got=f"'{error.strerror or error}'") from None
    except (ValueError, KeyError) as error:  # an ending Pillow does not know
        fix = f"Endings that work: {', '.join('.' + f.lower() for f in FORMATS)}."
        raise FileError(f"cannot save {path}", got=f"'{error}'", fix=fix) from None


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        fix = "Install it: pip install 'corenet[images]'. Without it, .npy files can be read."
        raise MissingExtraError("image files need Pillow", fix=fix) from None
    return Image


def _read_pillow(path: Path, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    h, w, c = shape
    if c not in _MODES:
        fix = "Save it with np.save as .npy."
        raise ShapeError(str(path), expected=f"{c} channels", got="an image file, which has 1 or 3", fix=fix)
    pillow = _pillow()
    wanted = f"an image ({', '.join(FORMATS)})"
    content = _content(path, wanted)
    # Opening reads the header only. Whatever a damaged file makes Pillow raise (OSError, SyntaxError, struct.error,
    # ZeroDivisionError, ...), it means the same to the user; its size warning is an error here anyway, below.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # From memory: of a file, Pillow asks for as many bytes as a damaged length says, and Python prepares them.
            image = pillow.open(io.BytesIO(content), formats=FORMATS)
    except pillow.UnidentifiedImageError:
        fix = "It is of another kind, or truncated or damaged where it begins."
        raise FileError(str(path), expected=wanted, got=f"first bytes {content[:4].hex(' ')}", fix=fix) from None
    except Exception as error:
        raise FileError(str(path), expected=wanted, got=f"'{error}'") from None
    with image:
        if image.size != (w, h):  # before decoding: so no small file can unpack to a huge image
            got_w, got_h = image.size
            raise ShapeError(
                str(path),
                expected=f"{w}×{h} pixels (width × height), as the net takes",
                got=f"{got_w}×{got_h}",
                fix=f"Crop or scale it to {w}×{h} in the way the training images were made.",
            )
        if image.mode[0] in "IF":  # converting would cut values at 255 instead of scaling them
            fix = "Save it with 8 bits, scaled as the training images were."
            raise FileError(str(path), expected="8 bits a channel", got=f"mode {image.mode}", fix=fix)
        try:
            if image.format == "TIFF":
                tile = [int(image.tag_v2.get(tag, 0)) for tag in (322, 323)]  # width and length
                if min(tile) < 0 or tile[0] * tile[1] > MAX_TILE:
                    raise ValueError(f"tiles of {tile[0]} × {tile[1]} pixels")
            # A palette may hide transparency, which converts silently only by way of RGBA.
            whole = image.convert("RGBA") if image.mode == "P" else image
            pixels = np.array(whole.convert(_MODES[c]), np.uint8)  # a copy: Pillow's own is read-only
        except Exception as error:
            fix = "The file is damaged or truncated."
            raise FileError(str(path), expected="a sound image", got=f"'{error}'", fix=fix) from None
    return pixels.reshape(shape)


def _read_npy(path: Path, shape: tuple[int, int, int]) -> NDArray[Any]:
    wanted = "one array saved by np.save"
    content = _content(path, wanted)
    try:
        array = parse_npy(content)
    except Exception as error:  # a damaged header can raise nearly anything, as above
        raise FileError(str(path), expected=wanted, got=f"'{error}'"[:200]) from None
    if array.dtype not in (np.uint8, np.float32):
        fix = "Save it with x.astype(...), in the values the net was trained on."
        raise FileError(str(path), expected="uint8 or float32", got=array.dtype, fix=fix)
    if array.shape != shape and not (shape[2] == 1 and array.shape == shape[:2]):
        fix = "Crop or scale it in the way the training images were made; channels come last."
        raise ShapeError(str(path), expected=f"shape {tuple(shape)}, as the net takes", got=array.shape, fix=fix)
    pixels = np.array(array).reshape(shape)  # a copy: what was read cannot be written to
    if not np.isfinite(pixels).all():
        raise DataError(str(path), expected="finite values", got="NaN or infinity")
    return pixels
