"""Several hops: the k-th successor of a node, in a cycle that the row states edge by edge.

    0 2  3 0  1 3  2 1   +1 0  +3 3           the cycle 0 -> 2 -> 1 -> 3 -> 0
                            2     1           targets

One hop is recall; k hops compose it k times, so the number of hops that a model learns says how it uses its depth.

Allen-Zhu 2025, "Physics of Language Models: Part 4.1" (arXiv:2512.17351), the task Depo. There, nodes have names of one or
several tokens. Here, a node is one token, all nodes of a row lie on one cycle, training asks for 1 to ``hops`` successors, and
evaluations score the largest number alone.
"""

from collections.abc import Sequence

import numpy as np

from attnlab.errors import UserError
from attnlab.tasks import IGNORED, whole_number
from attnlab.tasks.diagnostics.base import Diagnostic, distinct, permutations


class KHop(Diagnostic):
    """Find the successor of the successor, up to ``hops`` times, in a cycle of ``nodes`` symbols.

    Args:
        hops: the largest number of hops of a query, from 1 to ``nodes`` - 2; evaluations score the queries that have it.
        nodes: symbols of a row, all different; each is followed by its successor, in random order.
        queries: queries of a row, each of a number of hops and a node.
        symbols: number of distinct symbols.
    """

    paper = "arXiv:2512.17351"
    levels = tuple({"hops": hops, "nodes": 8} for hops in (1, 2, 3, 4))
    steps = 1_000

    def __init__(self, *, hops: int = 2, nodes: int = 12, queries: int = 8, symbols: int = 32) -> None:
        self.hops = whole_number(hops, name="hops")
        self.nodes = whole_number(nodes, name="nodes", least=3)
        self.queries = whole_number(queries, name="queries")
        self.symbols = whole_number(symbols, name="symbols")
        if nodes > symbols:
            raise UserError(f"nodes: expected at most {symbols}, the number of symbols, got {nodes}")
        if hops > nodes - 2:
            raise UserError(f"hops: expected at most {nodes - 2} = {nodes} - 2, which leaves a choice, got {hops}")
        self.length = 2 * (nodes + queries)
        self.vocabulary = symbols + hops

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        cycle = distinct(rng, count, self.symbols, self.nodes)  # each is followed by the next one, the last by the first
        edges = np.stack([cycle, np.roll(cycle, -1, axis=1)], axis=2)
        edges = np.take_along_axis(edges, permutations(rng, count, self.nodes)[..., None], axis=1)
        hops = rng.integers(1, 1 + self.hops, size=(count, self.queries))
        start = rng.integers(self.nodes, size=hops.shape)
        inputs = np.empty((count, self.length), dtype=np.int64)
        targets = np.full(inputs.shape, IGNORED)
        inputs[:, : 2 * self.nodes] = edges.reshape(count, -1)
        inputs[:, 2 * self.nodes :: 2] = self.symbols + hops - 1
        inputs[:, 2 * self.nodes + 1 :: 2] = np.take_along_axis(cycle, start, axis=1)
        targets[:, 2 * self.nodes + 1 :: 2] = np.take_along_axis(cycle, (start + hops) % self.nodes, axis=1)
        return inputs, targets

    def solve(self, inputs: Sequence[int]) -> list[int]:
        edges, queries = inputs[: 2 * self.nodes], inputs[2 * self.nodes :]
        successor = dict(zip(edges[::2], edges[1::2], strict=True))
        targets = [IGNORED] * len(edges)
        for hops, node in zip(queries[::2], queries[1::2], strict=True):
            for _ in range(hops - self.symbols + 1):
                node = successor[node]
            targets += [IGNORED, node]
        return targets

    def evaluated_targets(self, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        deepest = np.roll(inputs, 1, axis=1) == self.symbols + self.hops - 1
        return np.where(deepest, targets, IGNORED)

    def chance(self) -> float:
        """Return the accuracy of a model that follows all hops but the last one.

        The node that it reaches leads to any of the nodes that fewer hops do not reach, all equally likely.
        """
        return 1 / (self.nodes - self.hops)

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(str(token) if token < self.symbols else f"+{token - self.symbols + 1}" for token in ids)
