"""What is not drawn, because one process is no exact oracle for it or it cannot be combined, with the documents' words.

An entry without the name of a document says what this generator itself, or Keras, cannot do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.random.case import WHOLE_TENSORS, Case

Rule = Callable[[Case, int, Sequence[int]], bool]


def of(case: Case, size: int, nodes: Sequence[int]) -> list[str]:
    """The reasons why this case is not drawn for so many ranks, on nodes with so many each."""
    return [why for why, rule in RULES.items() if rule(case, size, nodes)]


def _degree_is_possible(case: Case, size: int, nodes: Sequence[int]) -> bool:
    if case.shard in ("", "world"):
        return True
    if len(set(nodes)) > 1:
        return False
    if case.shard == "node":
        return True
    degree, per_node = int(case.shard), nodes[0]
    return size % degree == 0 and (per_node % degree == 0 or degree % per_node == 0)


def _rounds_differently(case: Case) -> bool:
    """float32 noise is amplified where a tiny gradient is divided by its own size."""
    return case.floats != "float64" and case.optimizer in (
        "Lion", "Muon", "Adafactor", "Adadelta", "Adamax", "Adagrad", "Ftrl", "Lamb", "RMSprop", "Nadam", "AMSGrad"
    )  # fmt: skip


RULES: dict[str, Rule] = {
    # Documented differences.
    'keras-distribution.md: "BatchNormalization computes statistics of that part"; evaluate and predict are compared': (
        lambda c, n, _: c.norm == "bn" and (c.way != "distribution" or c.outputs > 1)
    ),
    'keras-distribution.md: "Gradients of embeddings are dense in steps compiled by XLA"': lambda c, n, _: (
        c.front == "embedding" and c.distribution and c.jit
    ),
    'keras-distribution.md: "rows are not counted: give every rank equally many" (loops of your own)': (
        lambda c, n, _: c.way == "distribution_batch" and bool(c.uneven)
    ),
    'memory.md: "k must divide the number of ranks", "where nodes have different numbers only world is possible"': (
        lambda c, n, nodes: not _degree_is_possible(c, n, nodes)
    ),
    'memory.md: "Lamb, Adafactor and Muon need whole tensors"': lambda c, n, _: (
        c.optimizer in WHOLE_TENSORS and bool(c.shard)
    ),
    'memory.md: "slots that begin with the weights (ScheduleFreeAdamW)": NotImplementedError': lambda c, n, _: (
        c.optimizer == "ScheduleFreeAdamW" and bool(c.shard)
    ),
    'recommenders.md: "clipping by norms", "Adafactor, Lamb and Muon": errors': lambda c, n, _: (
        c.front == "table" and (c.clip in ("clipnorm", "global_clipnorm") or c.optimizer in WHOLE_TENSORS)
    ),
    'recommenders.md: "op=hvd.Sum adds up the other gradients"': lambda c, n, _: c.front == "table" and c.op == "Sum",
    'recommenders.md: "compile(jit_compile=True) has no effect", in a tf.function an error': lambda c, n, _: (
        c.front == "table" and c.jit
    ),
    'recommenders.md: "All ranks make the same calls": predict and validation are those of all ranks': lambda c, n, _: (
        c.front == "table" and (c.validation or (c.way in ("distribution", "distribution_batch") and c.uneven != ""))
    ),
    'recommenders.md: "One process means this layer, or dense gradients" (a replicated table has slices)': (
        lambda c, n, _: c.front == "table" and c.distribution and c.placement in ("auto", "default_device")
    ),
    'keras-precision.md: "use one of them" (passes and accumulation)': lambda c, n, _: (
        c.passes > 1 and c.accumulation > 1
    ),
    'keras-precision.md: "IndexedSlices: ValueError; pass sparse_as_dense=True" (passes)': lambda c, n, _: (
        c.passes > 1 and c.ids and not c.sparse_as_dense
    ),
    'keras-precision.md: "accumulators are kept by smddp_tf; not saved"': lambda c, n, _: c.passes > 1 and c.saved,
    'keras-precision.md: "A file has rank 0\'s accumulators: save after whole updates"': lambda c, n, _: (
        c.saved and c.way == "optimizer" and not c.shard and c.steps * c.epochs % c.accumulation > 0
    ),
    'keras-data.md: "DistributedGradientTape cannot know which ranks are active", loops': lambda c, n, _: (
        c.way not in ("optimizer", "distribution") and c.uneven == "batches"
    ),
    "keras.Optimizer: predivide only with op=Average": lambda c, n, _: c.predivide and c.op == "Sum",
    'recommenders.md: "give every rank equally many batches" in evaluation': lambda c, n, _: (
        c.front == "table" and c.uneven == "batches" and not c.fits
    ),
    'BroadcastGlobalVariablesCallback: "A model that is built by its first batch: sent after that batch"': (
        lambda c, n, _: c.apart and c.lazy and c.way == "optimizer"
    ),
    # The options belong to other ways.
    "wrapping is of the optimizer": lambda c, n, _: (
        c.way in ("distribution", "distribution_batch", "tape")
        and (c.passes > 1 or c.averaged or (c.way != "tape" and (c.op == "Sum" or c.predivide or c.sparse_as_dense)))
    ),
    "no state is shared with the tape": lambda c, n, _: c.way == "tape" and bool(c.shard),
    "groups are of the optimizer and the tape": lambda c, n, _: c.groups and c.distribution,
    "averaged goes with passes": lambda c, n, _: c.averaged and c.passes == 1,
    "only fit has these": lambda c, n, _: (
        not c.fits
        and (c.steps_per_execution > 1 or c.data != "arrays" or c.validation or c.saved or c.epochs > 1 or c.shuffled)
    ),
    "Keras: takes whole calls of steps_per_execution from a generator, also beyond steps_per_epoch": lambda c, n, _: (
        c.data == "generator" and c.steps % c.steps_per_execution > 0
    ),
    "Keras: class_weight is not supported for Python generators": lambda c, n, _: (
        c.data == "generator" and c.weights == "class"
    ),
    "eager steps are not compiled, nor several": lambda c, n, _: c.eager and (c.jit or c.steps_per_execution > 1),
    "shuffled: two equal runs are compared, under keras.distribution": lambda c, n, _: (
        c.shuffled and (c.way != "distribution" or c.data not in ("arrays", "dataset") or c.saved)
    ),
    "the numbers of batches are those of one process under keras.distribution": lambda c, n, _: (
        c.distribution and c.uneven == "batches"
    ),
    "only ranks of fit have no batch, and a dataset knows its types": lambda c, n, _: (
        c.uneven == "batches" and c.data != "dataset"
    ),
    "uneven windows: the mean over the batches that they had": lambda c, n, _: (
        c.uneven == "batches" and ((c.passes > 1 and not c.averaged) or c.accumulation > 1)
    ),
    "uneven and local weights": lambda c, n, _: c.uneven == "batches" and c.front == "table",
    "EMA and decay in updates only": lambda c, n, _: c.passes > 1 and (c.ema or c.decay or c.scaled),
    "validation is compared under keras.distribution": lambda c, n, _: c.validation and c.way != "distribution",
    "weights are broadcast once they exist": lambda c, n, _: c.apart and c.lazy and not c.fits,
    "loaded models have their variables": lambda c, n, _: c.saved and (c.style == "subclassed" or c.lazy or c.scaled),
    # What can be built.
    "a Sequential has one input and one output": lambda c, n, _: (
        c.style == "sequential" and (c.side or c.outputs > 1 or c.front == "table" or c.masked == "loss")
    ),
    "a functional model is built": lambda c, n, _: c.style == "functional" and c.lazy,
    "masks are of words and recurrent layers": lambda c, n, _: (
        bool(c.masked) and c.front not in ("lstm", "gru", "embedding")
    ),
    "a mask of the loss has no joined features, and no part of it is cut out": lambda c, n, _: (
        c.masked == "loss"
        and (c.side or bool(c.norm) or "one_number" in c.losses or "one_per_row" in c.losses or bool(c.weights))
    ),
    "of statistics of unequal parts the penalty of activations has no oracle": lambda c, n, _: (
        c.norm == "syncbn" and c.penalty in ("activity", "add_loss") and bool(c.uneven)
    ),
    "one row has no statistics": lambda c, n, _: (
        c.norm == "syncbn" and (c.batch < 2 or (c.uneven == "rows" and c.batch < 3))
    ),
    "classes are of a model with one output": lambda c, n, _: (
        c.weights == "class" and (c.outputs > 1 or not c.losses.startswith("sparse") or c.way in ("tape", "apply"))
    ),
    "a loss that is one number has no sample weights": lambda c, n, _: (
        (bool(c.weights) and "one_number" in c.losses) or (bool(c.reduction) and "one_" in c.losses)
    ),
    "a mean with sample weights needs some": lambda c, n, _: (
        c.reduction == "mean_with_sample_weight" and c.weights not in ("sample",)
    ),
    "XLA takes seconds": lambda c, n, _: c.jit and (c.front != "dense" or c.floats == "mixed"),
    # What is no property of the ranks.
    "float32 noise is amplified": lambda c, n, _: _rounds_differently(c),
    "Keras: a loss scale of float64 gradients is float32": lambda c, n, _: c.scaled and c.floats == "mixed",
    "Keras: ScheduleFreeAdamW has its own averages, and begins with 0 where it is built in a graph": lambda c, n, _: (
        c.optimizer == "ScheduleFreeAdamW"
        and (c.lazy or c.ema or c.schedule or c.accumulation > 1 or c.decay or c.passes > 1)
    ),
    # Keras's `fit` builds an optimizer in a graph of its own, in which the copy of the weights is lost; with steps that
    # are watched the ranks have built it before.
    "Keras: ScheduleFreeAdamW begins with 0 in one process, with the weights where rows are uneven": lambda c, n, _: (
        c.optimizer == "ScheduleFreeAdamW" and c.way == "distribution" and c.uneven == "rows"
    ),
    "Keras: gradients of words and of functions of whole tensors": lambda c, n, _: (
        c.optimizer in WHOLE_TENSORS and c.ids
    ),
}
