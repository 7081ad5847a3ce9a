"""The rules, in one file for each thing that they look at. Their parameters are in `../rules.yaml`."""

from smddp_tf.insight.rules.hosts import (
    batch_size,
    cpu_bottleneck,
    gpu_memory_increase,
    load_balancing,
    low_gpu_utilization,
    overall_system_usage,
    oversubscribed_cores,
)
from smddp_tf.insight.rules.inputs import all_ranks_read_everything, dataloader, io_bottleneck
from smddp_tf.insight.rules.network import nothing_hidden, slow_link
from smddp_tf.insight.rules.ranks import different_speeds, late_rank
from smddp_tf.insight.rules.steps import max_initialization_time, stalled_training, step_outlier

RULES = (
    batch_size, cpu_bottleneck, gpu_memory_increase, io_bottleneck, load_balancing, low_gpu_utilization,
    overall_system_usage, max_initialization_time, step_outlier, dataloader, stalled_training,
    late_rank, nothing_hidden, slow_link, all_ranks_read_everything, oversubscribed_cores, different_speeds,
)  # fmt: skip
