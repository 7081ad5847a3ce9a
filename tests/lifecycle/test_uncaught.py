"""What other ranks, and the launcher, read of an exception: one line, and in it the sentence that matters."""

from __future__ import annotations

from smddp_tf.lifecycle.uncaught import in_one_line

# As TensorFlow 2.21 writes it.
FRAMES = "".join(
    f'  File "/env/lib/python3.11/site-packages/keras/src/part{number}.py", line {number}, in call\n\n'
    for number in range(40)
)
GRAPH = (
    "Graph execution error:\n\nDetected at node SmddpReduce defined at (most recent call last):\n"
    f"{FRAMES}Detected at node SmddpReduce defined at (most recent call last):\n{FRAMES}"
    "Mismatched gradient plans: rank 0 has float32 [8, 16], rank 1 has [8, 32].\nMake them equal.\n"
    "\t [[{{node SmddpReduce}}]] [Op:__inference_f_8]"
)
AUTOGRAPH = (
    'in user code:\n\n    File "/tmp/train.py", line 13, in g  *\n        def g(x): return tf.linalg.cholesky(x)\n\n'
    "    ValueError: Shape must be at least rank 2.\n"
)


def test_plain_exceptions() -> None:
    assert in_one_line(ValueError, ValueError("rank 1 has\na bug.")) == "ValueError: rank 1 has a bug"
    assert in_one_line(KeyError, KeyError("x")) == "KeyError: 'x'"
    assert in_one_line(KeyboardInterrupt, KeyboardInterrupt()) == "KeyboardInterrupt"


def test_the_sentence_stands_before_tensorflows_trace() -> None:
    class FailedPreconditionError(Exception):
        pass

    line = in_one_line(FailedPreconditionError, FailedPreconditionError(GRAPH))
    assert line.startswith(
        "FailedPreconditionError: Mismatched gradient plans: rank 0 has float32 [8, 16], rank 1 has [8, 32]. Make them"
    )
    assert "Detected" not in line
    assert "File" not in line
    assert in_one_line(ValueError, ValueError(AUTOGRAPH)) == "ValueError: ValueError: Shape must be at least rank 2"


def test_of_a_long_text_both_ends_stay() -> None:
    line = in_one_line(ValueError, ValueError("first words" + " x" * 5000 + " last words"))
    assert line.startswith("ValueError: first words")
    assert line.endswith("last words")
    assert len(line) < 2100


def test_a_text_of_nothing_but_frames_is_not_lost() -> None:
    assert "part3.py" in in_one_line(RuntimeError, RuntimeError(FRAMES))
