"""corenet bench: its subcommands, their options and their help; each imports its own module when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

bench = typer.Typer(rich_markup_mode=None)

Peers = Annotated[bool, typer.Option("--peers", help="Measure PyTorch, too, in turn; needs a checkout of corenet.")]
Quick = Annotated[bool, typer.Option("--quick", help="A few lines, a few rounds: half a minute without peers.")]
Rounds = Annotated[int | None, typer.Option(metavar="N", help="Repetitions [default: 5; with --quick 3]")]
JsonFile = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write the result there, too; - for standard output only.")
]


@bench.callback(invoke_without_command=True)
def main(context: typer.Context) -> None:
    """How fast corenet is on this machine.

    PyTorch is measured beside it if that is asked. The machine's own peaks come first: multiply-adds, and bytes from
    memory.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


@bench.command()
def kernels(
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Layers of this net, or whose name has this text; may be repeated."),
    ] = None,
    batch: Annotated[int, typer.Option(metavar="N", help="Images that go through a layer, by chunks.")] = 128,
    peers: Peers = False,
    quick: Quick = False,
    rounds: Rounds = None,
    json: JsonFile = None,
) -> None:
    """Layers: GFLOP/s and % of the peak.

    Forward pass and both gradients of each layer of the suite, on one core, as the engine plans them. They are compared
    with their NumPy definition before they are timed.
    """
    from .bench import kernels

    kernels(only or [], batch=batch, peers=peers, quick=quick, rounds=rounds, json=json)


@bench.command()
def step(
    only: Annotated[
        list[str] | None, typer.Option(metavar="NET", help="This net of the suite; may be repeated.")
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(metavar="N", help="Images of a step; may be repeated [default: 128 and 32]")
    ] = None,
    peers: Peers = False,
    quick: Quick = False,
    rounds: Rounds = None,
    json: JsonFile = None,
) -> None:
    """Nets: images a second.

    Whole training steps and predictions of the suite's nets, on one core and on all.
    """
    from .bench import step

    step(only or [], batches=batch, peers=peers, quick=quick, rounds=rounds, json=json)


@bench.command()
def compare(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A result that was written with --json FILE.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Another of the same suite.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Two results, line by line: new ÷ old."""
    from .bench import compare

    compare(old, new, json=json)
