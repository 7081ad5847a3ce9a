"""The size of a bucket, as scripts of SMDDP set it."""

from __future__ import annotations

import os

import keras
import pytest

from smddp_tf import sdp
from smddp_tf.sdp import common

pytestmark = pytest.mark.ranks("1", "2")


def test_bucket_sizes(hvd):
    for wrong in (0, -128, 100, 1.5):
        with pytest.raises(ValueError, match="multiple of 128 bytes"):
            common.setBucketSize(wrong)
    with pytest.raises(ValueError, match="multiple of 128 bytes"):
        sdp.DistributedOptimizer(keras.optimizers.SGD(), bucket_cap_mb=0.0001)
    hvd.shutdown()
    try:
        common.setBucketSize(64 << 20)
        assert os.environ["SMDDP_BUCKET_BYTES"] == str(64 << 20)
    finally:
        os.environ.pop("SMDDP_BUCKET_BYTES", None)
        sdp.init()
