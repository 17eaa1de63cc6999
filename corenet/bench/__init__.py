"""Measuring corenet on this machine: what `corenet bench` runs.

peaks     what the machine could do at best: multiply-adds, and bytes from memory
rounds    contestants measured in turn; medians and spread
layers    which layers: those of the suite's nets, and some more
passes    a layer's forward pass and gradients, as the engine plans them, ready to run
kernels   these passes, checked and timed
steps     whole training steps and predictions, by the Trainer
peers     where a checkout keeps what runs other libraries, and how they are spoken to
document  a suite's result as JSON, written and read; two of them compared

What runs other libraries is in `bench/` of a checkout, not here.
"""
