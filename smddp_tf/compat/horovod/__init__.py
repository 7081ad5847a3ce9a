"""The parts of Horovod's interface that exist only under Horovod's names."""
