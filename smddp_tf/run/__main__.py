"""`python -m smddp_tf.run` is `smddprun`."""

from smddp_tf.run.cli import main

if __name__ == "__main__":
    main()
