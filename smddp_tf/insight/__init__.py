"""Looks for what slows a job down, in what `smddprun --monitor` has recorded.

Needs neither TensorFlow nor MPI.
"""

from smddp_tf.insight.diagnosis import Diagnosis, diagnose
from smddp_tf.insight.finding import Finding
from smddp_tf.insight.recording import NoRecording

__all__ = ["Diagnosis", "Finding", "NoRecording", "diagnose"]
