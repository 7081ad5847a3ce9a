"""The guard of one `fit`, which keeps the ranks together: its state, and the two callbacks around the user's.

They

- agree on what the ranks can know before the first batch, and let `uneven.py` run the epochs if data differ;
- make `stop_training` on one rank stop all ranks, at the same step;
- repair what callbacks that saw one rank's metrics did to the learning rate or the weights, with a warning;
- warn if the ranks began with different weights.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from smddp_tf.collectives.rank_facts import facts_of_ranks, numbers_of_ranks, objects_of_ranks, warn_on_rank_zero
from smddp_tf.data.first_epoch import FirstEpoch
from smddp_tf.keras._backend import keras
from smddp_tf.keras.callbacks.uneven_batches import JOIN
from smddp_tf.keras.data_parallel.layer_states import agree_on_states
from smddp_tf.keras.fit import equal_state
from smddp_tf.keras.fit.epoch_data import EpochData, UnevenEpochs, data_of
from smddp_tf.keras.fit.plan import TrainerPlan
from smddp_tf.keras.fit.stopping import Stopping, agreed, facts_of, looks_at_batches, name_learning_rate
from smddp_tf.keras.fit.uneven import StepsPlan, plan_for
from smddp_tf.keras.optimizer import same_batches
from smddp_tf.keras.roles.step_hooks import hooks_of

_NAME = "model.fit"  # what users see of these requests when a rank does not come
_BEGINS = f"{_NAME} (before the first batch)"
_STEP = ("train_step", "compute_loss", "compute_metrics")


class Guard:
    """The state of one guarded `fit`.

    Attributes:
        first: callbacks that come before the user's.
        last: callbacks that come after them.
        votes_last: whether one of these asks the other ranks after each batch.
    """

    def __init__(self, plan: TrainerPlan) -> None:
        callbacks, model = plan.callbacks, plan.model
        self._plan, self.model = plan, model
        self._facts = facts_of(callbacks)  # after `agree`: of all ranks
        self._stopping = Stopping(model, callbacks)
        # For the sake of these Keras waits for each batch's metrics; later versions mark those for which it need not.
        waited_for = [c for c in callbacks if looks_at_batches(c) and not getattr(c, "async_safe", False)]
        # After all callbacks, where any of them may itself talk to the other ranks: all must do so in one order.
        self.votes_last = self._stopping.asks or bool(waited_for)
        self._agreed = self._checked_start = False
        self._epochs_begun = 0
        self._first_epoch = FirstEpoch(plan.arguments["x"])
        self._steps = contextlib.ExitStack()  # inside, our steps are installed
        self._function: Any = None
        self._run: Any = self._run_and_vote  # what Keras calls as the train function; one object, to be recognised
        first = keras.callbacks.LambdaCallback(
            on_train_begin=lambda logs: self.agree(),
            on_epoch_begin=lambda epoch, logs: self.begin_epoch(epoch),
            on_train_batch_begin=lambda batch, logs: self._begin_batch(batch),
            on_epoch_end=lambda epoch, logs: agree_on_states(model),
            on_test_begin=lambda logs: hooks_of(model, "test").samples.assign(0.0),
            on_test_end=lambda logs: compare_evaluated(model, data_of(getattr(model, "_eval_epoch_iterator", None))),
        )
        # Only where it is needed: a callback at the end of each batch makes Keras wait for each batch's metrics.
        end_batch = {"on_train_batch_end": lambda batch, logs: self._stopping.end_batch()} if self.votes_last else {}
        last = keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: self.begin_reading(),
            on_epoch_end=lambda epoch, logs: self.end_epoch(),
            on_train_end=lambda logs: self.end_training(),
            **end_batch,
        )
        self.first, self.last = [first], [last]

    # --- before training ---

    def agree(self) -> None:
        """One exchange of what every rank knows, and the conclusions from it."""
        data = self._data
        supply = data.supply(self.model.steps_per_execution)
        facts = {
            "supply": supply, "data": data.epochs.numbers(), "epochs": self._plan.epochs, "mode": self._plan.mode,
            "stopping": self._stopping.asks, "callbacks": self._facts,
        }  # fmt: skip
        self._agreed = True
        of_ranks = facts_of_ranks(facts, _BEGINS, "`fit` could not begin, because it")
        self._facts = agreed([facts["callbacks"] for facts in of_ranks])
        _check_equal(of_ranks, "epochs", "the same `initial_epoch` and `epochs` in `fit`")
        _check_equal(of_ranks, "mode", "the same UnevenBatchesCallback, or none,")
        name_learning_rate(self._plan.callbacks, self._facts.write_rate)
        self._stopping.asks = any(facts["stopping"] for facts in of_ranks)
        if all(facts["supply"].steps_per_epoch is None for facts in of_ranks):
            data.epochs.begin_fit(of_ranks[0]["data"])
        if self._plan.distribution is not None:
            _build_by_tracing(self.model, data.dataset)
        steps = plan_for(self._plan.mode, [facts["supply"] for facts in of_ranks])
        self._install_steps(steps)
        if steps is not None:
            uneven = UnevenEpochs(self.model, data, supply, steps, self._plan.mode)
            data.uneven = uneven
            if self._votes_alone():
                uneven.end_step = self._stopping.end_batch
            if steps.watched:
                self._run = uneven
        self.intercept_function()

    def report(self, error: BaseException) -> None:
        """Tells ranks that wait in `agree` that this one will not come."""
        if not self._agreed:
            self._agreed = True
            objects_of_ranks({"error": "".join(traceback.format_exception_only(type(error), error)).strip()}, _BEGINS)

    @property
    def _data(self) -> EpochData:
        """Returns the data of Keras's iterator, which exists when the first callback is called."""
        assert self._plan.data is not None
        return self._plan.data

    def _install_steps(self, steps: StepsPlan | None) -> None:
        for kind in ("train", "test"):
            hooks = hooks_of(self.model, kind)
            hooks.reset()
            of_step = self._plan.step_kind(kind, steps is not None and steps.watched)
            if self._facts.counts_samples or of_step.of_pairs or of_step.is_global:
                self._steps.enter_context(hooks.installed_in(self.model, of_step))

    def close(self) -> None:
        """Leaves the model as if nothing had been there."""
        hooks_of(self.model, "train").release(self.model, self._run, self._function)
        self._steps.close()
        if self._plan.data is not None:
            self._plan.data.end_fit()
            self._plan.data = None

    # --- during training ---

    def intercept_function(self) -> None:
        """Intercepts the train function where that is needed, also where it was made again."""
        uneven = self._data.uneven
        if (uneven is not None and uneven.watched) or self._votes_alone():
            self._function = hooks_of(self.model, "train").intercept(self.model, self._run, self._function)
            if uneven is not None:
                uneven.function = self._function

    def _votes_alone(self) -> bool:
        return self._stopping.asks and not self.votes_last

    def _run_and_vote(self, iterator: Any) -> Any:
        logs = self._function(iterator)
        self._stopping.end_batch()  # has no callback that could object, hence none to wait for
        return logs

    def begin_epoch(self, epoch: int) -> None:
        if self._epochs_begun == 0:
            epochs = numbers_of_ranks([epoch], f"{_NAME} (which epoch is the first)")[:, 0]
            if (epochs != epochs[0]).any():
                raise ValueError(
                    "All ranks must begin with the same epoch. "
                    f"Received: epochs {epochs.tolist()}, by rank. Restore the same backup on all ranks."
                )
        self._epochs_begun += 1
        hooks_of(self.model, "train").samples.assign(0.0)
        self._data.begin_epoch(epoch)

    def begin_reading(self) -> None:
        """After the user's callbacks, which may have set the learning rate on one rank."""
        self._data.epochs.begin_reading()
        if self._epochs_begun == 1:  # after callbacks that set the weights with which optimizers begin
            same_batches.begin()
            uneven = self._data.uneven
            make_variables(self.model, self._data.batch_spec, must=uneven is not None and uneven.watched)
        if rates := equal_state.rates_of(self.model):
            of_ranks = numbers_of_ranks(rates, f"{_NAME} (learning rates of an epoch)")
            equal_state.take_rates(self.model, of_ranks, "began")

    def _begin_batch(self, batch: int) -> None:
        if (digests := self._data.digests) is not None:
            digests.begin_batch(batch)
        if batch > 0 or self._epochs_begun > 1:
            self.check_start()
        self.intercept_function()

    def check_start(self, goes_on: bool = True) -> None:
        """After the first batch: there all variables exist, and code of the user's that broadcasts has done so.

        Args:
            goes_on: whether another step follows.
        """
        if not self._checked_start:
            self._checked_start = True
            if not self._facts.broadcasts:
                equal_state.look_at_start(self.model)
        if goes_on:
            equal_state.warn_if_different(self.model)

    def end_epoch(self) -> None:
        self.check_start(goes_on=self.model.steps_per_execution > 1)
        if self._epochs_begun == 1 and self._plan.distribution is None:
            same_batches.warn_if_same()
        rates = equal_state.rates_of(self.model)
        facts = [float(self._stopping.is_requested()), float(self._first_epoch.bytes_read()), *rates]
        of_ranks = numbers_of_ranks(facts, f"{_NAME} (end of an epoch)")
        if of_ranks[:, 0].any():
            self.model.stop_training = True
        if (digests := self._data.digests) is not None:
            digests.compare(self._plan.mode == JOIN and not (self._data.steps_per_epoch or self.model.stop_training))
        if self._epochs_begun == 1:
            self._first_epoch.warn_if_all_read_all(of_ranks[:, 1].tolist())
        if equal_state.take_rates(self.model, of_ranks[:, 2:], "ended") or self._facts.set_state:
            equal_state.take_weights(
                self.model,
                "The ranks ended an epoch with different weights, because a callback has set the learning rate or "
                "weights on some ranks only; rank 0's weights are taken. Give all ranks the same callbacks.",
            )

    def end_training(self) -> None:
        """EarlyStopping may have restored the weights of another epoch on each rank."""
        if self._facts.restores_weights:
            equal_state.take_weights(
                self.model,
                "A callback restored different weights on different ranks; rank 0's are taken. Put "
                "hvd.callbacks.MetricAverageCallback() before EarlyStopping, so that it decides the same on all.",
            )


