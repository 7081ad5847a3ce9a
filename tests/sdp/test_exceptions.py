"""The errors of smddp_tf.sdp, by the classes with which scripts catch them."""

from __future__ import annotations

import pytest

from smddp_tf.sdp import exceptions


@pytest.mark.parametrize("caught", [exceptions.SMDDPError, RuntimeError, ValueError])
def test_a_second_init_is_caught_as(caught):
    with pytest.raises(caught, match="twice"):
        raise exceptions.SMDDPAlreadyInitializedError("twice")


def test_other_errors_are_no_value_errors():
    assert issubclass(exceptions.SMDDPError, RuntimeError)
    assert not issubclass(exceptions.SMDDPError, ValueError)
