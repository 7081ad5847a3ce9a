"""The rules, one per file. Each has its parameters as fields."""

from smddp_tf.insight.finding import Rule
from smddp_tf.insight.rules.all_ranks_read_everything import AllRanksReadEverything
from smddp_tf.insight.rules.batch_size import BatchSize
from smddp_tf.insight.rules.cpu_bottleneck import CPUBottleneck
from smddp_tf.insight.rules.dataloader import Dataloader
from smddp_tf.insight.rules.different_speeds import DifferentSpeeds
from smddp_tf.insight.rules.gpu_memory_increase import GPUMemoryIncrease
from smddp_tf.insight.rules.io_bottleneck import IOBottleneck
from smddp_tf.insight.rules.late_rank import LateRank
from smddp_tf.insight.rules.load_balancing import LoadBalancing
from smddp_tf.insight.rules.low_gpu_utilization import LowGPUUtilization
from smddp_tf.insight.rules.max_initialization_time import MaxInitializationTime
from smddp_tf.insight.rules.nothing_hidden import NothingHidden
from smddp_tf.insight.rules.overall_system_usage import OverallSystemUsage
from smddp_tf.insight.rules.oversubscribed_cores import OversubscribedCores
from smddp_tf.insight.rules.slow_link import SlowLink
from smddp_tf.insight.rules.stalled_training import StalledTraining
from smddp_tf.insight.rules.step_outlier import StepOutlier

RULES: tuple[Rule, ...] = (
    BatchSize(), CPUBottleneck(), GPUMemoryIncrease(), IOBottleneck(), LoadBalancing(), LowGPUUtilization(),
    OverallSystemUsage(), MaxInitializationTime(), StepOutlier(), Dataloader(), StalledTraining(),
    LateRank(), NothingHidden(), SlowLink(), AllRanksReadEverything(), OversubscribedCores(), DifferentSpeeds(),
)  # fmt: skip
