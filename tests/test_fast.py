"""The fast path against the plain one. What needs a GPU is skipped where there is none, and says so."""

from __future__ import annotations

import torch

from tightrope.fast import BlockNetwork, quick
from tightrope.network import build_network


def test_the_block_network_is_the_papers() -> None:
    """The same values and the same gradients, in float32 to rounding."""
    plain = build_network("paper", (4, 84, 84), 6, 1 / 255, 3)
    assert isinstance(quick(plain), BlockNetwork)
    assert not isinstance(quick(build_network("mlp", (4,), 6, 1.0, 3)), BlockNetwork)
    fast = BlockNetwork(plain, torch.float32)
    states = torch.randint(0, 256, (5, 4, 84, 84), dtype=torch.uint8)
    torch.testing.assert_close(fast(states), plain(states), rtol=1e-4, atol=1e-5)
    pull = torch.randn(5, 6)
    gradients = []
    for network in (plain, fast):
        network.zero_grad()
        network(states).backward(pull)
        gradients.append([p.grad.clone() for p in network.parameters() if p.grad is not None])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_bfloat16_is_close() -> None:
    plain = build_network("paper", (4, 84, 84), 6, 1 / 255, 3)
    states = torch.randint(0, 256, (8, 4, 84, 84), dtype=torch.uint8)
    with torch.no_grad():
        torch.testing.assert_close(BlockNetwork(plain, torch.bfloat16)(states), plain(states), rtol=0.05, atol=0.02)
