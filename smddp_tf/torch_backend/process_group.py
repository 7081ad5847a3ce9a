"""A process group: the collectives of `torch.distributed`, each as one request of the engine."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from smddp_tf import basics
from smddp_tf._native import loader
from smddp_tf._native.requests import REDUCTIONS, Kind
from smddp_tf.collectives.reduce_op import ReduceOp
from smddp_tf.torch_backend.works import Copies, Tensors, Work, untraced

_OPS = {
    dist.ReduceOp.SUM: ReduceOp.Sum,
    dist.ReduceOp.AVG: ReduceOp.Average,
    dist.ReduceOp.MIN: ReduceOp.Min,
    dist.ReduceOp.MAX: ReduceOp.Max,
    dist.ReduceOp.PRODUCT: ReduceOp.Product,
}


class Members(NamedTuple):
    """The ranks of a process group.

    Attributes:
        process_set: the engine's number of them.
        ranks: their numbers among all ranks, by their numbers in the group.
        name: the group's, the same on all of them.
    """

    process_set: int
    ranks: Sequence[int]
    name: str


@untraced
class ProcessGroup(dist.ProcessGroup):
    """A process group of the backend "smddp". Tensors are dense and in host memory.

    All ranks of a group call its collectives in the same order; what differs between ranks is an error on all of them.
    PyTorch's C++ calls these methods as well, so their names and arguments are those of `c10d::ProcessGroup`, also
    names that a release of PyTorch calls newer ones by.
    """

    def __init__(self, rank: int, members: Members, wire_dtype: str, timeout: timedelta, ends_session: bool) -> None:
        """Makes a group of ranks that the engine knows.

        Args:
            rank: this process's number in the group.
            members: of the group.
            wire_dtype: in which reductions are sent between nodes, as `Options` has it.
            timeout: how long works wait that are not told.
            ends_session: whether the session ends with the group.
        """
        super().__init__(rank, len(members.ranks))
        self._rank, self._size, self._members, self._wire_dtype = rank, len(members.ranks), members, wire_dtype
        self._timeout, self._ends_session = timeout, ends_session
        self._numbers = itertools.count()

    # --- reductions ---

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Work:
        """Reduces every tensor in place; they travel together."""
        return self._submit(Kind.ALLREDUCE, tensors, tensors, op=_op(opts))

    def reduce(self, tensors: Tensors, opts: Any) -> Work:
        """As `allreduce`, but only `opts.rootRank`'s tensors change."""
        here = tensors if self._rank == opts.rootRank else [tensor.clone() for tensor in tensors]
        return self.allreduce(here, opts)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Each rank gets one of as many equal parts of every input as there are ranks, by SUM or AVG."""
        sizes = [(source.numel(), target.numel()) for source, target in zip(inputs, outputs)]
        if any(whole != self._size * part for whole, part in sizes):
            raise ValueError(f"Inputs must have {self._size} times the elements of outputs. Received: {sizes}.")
        return self._submit(Kind.REDUCESCATTER, inputs, outputs, op=_op(opts), parts=self._size)

    def reduce_scatter_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Work:
        """As `reduce_scatter_single_coalesced`, of one tensor."""
        return self.reduce_scatter_single_coalesced([output], [source], opts)

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        """As `reduce_scatter_single_coalesced`, of lists of one tensor for each rank."""
        return self.reduce_scatter_single_coalesced(outputs, [_flat(parts) for parts in inputs], opts)

    # --- copies ---

    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        """Copies the tensors of `opts.rootRank` to all ranks."""
        return self._submit(Kind.BROADCAST, tensors, tensors, root=self._members.ranks[opts.rootRank])

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Puts the inputs of all ranks one after another into each output."""
        return self._submit(Kind.ALLGATHER, inputs, outputs)

    def all_gather_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Work:
        """As `all_gather_single_coalesced`, of one tensor."""
        return self._submit(Kind.ALLGATHER, [source], [output])

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """Each rank's tensor in a list; their numbers of elements may differ by rank."""
        (targets,), whole = outputs, _room_for(outputs[0])
        return self._submit(Kind.ALLGATHER, inputs, [whole], _parts_of(whole, targets))

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Sends the tensor `inputs[r]` to rank r; their numbers of elements may differ."""
        whole = _room_for(outputs)
        splits = [source.numel() for source in inputs]
        return self._submit(Kind.ALLTOALL, [_flat(inputs)], [whole], _parts_of(whole, outputs), splits=splits)

    def all_to_all_single(
        self, output: Tensor, source: Tensor, rows: list[int], sent: list[int], opts: Any = None
    ) -> Work:
        """Sends `sent[r]` rows of `source` to rank r, where `rows[r]` come from; none: as many to each."""
        elements = source.numel() // max(len(source), 1)  # of a row
        splits = [count * elements for count in sent]
        if not splits and len(source) % self._size != 0:
            raise ValueError(f"The first dimension must be a multiple of {self._size}. Received: {list(source.shape)}.")
        return self._submit(Kind.ALLTOALL, [source], [output], splits=splits)

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Work:
        """`opts.rootRank` gets the tensors of all ranks as a list."""
        sent = [inputs[0] if rank == opts.rootRank else inputs[0].new_empty(0) for rank in range(self._size)]
        return self.alltoall(outputs[0] if self._rank == opts.rootRank else [inputs[0].new_empty(0)], sent)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Work:
        """Each rank gets one of the tensors that `opts.rootRank` has a list of."""
        nothing = [outputs[0].new_empty(0)] * self._size
        return self.alltoall(outputs, inputs[0] if self._rank == opts.rootRank else nothing)

    def barrier(self, opts: Any = None) -> Work:
        """Ends when all ranks have called it."""
        return self._submit(Kind.BARRIER, [], [])

    def send(self, *args: Any, **kwargs: Any) -> Work:
        """There are collectives only.

        Raises:
            NotImplementedError: always. Says what to do.
        """
        raise NotImplementedError(
            'The backend "smddp" has collectives only, and groups by `new_group`. For send and recv make a group of '
            'PyTorch\'s own beside it: torch.distributed.new_group(backend="gloo").'
        )

    recv = recv_anysource = split_group = send
    allreduce_coalesced = allreduce
    _reduce_scatter_base, reduce_scatter_tensor_coalesced = reduce_scatter_single, reduce_scatter_single_coalesced
    _allgather_base, allgather_into_tensor_coalesced = all_gather_single, all_gather_single_coalesced
    alltoall_base = all_to_all_single

    # --- the group ---

    _device_types = property(lambda self: [torch.device("cpu")])

    @property
    def group_name(self) -> str:
        """By which PyTorch finds the group."""
        return self._members.name

    def _set_group_name(self, name: str) -> None:
        """PyTorch sets the name by which it has had the group made."""

    def getBackendName(self) -> str:
        """Asked for by `DistributedDataParallel`."""
        return "smddp"

    def shutdown(self) -> None:
        """Ends the group; the one that has begun the session ends it, and all others with it."""
        if self._ends_session:
            basics.shutdown()
        elif self._members.process_set == 0:  # PyTorch's store, which is rank 0's, ends with it
            with contextlib.suppress(RuntimeError, ValueError):
                self.barrier().wait(timedelta(seconds=5))

    abort = shutdown

    def _start_coalescing(self, device: object) -> None:
        """Between this and the next one, collectives begin as they are called."""

    def _end_coalescing(self, device: object) -> None:
        """Each has its own work to wait for."""

    def _submit(
        self,
        kind: Kind,
        inputs: Tensors,
        outputs: Tensors,
        copies: Copies = (),
        *,
        op: ReduceOp = ReduceOp.Sum,
        root: int = 0,
        parts: int = 0,
        splits: Sequence[int] = (),
    ) -> Work:
        """Begins a collective.

        Args:
            kind: of the request.
            inputs: of this rank.
            outputs: as many, of any shapes; they may be the inputs.
            copies: tensors of the caller, and what of the outputs is copied there.
            op: of a reduction.
            root: of a broadcast, among all ranks.
            parts: into which the inputs are divided; 0: rows are elements.
            splits: elements for each rank; none: as many to each.
        """
        name = f"torch.{self._members.name}.{next(self._numbers)}"
        _check(kind, inputs, outputs)
        results = [target if target.is_contiguous() else target.new_empty(target.shape) for target in outputs]
        sources = [source.contiguous().resolve_conj().resolve_neg() for source in inputs]
        owners = [(_movable(source), _movable(result)) for source, result in zip(sources, results)]
        tensors = [
            (
                str(source.dtype).removeprefix("torch."),
                [parts, source.numel() // parts] if parts else [source.numel()],
                source.data_ptr(),
                target.data_ptr(),
                target.numel(),
            )
            for source, target in owners
        ]
        how = (op, self._wire_dtype if kind in REDUCTIONS else "")
        request = loader.core().submit(kind, name, tensors, owners, how, root, splits, self._members.process_set)
        moved = [(target, result) for target, result in zip(outputs, results) if target is not result]
        result = [target for target, _ in copies] or outputs
        return Work(request, f"{kind.name} {name}", result, [*moved, *copies], self._timeout)


def _op(opts: Any) -> ReduceOp:
    if opts is None:
        return ReduceOp.Sum
    if opts.reduceOp.op not in _OPS:
        raise ValueError(f'The backend "smddp" has SUM, AVG, MIN, MAX and PRODUCT. Received: {opts.reduceOp.op}.')
    return _OPS[opts.reduceOp.op]


def _check(kind: Kind, inputs: Tensors, outputs: Tensors) -> None:
    for tensor in (*inputs, *outputs):
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            where = f"{tensor.device}, {tensor.layout}. Move it with .cpu(), or take another backend."
            raise ValueError(f'The backend "smddp" takes dense tensors in host memory. Received: one on {where}')
    dtypes = [tensor.dtype for tensor in inputs]
    if dtypes != [tensor.dtype for tensor in outputs]:
        received = f"{dtypes}, outputs of {[tensor.dtype for tensor in outputs]}"
        raise ValueError(f"Outputs must have the dtypes of the inputs, one for each. Received: inputs of {received}.")
    eighths = [dtype for dtype in dtypes if dtype.is_floating_point and dtype.itemsize == 1]
    if kind in REDUCTIONS and eighths:
        raise ValueError(f"{kind.name} is not defined for {eighths[0]}. Cast the tensor first.")


def _movable(tensor: Tensor) -> Tensor:
    """The engine moves floats of 8 bits as bytes."""
    return tensor.view(torch.uint8) if tensor.is_floating_point() and tensor.itemsize == 1 else tensor


def _flat(parts: Tensors) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])


def _room_for(targets: Tensors) -> Tensor:
    return targets[0].new_empty(sum(target.numel() for target in targets))


def _parts_of(whole: Tensor, targets: Tensors) -> Copies:
    return list(zip(targets, whole.split([target.numel() for target in targets])))
