"""The commands, their options and their help; each imports its own module when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import __version__
from .bench_app import bench

app = typer.Typer(
    name="corenet",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A run folder of corenet train, or a model file.")]
Workers = Annotated[str, typer.Option(metavar="auto|N", help="Worker processes; auto: one for each usable core.")]
Threads = Annotated[int, typer.Option(metavar="N", help="Threads of each worker.")]
ShareCores = Annotated[bool, typer.Option("--share-cores", help="Allow more threads than usable cores.")]
Kernels = Annotated[str, typer.Option(metavar="auto|numba|numpy|c", help="Which implementation computes.")]


def command() -> Any:
    """The whole command line as Click knows it."""
    return typer.main.get_command(app)


def _version(asked: bool) -> None:
    if asked:
        print(f"corenet {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train small convolutional nets on the cores of this machine."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def train(
    context: typer.Context,
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET",
            help="digits, fashion-mnist, fashion-mnist-subset, or a folder with the four IDX files of a data set.",
        ),
    ] = "fashion-mnist-subset",
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="By default keras_mnist for 28×28 grey images, digits_cnn for 8×8."),
    ] = None,
    epochs: Annotated[int, typer.Option(metavar="N", help="Passes over the training images.")] = 8,
    batch_size: Annotated[int, typer.Option(metavar="N", help="Images per step.")] = 64,
    optimizer: Annotated[str, typer.Option(metavar="adam|sgd", help="sgd has Nesterov momentum 0.9.")] = "adam",
    lr: Annotated[
        float | None,
        typer.Option(metavar="RATE", help="Learning rate, falling to 0 along a cosine [default: adam 0.003, sgd 0.05]"),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of initial parameters, order and dropout.")] = 0,
    workers: Workers = "auto",
    threads: Threads = 1,
    share_cores: ShareCores = False,
    chunk: Annotated[
        str, typer.Option(metavar="auto|N", help="Images that go through the net together; part of the arithmetic.")
    ] = "auto",
    kernels: Kernels = "auto",
    precision: Annotated[
        str, typer.Option(metavar="float32|bf16", help="Of the operands of matrix products; sums are float32.")
    ] = "float32",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Run folder [default: runs/DATASET-MODEL-TIME]")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier run in --out and --checkpoint.")
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep there, after each epoch, what --resume goes on from.")
    ] = None,
    every: Annotated[int | None, typer.Option(metavar="N", help="Also after every N steps.")] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Go on with the run whose --checkpoint that was, to the same bits."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Train a model and keep it in a run folder.

    Without arguments: a small net on the part of Fashion-MNIST that comes with corenet, on all usable cores.

    The test set is evaluated after each epoch, and chooses nothing: the last epoch's model is kept, as
    model.safetensors in the run folder, with history.json and, if Matplotlib is installed, curves.png.

    In the JSON result, train_accuracy is the final model's accuracy on the training images, dropout off;
    images_per_second counts training only, seconds_total and seconds_to_first_step begin with the process.
    """
    from .settings import Settings
    from .train import train

    settings = Settings(
        dataset=dataset,
        model=model,
        epochs=epochs,
        batch_size=batch_size,
        optimizer=optimizer,
        lr=lr,
        workers=workers,
        threads=threads,
        chunk=chunk,
        seed=seed,
        kernels=kernels,
        precision=precision,
        share_cores=share_cores,
        out=out,
        overwrite=overwrite,
        checkpoint=checkpoint,
        every=every,
        resume=resume,
        json=json,
    )
    if resume is not None:
        sources = {name: context.get_parameter_source(name) for name in context.params}
        settings = settings.resumed({name for name, source in sources.items() if source and source.name != "DEFAULT"})
    train(settings)


@app.command()
def evaluate(
    model: Model,
    dataset: Annotated[
        str | None,
        typer.Argument(metavar="DATASET", help="As for train; by default the one the model was trained on."),
    ] = None,
    workers: Workers = "auto",
    threads: Threads = 1,
    share_cores: ShareCores = False,
    kernels: Kernels = "auto",
    json: AsJson = False,
) -> None:
    """Loss and accuracy on a data set's test part."""
    from .evaluate import evaluate

    evaluate(model, dataset, workers=workers, threads=threads, share_cores=share_cores, kernels=kernels, json=json)


@app.command()
def predict(
    model: Model,
    images: Annotated[
        list[Path], typer.Argument(metavar="IMAGE...", help="PNG, JPEG, .npy or IDX, of the size the net takes.")
    ],
    top: Annotated[int, typer.Option(metavar="N", help="Classes to name for each image.")] = 3,
    index: Annotated[int, typer.Option(metavar="N", help="Which image of an IDX file, from 0.")] = 0,
    kernels: Kernels = "auto",
    json: AsJson = False,
) -> None:
    """The most probable classes of images."""
    from .predict import predict

    predict(model, images, top=top, index=index, kernels=kernels, json=json)


@app.command()
def info(json: AsJson = False) -> None:
    """What runs on this machine, and why."""
    from .info import info

    info(json=json)


app.add_typer(bench, name="bench")
