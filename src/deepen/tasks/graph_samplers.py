"""How graphs and questions about them are drawn, one sampler for each distribution of the graph task."""

from dataclasses import replace
from itertools import pairwise
from math import inf
from random import Random
from typing import Any

from deepen.tasks.task import Example, Split

Edge = tuple[int, int]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def sample_paper(rng: Random, hops: int, positive: bool, split: Split) -> Example:
    """The published generator, with the published numbers of nodes."""
    if split == "train":
        smallest, largest = max(hops + 2, 8), max(hops + 2, 16)
    else:
        smallest, largest = max(hops + 2, 10), min(max(hops + 6, 16), 20)
    if hops + 2 > largest:
        raise ValueError(f"the paper's graphs have at most {largest} nodes: no {hops} hops there; try 'cut'")
    num_nodes = rng.randint(smallest, largest)
    graph = _positive(rng, hops, num_nodes) if positive else _random_negative(rng, num_nodes)
    return Example(question=_question(rng, num_nodes, *graph), label=positive, difficulty=hops)


def sample_letters(rng: Random, hops: int, positive: bool, split: Split) -> Example:
    """As `paper`, the nodes' letters drawn from the whole alphabet: training sees every one of them."""
    example = sample_paper(rng, hops, positive, split)
    question = example.question
    letter = dict(zip(question["nodes"], rng.sample(LETTERS, len(question["nodes"])), strict=True))
    renamed = {
        "nodes": list(LETTERS),  # a letter's token is its place here; those without edges tell nothing
        "edges": [[letter[start], letter[end]] for start, end in question["edges"]],
        "source": letter[question["source"]],
        "target": letter[question["target"]],
    }
    return replace(example, question=renamed)


def sample_cut(rng: Random, hops: int, positive: bool, split: Split) -> Example:
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
    return Example(question=_question(rng, num_nodes, *graph), label=positive, difficulty=hops)


