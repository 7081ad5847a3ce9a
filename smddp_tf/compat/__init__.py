"""Older scripts on Keras 3: forms of Keras 2 that scripts written for Horovod use.

With the shims installed Keras 3 also accepts:

| older form | modern form |
|---|---|
| `optimizer.variables()` | `optimizer.variables` |
| `optimizer.lr`, `optimizer.lr = 0.1` | `optimizer.learning_rate` |
| `Adam(lr=0.1)`, and so for every optimizer | `Adam(learning_rate=0.1)` |
| `model.compile(..., experimental_run_tf_function=False)` | without it; it meant nothing since TensorFlow 2.2 |

Each is used with a warning, once for each form, on rank 0. A script that uses none of them notices nothing: results,
files, configurations and pickles are the same.

They are installed when a script uses this library with Keras 3: by `hvd.init()` where TensorFlow is imported already,
by `import smddp_tf.keras`, and by the first use of a name of `smddp_tf` that needs TensorFlow. `SMDDP_KERAS_COMPAT=0`
leaves Keras as it is. Keras 2 (`TF_USE_LEGACY_KERAS=1`) needs none of this.
"""

from __future__ import annotations

import importlib
import sys

from smddp_tf._native import loader

__all__ = ["install", "install_by_default", "uninstall"]

_done = False


def install() -> None:
    """Makes Keras 3 accept the older forms; does nothing when called again.

    Raises:
        ImportError: there is no Keras 3, or it does not compute with TensorFlow.
    """
    importlib.import_module("smddp_tf.compat.shims").install()


def uninstall() -> None:
    """Restores Keras's own functions. `install_by_default` does not install them again."""
    global _done
    _done = True
    if "smddp_tf.compat.shims" in sys.modules:
        sys.modules["smddp_tf.compat.shims"].uninstall()


def install_by_default() -> None:
    """Adapts Keras 3, where it is imported and computes with TensorFlow, when it is first used with this library.

    It installs `smddp_tf.keras.rank_seeds`, and calls `install` once, unless `SMDDP_KERAS_COMPAT=0`.

    Raises:
        ValueError: `SMDDP_KERAS_COMPAT` has an invalid value.
    """
    global _done
    if "keras" not in sys.modules:
        return
    keras = importlib.import_module("keras")
    if not keras.__version__.startswith("3.") or keras.config.backend() != "tensorflow":
        return
    importlib.import_module("smddp_tf.keras.rank_seeds").install()
    if not _done:
        _done = True
        if loader.core().switch("SMDDP_KERAS_COMPAT"):
            install()
