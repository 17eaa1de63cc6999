"""Many processes, one training step: cores, shared memory, barrier, channel, workers. Nothing here knows a layer."""
