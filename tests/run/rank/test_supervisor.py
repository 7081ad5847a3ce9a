"""How a rank's supervisor knows the end of its rank."""

from __future__ import annotations

import os

from smddp_tf.link.ends import End
from smddp_tf.run.rank import supervisor as rank_module


def test_the_pipe_tells_how_a_rank_ended() -> None:
    def said(*words: bytes, code: int = 1, ending: tuple[int, ...] = ()) -> End:
        notes = rank_module._Notes()
        file, inode = map(int, notes.address.split(":"))
        assert os.fstat(file).st_ino == inode
        for word in words:
            os.write(file, word + b"\0")
        os.close(file)
        return notes.end_of(code, ending)

    assert said(b"BRank 2 has died", b"Rmine", b"Bnext") == End(1, "mine", "Rank 2 has died")
    assert said(b"Bnext", b"LRank 2 has died") == End(1, because="Rank 2 has died")
    assert said() == End(1)
    assert said(ending=(15,), code=-15) == End(-15, because="it was sent signal 15")
    assert not said(ending=(15,), code=-15).is_cause
