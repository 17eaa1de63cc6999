"""curves.png: loss and accuracy over the epochs, in training and on held-out data, side by side.

Matplotlib is used without pyplot: no window, no state shared with a program that plots too.
"""

from __future__ import annotations

import io
from typing import Any

from ..errors import MissingExtraError
from ..train import History

TRAINING, HELD_OUT = "#4c72b0", "#c44e52"  # a blue and a red that differ in lightness too


def draw_curves(history: History, title: str, held_out: str = "validation") -> bytes:
    """The curves of a fit as a PNG file's content. Raises MissingExtraError without Matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        fix = "Install it: pip install 'corenet[plot]'"
        raise MissingExtraError("curves need Matplotlib", fix=fix) from None
    figure = Figure(figsize=(10, 4.2), dpi=120, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    figure.suptitle(title)
    pictures = [("loss", "mean loss", 1), ("accuracy", "accuracy in %", 100)]
    pictures = [picture for picture in pictures if all(picture[0] in record for record in history.epochs)]
    frames = figure.subplots(1, len(pictures), squeeze=False)[0]
    for axes, (quantity, label, scale) in zip(frames, pictures, strict=True):
        _draw(axes, history, quantity, label, held_out, scale)
    content = io.BytesIO()
    canvas.print_png(content)
    return content.getvalue()


def _draw(axes: Any, history: History, quantity: str, label: str, held_out: str, scale: float) -> None:
    from matplotlib.ticker import MaxNLocator

    epochs = history["epoch"]
    curves = [("training, as it learns", quantity, TRAINING, "o"), (held_out, f"val_{quantity}", HELD_OUT, "s")]
    for name, key, colour, marker in curves:
        if all(key in record for record in history.epochs):
            values = [scale * value for value in history[key]]
            dots = marker if len(epochs) <= 40 else ""
            last = f"{values[-1]:.1f} %" if scale == 100 else f"{values[-1]:.3f}"
            axes.plot(epochs, values, label=f"{name}: {last} at the end", color=colour, marker=dots, markersize=4)
    axes.set(xlabel="epoch", ylabel=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
