"""Summaries of training, as files for TensorBoard and spreadsheets.

    with hl.summary.Writer("runs/1") as summary:
        summary.graph(step, state, batch)                      # the program, folded by hl.named_scope
        for number, batch in enumerate(batches):
            state, loss = step(state, batch)
            summary.scalar("loss", loss, number)
            summary.histograms("weights", state.params, number)

Then `tensorboard --logdir runs`. Inside of compiled functions the functions of this module write to the writer that is
current while the program runs:

    @hl.jit
    def step(state, batch):
        ...
        hl.summary.scalar("gradient norm", norm, state.step)

    with summary.as_default():
        state = step(state, batch)

Event files are written with the package `tensorboard` (`pip install 'hloom[train]'`). `Writer(folder, events=False,
lines="jsonl")` needs no package: scalars become lines of JSON or CSV.
"""

from __future__ import annotations

from hloom.summary.functions import audio, current_writer, figure, histogram, histograms, image, scalar, scalars, text
from hloom.summary.writer import SummaryWarning, Writer

__all__ = [
    "SummaryWarning", "Writer", "audio", "current_writer", "figure", "histogram", "histograms", "image", "scalar",
    "scalars", "text",
]  # fmt: skip
__dir__ = __all__.copy
