"""How many bytes each rail algorithm makes a member send (docs/algorithms.md)."""

from __future__ import annotations

from tests.native_module import core

ELEMENT_BYTES = 4


def length(bounds: tuple[int, int]) -> int:
    return bounds[1] - bounds[0]


def blocks_of(elements: int, count: int) -> list[int]:
    return [length(core().slice_of(elements, ELEMENT_BYTES, count, block)) for block in range(count)]


def direct(elements: int, nodes: int, me: int) -> int:
    """Everybody's part of my sums, and my part, summed, to everybody."""
    parts = blocks_of(elements, nodes)
    return sum(parts) - parts[me] + (nodes - 1) * parts[me]


def ring(elements: int, nodes: int, me: int) -> int:
    """All but one part while summing, all but one while the sums go round."""
    parts = blocks_of(elements, nodes)
    return 2 * sum(parts) - parts[(me + 1) % nodes] - parts[(me + 2) % nodes]


def place_in_fold(nodes: int, me: int) -> tuple[int, int, bool]:
    """How many take part, my place among them (-1: none), and whether I give a result back."""
    power = 1 << (nodes.bit_length() - 1)
    pairs = nodes - power
    if me >= 2 * pairs:
        return power, me - pairs, False
    return power, me // 2 if me % 2 else -1, bool(me % 2)


def recursive_doubling(elements: int, nodes: int, me: int) -> int:
    power, place, gives_back = place_in_fold(nodes, me)
    return elements * (1 if place < 0 else power.bit_length() - 1 + gives_back)


def halving_doubling(elements: int, nodes: int, me: int) -> int:
    """Away with what the peers keep, down to block `place`; then every group of blocks that I complete, once."""
    power, place, gives_back = place_in_fold(nodes, me)
    if place < 0:
        return elements
    parts = blocks_of(elements, power)
    sent = sum(parts) - parts[place] + elements * gives_back
    for distance in (1 << k for k in range(power.bit_length() - 1)):
        first = place // distance * distance
        sent += sum(parts[first : first + distance])
    return sent


FORMULAS = {f.__name__: f for f in (direct, ring, recursive_doubling, halving_doubling)}
