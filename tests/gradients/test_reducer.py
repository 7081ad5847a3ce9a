"""How the gradients of a tape become plans, and what happens when the ranks' plans differ."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.reasons import raises

pytestmark = pytest.mark.ranks("1", "2")


def mean_weight(size: int) -> float:
    """The mean over the ranks of rank + 1, the weight each rank gives its own loss."""
    return (size + 1) / 2


def make_variables() -> list[tf.Variable]:
    return [tf.Variable([1.0, 2.0]), tf.Variable(3.0), tf.Variable([[1.0] * 3] * 2)]


def gradients_by(hvd, variables, weight):
    with tf.GradientTape() as tape:
        loss = weight * tf.add_n([tf.reduce_sum(v * v) for v in variables])
    return hvd.DistributedGradientTape(tape).gradient(loss, variables)


def test_two_tapes_in_one_function(hvd, rank, size, run):
    """As in a GAN: two plans in flight together, here with equal lists."""
    first, second = tf.Variable([1.0, 1.0]), tf.Variable([1.0, 1.0])

    def body():
        with tf.GradientTape() as tape_a, tf.GradientTape() as tape_b:
            loss_a, loss_b = first * (rank + 1.0), second * (rank + 2.0)
        grad_a = hvd.DistributedGradientTape(tape_a).gradient(loss_a, [first])
        grad_b = hvd.DistributedGradientTape(tape_b).gradient(loss_b, [second])
        return grad_a[0], grad_b[0]

    for _ in range(3):
        grad_a, grad_b = run(body)
        np.testing.assert_allclose(grad_a, [mean_weight(size)] * 2)
        np.testing.assert_allclose(grad_b, [mean_weight(size) + 1.0] * 2)


def test_one_op_per_gradient_free_of_control_dependencies(hvd, size):
    variables = make_variables()
    concrete = tf.function(lambda: gradients_by(hvd, variables, 1.0)).get_concrete_function()
    ops = [op for op in concrete.graph.get_operations() if op.type.startswith("Smddp")]
    assert [op.type for op in ops] == ["SmddpReduceGradient"] * len(variables)
    assert [op.get_attr("index") for op in ops] == list(range(len(ops)))
    assert len({op.get_attr("plan") for op in ops}) == 1
    assert all(not op.control_inputs for op in ops)


def test_retracing_keeps_the_plan(hvd, size):
    variables = make_variables()
    function = tf.function(lambda weight: gradients_by(hvd, variables, weight))
    plans = set()
    for weight in (1.0, 2.0, 3.0):  # Python numbers, so each call traces anew
        function(weight)
        graph = function.get_concrete_function(weight).graph
        plans |= {op.get_attr("plan") for op in graph.get_operations() if op.type == "SmddpReduceGradient"}
    assert len(plans) == 1


def test_in_a_loop_inside_the_function(hvd, rank, size):
    """Gradients that depend on no variable: nothing but control edges keeps the iterations apart."""
    variable = tf.Variable([1.0, 1.0])

    @tf.function
    def body(n):
        results = tf.TensorArray(tf.float32, n)
        for i in tf.range(n):
            with tf.GradientTape() as tape:
                loss = variable * tf.cast(i, tf.float32) * (rank + 1.0)
            grads = hvd.DistributedGradientTape(tape).gradient(loss, [variable])
            results = results.write(i, grads[0][0])
        return results.stack()

    np.testing.assert_allclose(body(tf.constant(40)), np.arange(40) * mean_weight(size))


def test_shape_unknown_when_traced(hvd, rank, size):
    """Without a static shape there is no place in a plan, so the gradient is matched by name."""

    @tf.function(input_signature=[tf.TensorSpec([None])])
    def body(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(x * x) * (rank + 1.0)
        return hvd.DistributedGradientTape(tape).gradient(loss, x)

    for length in (3, 5):
        np.testing.assert_allclose(body(tf.ones([length])), [2 * mean_weight(size)] * length)


@pytest.fixture
def failing_step(hvd, rank, size):
    """A step of two gradients in one bucket, the second of which an op that may fail is in front of."""
    if size == 1:
        pytest.skip("nothing travels")
    from smddp_tf.gradients.reducer import GradientReducer

    variables = [tf.Variable([1.0, 2.0]), tf.Variable([1.0, 2.0])]
    reducer = GradientReducer("test.failing")

    def step(fail, factor):
        with tf.control_dependencies([tf.debugging.Assert(tf.logical_not(fail), ["deliberate"])]):
            late = tf.identity(variables[1])
        return reducer([variables[0] * factor * (rank + 1.0), late * factor], variables)

    return lambda: tf.function(step)


def check_step(step, factor, size):
    first, second = step(tf.constant(False), tf.constant(factor))
    np.testing.assert_allclose(first, np.array([1.0, 2.0]) * factor * mean_weight(size))
    np.testing.assert_allclose(second, np.array([1.0, 2.0]) * factor)


@pytest.mark.parametrize("at", ["first", "later"])
def test_a_step_that_fails_on_one_rank_fails_on_all(failing_step, rank, size, at):
    """Some gradients have been handed over when another op of the step fails. The session goes on."""
    step = failing_step()
    if at == "later":
        check_step(step, 2.0, size)
    for n in range(2):
        if rank == 0:
            with pytest.raises(tf.errors.OpError, match="deliberate"):
                step(tf.constant(True), tf.constant(5.0))
        else:
            with raises(tf.errors.OpError, "step_given_up", match="Rank 0 "):
                step(tf.constant(False), tf.constant(5.0))
        check_step(step, 3.0 + n, size)


def test_a_step_that_fails_on_all_ranks_is_skipped(failing_step, size):
    """As where a batch makes NaNs: at once, and every time."""
    step = failing_step()
    for n in range(4):
        with pytest.raises(tf.errors.InvalidArgumentError, match="deliberate"):
            step(tf.constant(True), tf.constant(100.0))
        check_step(step, 2.0 + n, size)


@pytest.fixture(params=["dense", "sparse", "named"])
def step_that_may_fail_early(hvd, rank, size, request):
    """A step whose only reduction comes after an op that may fail: a rank where it fails has handed over nothing."""
    if size == 1:
        pytest.skip("nothing travels")
    variable = tf.Variable(tf.ones([3]))

    @tf.function
    def step(factor):
        checked = tf.debugging.check_numerics(factor * (rank + 1.0), "deliberate")
        if request.param == "named":
            return hvd.allreduce(checked, name="test.fails_early")
        with tf.GradientTape() as tape:
            row = tf.gather(variable, [1]) if request.param == "sparse" else variable[1]
            loss = tf.reduce_sum(row) * checked
        return tf.reduce_sum(hvd.DistributedGradientTape(tape).gradient(loss, variable))

    return step


@pytest.mark.parametrize("times", [1, 2])
def test_a_step_that_fails_before_it_has_handed_over_anything(step_that_may_fail_early, rank, size, times):
    """The other ranks' step must not be reduced with the next one of this rank."""
    for n in range(9):
        failing = 0 < n % 4 <= times
        if failing and rank == size - 1:
            with pytest.raises(tf.errors.InvalidArgumentError, match="deliberate"):
                step_that_may_fail_early(tf.constant(float("nan")))
        elif failing:
            with raises(tf.errors.OpError, "step_given_up", match=f"Rank {size - 1} "):
                step_that_may_fail_early(tf.constant(100.0))
        else:
            np.testing.assert_allclose(step_that_may_fail_early(tf.constant(n + 2.0)), (n + 2) * mean_weight(size))


