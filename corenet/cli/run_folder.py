"""The folder a run leaves: complete or not at all.

DIR/.unfinished-…/      made before training, which shows that the folder can be written; files are written here
DIR/model.safetensors   moved here when all of them are written
    history.json
    curves.png
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from datetime import datetime
from pathlib import Path

from ..errors import ConfigError, FileError
from .options import MODEL_FILE

HISTORY_FILE, CURVES_FILE = "history.json", "curves.png"
FILES = (MODEL_FILE, HISTORY_FILE, CURVES_FILE)


class RunFolder:
    """A folder for a run, in a `with` block: `staging` takes the files, `publish` moves them to their place.

    What was made for it is removed again if `publish` is not reached.
    """

    def __init__(self, path: Path, *, overwrite: bool = False):
        self.path = path
        earlier = [name for name in FILES if (path / name).exists()]
        if earlier and not overwrite:
            fix = "Choose another --out, or replace that run with --overwrite"
            raise ConfigError(f"{path} holds an earlier run", got=", ".join(earlier), fix=fix)
        self._made = [folder for folder in (path, *path.parents) if not folder.exists()]
        try:
            path.mkdir(parents=True, exist_ok=True)
            self.staging = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=path))
        except BaseException as error:
            self._remove_made()
            if not isinstance(error, OSError):
                raise
            what = f"cannot write the run folder {path}"
            raise FileError(what, got=error.strerror or str(error), fix="Choose another --out") from None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *exception: object) -> None:
        shutil.rmtree(self.staging, ignore_errors=True)
        self._remove_made()

    def publish(self) -> None:
        """Move the files from `staging` to their place, over those of an earlier run."""
        try:
            for name in FILES:
                if (self.staging / name).exists():
                    (self.staging / name).replace(self.path / name)
                else:
                    (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            raise FileError(f"cannot write {self.path}", got=error.strerror or str(error)) from None

    def _remove_made(self) -> None:
        """Remove the folders made for this run that are empty."""
        with contextlib.suppress(OSError):
            for folder in self._made:
                folder.rmdir()


def default_folder(data: str, model: str) -> Path:
    """runs/<data set>-<model>-<time>, a name that is not taken."""
    name = f"{data}-{model}-{datetime.now():%Y%m%d-%H%M%S}"
    path, number = Path("runs", name), 2
    while path.exists():
        path, number = Path("runs", f"{name}-{number}"), number + 1
    return path


def point_latest(folder: Path) -> None:
    """Let the link `latest` beside a run's folder lead to it; where links are impossible there is none."""
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory(prefix=".link-", dir=folder.parent) as place:
        link = Path(place, "latest")
        link.symlink_to(folder.name, target_is_directory=True)
        link.replace(folder.parent / "latest")  # in one step: another run may do the same
