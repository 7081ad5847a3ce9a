"""UnevenBatchesCallback: what `fit` does when ranks have different numbers of batches."""

from __future__ import annotations

from smddp_tf.keras._backend import keras, needs_keras_3

JOIN, SHORTEST, ERROR, OFF = MODES = ("join", "shortest", "error", "off")


class UnevenBatchesCallback(keras.callbacks.Callback):
    """Chooses what happens when ranks have different numbers of batches in an epoch.

    Without it `fit` behaves as with `mode="join"`, if the optimizer is wrapped by `hvd.DistributedOptimizer`: no data
    is lost and nothing waits for ever. Ranks that tell equal numbers of batches (arrays, datasets and sequences of
    known length) train as if nothing of this existed, whatever the mode. Pass the same callback on all ranks.

    - `"join"`: an epoch lasts as long as any rank has data. A rank that has run out takes part with gradients of zero,
      and the mean is taken over the active ranks (those that still have data). Its metrics and its layers' statistics
      stay as they are; its callbacks see the steps of the longest rank, with its own last metrics.
    - `"shortest"`: an epoch ends for all when the first rank runs out.
    - `"error"`: `ValueError` on every rank, before training if the numbers are known, else at the step where the first
      rank has run out.
    - `"off"`: no look at the data at all. Ranks wait for each other if they differ. Saves the (small) price of watching
      data of unknown length, such as generators, that are known to be equally long.

    Example:

    >>> model.fit(dataset, callbacks=[hvd.callbacks.UnevenBatchesCallback("shortest")])

    Args:
        mode: String, one of the above. Defaults to `"join"`.

    Raises:
        ValueError: If `mode` is none of them.
    """

    def __init__(self, mode: str = "join") -> None:
        super().__init__()
        needs_keras_3("UnevenBatchesCallback")
        if mode not in MODES:
            raise ValueError(f"`mode` must be one of {', '.join(map(repr, MODES))}. Received: mode={mode!r}.")
        self.uneven_mode = mode
