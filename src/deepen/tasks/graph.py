"""Graph reachability: is there a directed path from the source to the target?

    A -> B -> C        source A, target C: yes, difficulty 2 (hops of the shortest path)
    ^    |
    D <--+             source C, target A: no

Difficulty is the number of hops a positive needs; a negative of difficulty h comes from the same
range of sizes. The mask lets a thought cross one edge a step, so h steps are the least that can do.
"""

import json
from collections.abc import Mapping
from itertools import pairwise
from math import inf
from numbers import Integral
from random import Random
from typing import Any

import numpy as np

from deepen.shapes import Encoded
from deepen.tasks.task import QuestionError, Sampler, Split, Task

Edge = tuple[int, int]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Graph(Task):
    name = "graph"
    difficulty_name = "hops"
    vocabulary = 1 + len(LETTERS)  # padding and 26 node letters
    too_many = "nodes"

    @property
    def samplers(self) -> Mapping[str, Sampler]:
        return {"paper": _sample_paper, "cut": _sample_cut}

    def verify(self, question: Any) -> bool:
        """Breadth-first search by name over the question's own edges."""
        successors: dict[Any, list[Any]] = {}
        for start, end in question["edges"]:
            successors.setdefault(start, []).append(end)
        seen = {question["source"]}
        frontier = [question["source"]]
        while frontier:
            frontier = [end for start in frontier for end in successors.get(start, ()) if end not in seen]
            seen.update(frontier)
        return question["target"] in seen

    def encode(self, question: Any) -> Encoded:
        if not isinstance(question, Mapping):
            raise QuestionError(
                'a graph question is a mapping like {"edges": [["a", "b"]], "source": "a", "target": "b"},'
                f" got {type(question).__name__}"
            )
        expected = ("edges", "source", "target")
        for key in expected:
            if key not in question:
                raise QuestionError(f"the question has no '{key}' (expected: {', '.join(expected)})")
        for key in question:
            if key not in (*expected, "nodes"):
                raise QuestionError(
                    f"unknown key '{key}' (expected: {', '.join(expected)}, optionally nodes)"
                )
        index = _index_nodes(question)
        edges = [(index[start], index[end]) for start, end in question["edges"]]
        query = tuple(_find(index, role, question[role]) for role in ("source", "target"))
        if query[0] == query[1]:
            raise QuestionError(f"source and target are both {question['source']!r}: ask about two nodes")
        return Encoded(
            tokens=np.arange(1, len(index) + 1),
            edges=np.array(edges, dtype=np.int64).reshape(-1, 2),
            query=(query[0], query[1]),
        )

    def parse(self, text: str) -> Any:
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise QuestionError(
                f"not JSON ({error}); expected e.g. "
                '\'{"edges": [["a", "b"], ["b", "c"]], "source": "a", "target": "c"}\''
            ) from None


def _index_nodes(question: Mapping[str, Any]) -> dict[Any, int]:
    """Each node's position: in the order of `nodes` where given, else of first appearance."""
    nodes, edges = question.get("nodes"), question["edges"]
    if not isinstance(edges, list | tuple):
        raise QuestionError(f"'edges' must be a list of [from, to] pairs, got {type(edges).__name__}")
    if nodes is not None and not isinstance(nodes, list | tuple):
        raise QuestionError(f"'nodes' must be a list of names, got {type(nodes).__name__}")
    if not edges and not nodes:
        raise QuestionError("the graph is empty: expected at least one edge, or a list of 'nodes'")
    index: dict[Any, int] = {}
    for place, node in enumerate(nodes or ()):
        if index.setdefault(_named(node, f"nodes[{place}]"), place) != place:
            raise QuestionError(f"nodes[{place}]: {node!r} is listed twice")
    for place, edge in enumerate(edges):
        if not isinstance(edge, list | tuple) or len(edge) != 2:
            raise QuestionError(f"edges[{place}]: expected a pair [from, to], got {edge!r}")
        for node in edge:
            if nodes is not None and _named(node, f"edges[{place}]") not in index:
                raise QuestionError(f"edges[{place}]: node {node!r} is not listed in 'nodes'")
            index.setdefault(_named(node, f"edges[{place}]"), len(index))
    return index


def _named(node: Any, where: str) -> str | int:
    """Names are strings or integers (JSON's true and false are neither)."""
    if isinstance(node, bool) or not isinstance(node, str | Integral):
        raise QuestionError(f"{where}: a node name is a string or an integer, got {node!r}")
    return node if isinstance(node, str) else int(node)


def _find(index: dict[Any, int], role: str, node: Any) -> int:
    if _named(node, role) not in index:
        raise QuestionError(
            f"{role}: node {node!r} is not in the graph (a node without edges must be listed in 'nodes')"
        )
    return index[node]