def sample_certified(rng: Random, hops: int, positive: bool, split: Split) -> Example:
    """A route from node 0 to node h, its mirror image, and more edges in mirrored pairs."""
    fewest, most = (4, 8) if split == "train" else (5, max(8, hops + 4, 6 * hops // 5))
    half = rng.randint(max(hops + 2, fewest), max(hops + 2, most))
    is_cause = rng.random() < 0.5
    # No edge spans more than one level, so no way from level 0 to level h has fewer than h edges.
    level = list(range(hops + 1)) + [rng.randint(0, hops) for _ in range(half - hops - 1)]
    near = [[v for v in range(half) if abs(level[u] - level[v]) <= 1] for u in range(half)]
    graph = Mirrored(half, source=0, end=hops)
    for node in range(hops):
        graph.add_pair(node, node + 1)
    # One more node joins both images, as the cause or the effect of a node in each: only who minds the
    # direction of edges can tell that the source does not reach the mirror image.
    joint = hops + 1
    here, there = (rng.choice([v for v in near[joint] if 1 <= v <= hops]) for _ in range(2))
    for other in (here, graph.image(there)):
        graph.add_pair(*((joint, other) if is_cause else (other, joint)))
    for _ in range(rng.randint(half // 2, 2 * half)):
        start = int(rng.random() * half)
        to = near[start][int(rng.random() * len(near[start]))]
        crosses = rng.random() < 0.5 or to == start
        graph.add_pair(start, graph.image(to) if crosses else to)
    order = rng.sample(range(2 * half), 2 * half)
    edges = [(order[start], order[to]) for start, to in graph.edges]
    mirror = graph.image(hops)
    question = _question(rng, 2 * half, edges, order[0], order[hops if positive else mirror])
    names = question["nodes"]
    route = [names[order[node]] for node in range(hops + 1)]
    certificate = {"route": route, "mirror": names[order[mirror]]}
    return Example(question=question, label=positive, difficulty=hops, certificate=certificate)


class Mirrored:
    """A graph and its mirror image, grown together; the source never reaches the image of the end.

    Nothing leads to the source: else a node before it could give it away, far from it, by its name.
    """

    def __init__(self, half: int, source: int, end: int) -> None:
        self.half = half
        self.source = source
        self.edges: dict[Edge, None] = {}
        self._after, self._before = [0] * (2 * half), [0] * (2 * half)  # bit sets of neighbours
        self._reached, self._reaching = 1 << source, 1 << self.image(end)  # by the source; the image

    def image(self, node: int) -> int:
        return node + self.half if node < self.half else node - self.half

    def add_pair(self, start: int, to: int) -> None:
        """Add an edge and its image, unless they open a way from the source to the image of the end."""
        if (start, to) in self.edges or to in (self.source, self.image(self.source)):
            return
        saved = self._reached, self._reaching
        if self._add(start, to) and not self._add(self.image(start), self.image(to)):
            del self.edges[start, to]
            self._after[start] ^= 1 << to
            self._before[to] ^= 1 << start
            self._reached, self._reaching = saved

    def _add(self, start: int, to: int) -> bool:
        if self._reached >> start & 1 and self._reaching >> to & 1:
            return False
        self.edges[start, to] = None
        self._after[start] |= 1 << to
        self._before[to] |= 1 << start
        if self._reached >> start & 1:
            self._reached = _flood(self._reached, 1 << to, self._after)
        if self._reaching >> to & 1:
            self._reaching = _flood(self._reaching, 1 << start, self._before)
        return True


def _flood(seen: int, fresh: int, neighbours: list[int]) -> int:
    """Add to a bit set of nodes all that can be reached from the fresh ones."""
    fresh &= ~seen
    while fresh:
        seen |= fresh
        found = 0
        while fresh:
            lowest = fresh & -fresh
            found |= neighbours[lowest.bit_length() - 1]
            fresh ^= lowest
        fresh = found & ~seen
    return seen


def _question(rng: Random, num_nodes: int, edges: list[Edge], source: int, target: int) -> dict[str, Any]:
    """Nodes are named by the alphabet while it lasts, and listed, as some have no edges."""
    names = list(LETTERS[:num_nodes]) + [f"N{i}" for i in range(len(LETTERS), num_nodes)]
    rng.shuffle(edges)
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
    distances = Distances(num_nodes, path[0], path[-1])
    edges = []
    for edge in dict.fromkeys([*pairwise(path), *_candidates(rng, num_nodes)]):
        if distances.through(edge) >= hops:
            distances.add(edge)
            edges.append(edge)
    return edges, path[0], path[-1]


def _cut_negative(rng: Random, hops: int, num_nodes: int) -> tuple[list[Edge], int, int]:
    """A positive of exactly so many hops whose routes all use one edge, without that edge."""
    path = rng.sample(range(num_nodes), hops + 1)
    route = list(pairwise(path))
    cut = route[rng.randrange(hops)]
    whole, without = Distances(num_nodes, path[0], path[-1]), Distances(num_nodes, path[0], path[-1])
    whole.add(cut)
    edges = []
    for edge in dict.fromkeys([*route, *_candidates(rng, num_nodes)]):
        if edge != cut and whole.through(edge) >= hops and without.through(edge) == inf:
            whole.add(edge)
            without.add(edge)
            edges.append(edge)
    return edges, path[0], path[-1]


def _random_negative(rng: Random, num_nodes: int) -> tuple[list[Edge], int, int]:
    """Random edges, and the first unreachable ordered pair of a shuffled node list."""
    edges = _candidates(rng, num_nodes)
    order = rng.sample(range(num_nodes), num_nodes)
    following = [0] * num_nodes  # bit sets of successors
    for start, end in edges:
        following[start] |= 1 << end
    for source in order:
        reached = _flood(0, 1 << source, following)
        for target in order:
            if not reached >> target & 1:
                return edges, source, target
    # Everyone reaches everyone: keep the edges inside two halves only.
    left = set(order[: num_nodes // 2])
    return [(a, b) for a, b in edges if (a in left) == (b in left)], order[0], order[-1]


class Distances:
    """Hops from the source and to the target, kept up to date while a graph grows."""

    def __init__(self, num_nodes: int, source: int, target: int) -> None:
        self.from_source, self.to_target = [inf] * num_nodes, [inf] * num_nodes
        self.from_source[source] = self.to_target[target] = 0
        self._after: list[list[int]] = [[] for _ in range(num_nodes)]
        self._before: list[list[int]] = [[] for _ in range(num_nodes)]

    def through(self, edge: Edge) -> float:
        """The length of the shortest way from the source to the target that uses a new edge."""
        return self.from_source[edge[0]] + 1 + self.to_target[edge[1]]

    def add(self, edge: Edge) -> None:
        start, end = edge
        self._after[start].append(end)
        self._before[end].append(start)
        _relax(self.from_source, self._after, start)
        _relax(self.to_target, self._before, end)


def _relax(distance: list[float], neighbours: list[list[int]], start: int) -> None:
    """Repair breadth-first distances after an edge was added at `start`."""
    queue = [start]
    for node in queue:
        further = distance[node] + 1
        for neighbour in neighbours[node]:
            if further < distance[neighbour]:
                distance[neighbour] = further
                queue.append(neighbour)
