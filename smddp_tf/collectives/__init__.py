"""Operations over all ranks, or those of a process set: their Python functions and the TensorFlow ops behind them."""
