"""What a job needs, and what it does."""

from smddp_tf.insight.io_report import IoReport, io_report

__all__ = ["IoReport", "io_report"]