def _check_equal(of_ranks: Sequence[dict[str, Any]], fact: str, what: str) -> None:
    values = [facts[fact] for facts in of_ranks]
    if any(value != values[0] for value in values):
        raise ValueError(f"All ranks need {what}. Received: {fact}={values}, by rank.")


def compare_evaluated(model: keras.Model, data: EpochData | None) -> None:
    """Under a distribution: compares the batches that the ranks have evaluated; all call it together."""
    if data is not None and data.digests is not None:
        data.digests.compare(not data.steps_per_epoch and not model.stop_evaluating)


def _build_by_tracing(model: keras.Model, dataset: tf.data.Dataset) -> None:
    """Makes the variables of layers, metrics and optimizers that a train step makes, without computing a step.

    Where tracing fails rank 0 warns: the first step, if it is run eagerly, computes with each rank's own weights.
    """
    if all(layer.built for layer in model._flatten_layers()):
        return
    convert = getattr(model, "_autoconvert_optionals", lambda step: step)
    try:
        tf.function(convert(model.train_step), autograph=False).get_concrete_function(dataset.element_spec)
    except Exception as error:
        warn_on_rank_zero(
            "The model could not be built before its first step, which therefore computes with each rank's own "
            f"weights. Build the model before `fit`. Received: {type(error).__name__}: {error}"
        )


def make_variables(model: keras.Model, batch: Any, must: bool) -> None:
    """Makes the variables that the first step would make and Keras can make from shapes alone.

    TensorFlow traces a function twice whose first trace makes variables, as those of metrics and of an optimizer are,
    and traces are most of the time before the first step. Without `must`, only of models that are built and whose steps
    are Keras's own: other steps may use an optimizer in their own way.

    Args:
        model: compiled.
        batch: the `tf.TensorSpec` of a batch's tensors, in their structure.
        must: steps without data need the variables, which those do not make.
    """
    is_own = any(getattr(type(model), name) is not getattr(keras.Model, name) for name in _STEP)
    is_plain = not is_own and not model.run_eagerly and all(layer.built for layer in model._flatten_layers())
    if (must or is_plain) and all(isinstance(leaf, tf.TensorSpec) for leaf in tf.nest.flatten(batch)):
        with contextlib.suppress(Exception):  # where something is wrong with the model, its first step says so
            model._symbolic_build(data_batch=batch)
