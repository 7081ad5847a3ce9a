"""Every argument of Horovod's at its place and with its default, as the documentation of 0.28.1 has them."""

from __future__ import annotations

import inspect

import pytest

pytestmark = pytest.mark.ranks("2")

TAPE = (
    "gradtape, device_dense='', device_sparse='', compression=none, sparse_as_dense=False, op=Average, "
    "gradient_predivide_factor=1.0, num_groups=0, groups=None, process_set=global"
)
OF_TENSORFLOW = {
    "BroadcastGlobalVariablesHook": "root_rank, device=''",
    "DistributedGradientTape": f"{TAPE}, scale_local_gradients=True",
    "DistributedOptimizer": "optimizer, name=None, use_locking=False, device_dense='', device_sparse='', "
    "compression=none, sparse_as_dense=False, backward_passes_per_step=1, op=Average, gradient_predivide_factor=1.0, "
    "average_aggregated_gradients=False, num_groups=0, groups=None, process_set=global, scale_local_gradients=True",
    "PartialDistributedGradientTape": f"{TAPE}, local_layers=None, scale_local_gradients=True",
    "allgather_object": "obj, session=None, name=None, process_set=global",
    "broadcast_": "variables, root_rank, name=None, process_set=global",
    "broadcast_global_variables": "root_rank",
    "broadcast_object": "obj, root_rank=0, session=None, name=None, process_set=global",
    "broadcast_object_fn": "root_rank=0, session=None, name=None, process_set=global",
    "broadcast_variables": "variables, root_rank, process_set=global, inplace=False",
}
OF_KERAS = {
    "DistributedOptimizer": "optimizer, name=None, device_dense='', device_sparse='', compression=none, "
    "sparse_as_dense=False, gradient_predivide_factor=1.0, op=Average, backward_passes_per_step=1, "
    "average_aggregated_gradients=False, num_groups=0, groups=None, process_set=global, scale_local_gradients=True",
    "allgather": "value, name=None",
    "allreduce": "value, name=None, average=None, prescale_factor=1.0, postscale_factor=1.0, op=None, compression=none",
    "broadcast": "value, root_rank, name=None",
    "broadcast_global_variables": "root_rank",
    "callbacks.BestModelCheckpoint": "monitor='val_loss', verbose=0, save_weights_only=False, mode='auto', "
    "save_freq='epoch'",
    "callbacks.BroadcastGlobalVariablesCallback": "root_rank, device='', local_variables=None",
    "callbacks.LearningRateScheduleCallback": "initial_lr, multiplier, start_epoch=0, end_epoch=None, staircase=True, "
    "momentum_correction=True, steps_per_epoch=None",
    "callbacks.LearningRateWarmupCallback": "initial_lr, warmup_epochs=5, momentum_correction=True, "
    "steps_per_epoch=None, verbose=0",
    "callbacks.MetricAverageCallback": "device=''",
    "reducescatter": "value, name=None, op=Average",
    "load_model": "filepath, custom_optimizers=None, custom_objects=None, compression=none, legacy_opts=False",
}
OF_STANDALONE_KERAS = {
    "DistributedOptimizer": "optimizer, name=None, device_dense='', device_sparse='', compression=none, "
    "sparse_as_dense=False, gradient_predivide_factor=1.0, op=Average, num_groups=0, groups=None",
    "PartialDistributedOptimizer": "optimizer, name=None, device_dense='', device_sparse='', compression=none, "
    "sparse_as_dense=False, gradient_predivide_factor=1.0, op=Average, backward_passes_per_step=1, "
    "average_aggregated_gradients=False, groups=None, process_set=global, local_layers=None, "
    "scale_local_gradients=True",
    "allreduce": "value, name=None, average=True, prescale_factor=1.0, postscale_factor=1.0, op=None, compression=none",
    "callbacks.BestModelCheckpoint": "monitor='val_loss', verbose=0, mode='auto', save_freq='epoch'",
    **{
        name: OF_KERAS[name]
        for name in ("allgather", "broadcast", "broadcast_global_variables", "load_model", "reducescatter")
    },
}
# What takes more than Horovod's arguments must take them by name.
OPTIONAL_HERE = {"initial_lr", "multiplier"}  # scripts of Horovod 0.20 have no initial_lr


def written(hvd, parameter: inspect.Parameter) -> str:
    default = parameter.default
    if default is inspect.Parameter.empty or parameter.name in OPTIONAL_HERE:
        return parameter.name
    if default is hvd.Compression.none:
        return f"{parameter.name}=none"
    if default is hvd.global_process_set:
        return f"{parameter.name}=global"
    return f"{parameter.name}={default.name if parameter.name == 'op' and default is not None else repr(default)}"


@pytest.mark.parametrize(
    ("module", "table"),
    [
        ("smddp_tf", OF_TENSORFLOW),
        ("smddp_tf.keras", OF_KERAS),
        ("smddp_tf.compat.horovod.keras", OF_STANDALONE_KERAS),
    ],
)
def test_signatures(hvd, module, table):
    for name, expected in table.items():
        found = __import__(module, fromlist=["_"])
        for part in name.split("."):
            found = getattr(found, part)
        parameters = [p for p in inspect.signature(found).parameters.values() if p.kind != p.VAR_KEYWORD]
        ours = ", ".join(written(hvd, parameter) for parameter in parameters)
        assert ours == expected or ours.startswith(f"{expected}, "), f"{module}.{name}"
        assert all("=" in more for more in ours[len(expected) :].split(", ")[1:]), f"{module}.{name}"