def test_a_step_that_fails_early_on_all_ranks_is_skipped(step_that_may_fail_early, size):
    for n in range(6):
        if n % 3 == 1:
            with pytest.raises(tf.errors.InvalidArgumentError, match="deliberate"):
                step_that_may_fail_early(tf.constant(float("nan")))
        else:
            np.testing.assert_allclose(step_that_may_fail_early(tf.constant(n + 2.0)), (n + 2) * mean_weight(size))


def test_the_first_step_fails_early(hvd, rank, size):
    if size == 1:
        pytest.skip("nothing travels")
    variable = tf.Variable(tf.ones([5]))

    @tf.function
    def step(factor):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable) * tf.debugging.check_numerics(factor * (rank + 1.0), "deliberate")
        return hvd.DistributedGradientTape(tape).gradient(loss, variable)

    with pytest.raises(tf.errors.OpError, match="deliberate" if rank == 0 else "Rank 0 "):
        step(tf.constant(float("nan") if rank == 0 else 1.0))
    np.testing.assert_allclose(step(tf.constant(3.0)), [3 * mean_weight(size)] * 5)


def test_a_branch_that_does_not_run_is_no_failure(hvd, rank, size):
    """A collective that only some runs of a graph reach is not waited for in the others."""
    if size == 1:
        pytest.skip("nothing travels")
    variable = tf.Variable([2.0, 3.0])

    @tf.function
    def step(factor, reduces):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable) * factor * (rank + 1.0)
        gradient = tape.gradient(loss, variable)
        total = gradient
        if reduces:
            total = hvd.DistributedGradientTape(tape)._reduced([gradient], [variable])[0]
        for _ in tf.range(2):
            total += hvd.allreduce(gradient, name="test.in_a_loop")
        return total

    for n in range(6):
        reduces = n % 3 == 0
        weight = 2 * mean_weight(size) + (mean_weight(size) if reduces else rank + 1.0)
        np.testing.assert_allclose(step(tf.constant(n + 1.0), tf.constant(reduces)), [(n + 1) * weight] * 2)


def test_another_plan_on_one_rank_is_an_error_on_all(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank cannot disagree")
    from smddp_tf.gradients.reducer import GradientReducer

    variable = tf.Variable(tf.ones([3 if rank == size - 1 else 2]))
    reducer = GradientReducer("test.disagreement")
    step = tf.function(lambda: reducer([variable * 2.0], [variable]))
    with raises(tf.errors.FailedPreconditionError, "disagreement", match="test.disagreement"):
        step()
    assert hvd.allreduce(tf.constant(1.0)) == 1.0


@pytest.mark.parametrize("sparse", [False, True])
def test_a_gradient_that_only_some_ranks_have_is_an_error_on_all(hvd, rank, size, sparse):
    """Equal numbers of dense gradients must not be taken for the same gradients."""
    if size == 1:
        pytest.skip("one rank cannot disagree")
    from smddp_tf.gradients.reducer import GradientReducer

    variables = [tf.Variable([1.0, 2.0]), tf.Variable([1.0, 2.0]), tf.Variable([1.0, 2.0])]
    reducer = GradientReducer(f"test.positions.{sparse}")
    other = tf.IndexedSlices(tf.ones([1]), tf.constant([0]), tf.constant([2])) if sparse and rank == 0 else None

    @tf.function
    def step():
        return reducer([variables[0] * 2.0, None, other] if rank == 0 else [None, variables[1] * 2.0, other], variables)

    with raises(tf.errors.OpError, "disagreement", match="test.positions"):
        step()
    assert hvd.allreduce(tf.constant(1.0)) == 1.0