def _sample_paper(rng: Random, hops: int, positive: bool, split: Split) -> tuple[Any, bool]:
    """The published generator, with the published numbers of nodes."""
    if split == "train":
        smallest, largest = max(hops + 2, 8), max(hops + 2, 16)
    else:
        smallest, largest = max(hops + 2, 10), min(max(hops + 6, 16), 20)
    if hops + 2 > largest:
        raise ValueError(f"the paper's graphs have at most {largest} nodes: no {hops} hops there; try 'cut'")
    num_nodes = rng.randint(smallest, largest)
    graph = _positive(rng, hops, num_nodes) if positive else _random_negative(rng, num_nodes)
    return _question(num_nodes, *graph), positive


def _sample_cut(rng: Random, hops: int, positive: bool, split: Split) -> tuple[Any, bool]:
    """As `paper` in any size; every other negative is a positive with its one route cut."""
    smallest = max(hops + 2, 8 if split == "train" else 10)
    largest = max(hops + 6, 16, 6 * hops // 5) if split != "train" else max(hops + 2, 16)
    num_nodes = rng.randint(smallest, largest)
    if positive:
        graph = _positive(rng, hops, num_nodes)
    elif rng.random() < 0.5:
        graph = _cut_negative(rng, hops, num_nodes)
    else:
        graph = _random_negative(rng, num_nodes)
    return _question(num_nodes, *graph), positive


def _question(num_nodes: int, edges: list[Edge], source: int, target: int) -> dict[str, Any]:
    """Nodes are named by the alphabet while it lasts, and listed, as some have no edges."""
    names = list(LETTERS[:num_nodes]) + [f"N{i}" for i in range(len(LETTERS), num_nodes)]
    return {
        "nodes": names,
        "edges": [[names[start], names[end]] for start, end in edges],
        "source": names[source],
        "target": names[target],
    }


def _candidates(rng: Random, num_nodes: int) -> list[Edge]:
    """U{n//2 .. 2n} random directed edges between two nodes; a second draw of one is dropped."""
    drawn: dict[Edge, None] = {}
    for _ in range(rng.randint(num_nodes // 2, 2 * num_nodes)):
        start, end = int(rng.random() * num_nodes), int(rng.random() * (num_nodes - 1))
        drawn[start, end + (end >= start)] = None
    return list(drawn)


def _positive(rng: Random, hops: int, num_nodes: int) -> tuple[list[Edge], int, int]:
    """A random simple path and random edges, those that would shorten it left out."""
    path = rng.sample(range(num_nodes), hops + 1)
    route = list(pairwise(path))
    edges = _grow(rng, route, path[0], path[-1], num_nodes, shortest=hops)
    return edges, path[0], path[-1]


def _cut_negative(rng: Random, hops: int, num_nodes: int) -> tuple[list[Edge], int, int]:
    """A positive whose routes all share one edge, without that edge."""
    path = rng.sample(range(num_nodes), hops + 1)
    route = list(pairwise(path))
    del route[rng.randrange(hops)]
    edges = _grow(rng, route, path[0], path[-1], num_nodes, shortest=inf)
    return edges, path[0], path[-1]


def _random_negative(rng: Random, num_nodes: int) -> tuple[list[Edge], int, int]:
    """Random edges, and the first unreachable ordered pair of a shuffled node list."""
    edges = _candidates(rng, num_nodes)
    order = rng.sample(range(num_nodes), num_nodes)
    following = [0] * num_nodes  # bit sets of successors
    for start, end in edges:
        following[start] |= 1 << end
    for source in order:
        reached = fresh = 1 << source
        while fresh:
            found = 0
            while fresh:
                lowest = fresh & -fresh
                found |= following[lowest.bit_length() - 1]
                fresh ^= lowest
            fresh = found & ~reached
            reached |= found
        for target in order:
            if not reached >> target & 1:
                return edges, source, target
    # Everyone reaches everyone: keep the edges inside two halves only.
    left = set(order[: num_nodes // 2])
    return [(a, b) for a, b in edges if (a in left) == (b in left)], order[0], order[-1]


def _grow(
    rng: Random, route: list[Edge], source: int, target: int, num_nodes: int, shortest: float
) -> list[Edge]:
    """Add random edges, except those that would bring the target nearer than `shortest`."""
    after: list[list[int]] = [[] for _ in range(num_nodes)]
    before: list[list[int]] = [[] for _ in range(num_nodes)]
    from_source = [inf] * num_nodes
    to_target = [inf] * num_nodes
    from_source[source] = to_target[target] = 0
    edges: list[Edge] = []
    for start, end in route + [edge for edge in _candidates(rng, num_nodes) if edge not in route]:
        if from_source[start] + 1 + to_target[end] >= shortest:
            edges.append((start, end))
            after[start].append(end)
            before[end].append(start)
            _relax(from_source, after, start)
            _relax(to_target, before, end)
    return edges


def _relax(distance: list[float], neighbours: list[list[int]], start: int) -> None:
    """Repair breadth-first distances after an edge was added at `start`."""
    queue = [start]
    for node in queue:
        further = distance[node] + 1
        for neighbour in neighbours[node]:
            if further < distance[neighbour]:
                distance[neighbour] = further
                queue.append(neighbour)
