"""Graph reachability: is there a directed path from the source to the target?

    A -> B -> C        source A, target C: yes, difficulty 2 (hops of the shortest path)
    ^    |
    D <--+             source C, target A: no

Difficulty is the number of hops a positive needs; a negative of difficulty h comes from the same
range of sizes. The mask lets a thought cross one edge a step, so h steps are the least that can do.

`certified` draws a graph and its mirror image, joined by more edges in mirrored pairs. The target is
the end of the source's own route, or that end's mirror image, which the source cannot reach: the same
graph, the same degrees, and no way to tell the two apart by following fewer than h edges in all. Who
follows edges only backwards, as the masked model does, learns nothing in h - 1 steps from both ends
even if it knows every node by name; who searches from both ends and compares names needs half as many.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from numbers import Integral
from random import Random
from typing import Any

import numpy as np

from deepen.shapes import Encoded, Lesson
from deepen.tasks.graph_samplers import sample_certified, sample_cut, sample_letters, sample_paper
from deepen.tasks.task import Example, QuestionError, Sampler, Task, in_sentences, parse_json

WORDS = ("<pad>", "is", "the", "way", "to", ".", "?", "start")  # of a graph that is told in sentences
START = WORDS.index("start")


class Graph(Task):
    name = "graph"
    difficulty_name = "hops"
    too_many = "nodes"
    num_words = len(WORDS)

    @property
    def samplers(self) -> Mapping[str, Sampler]:
        return {
            "paper": sample_paper,
            "letters": sample_letters,
            "cut": sample_cut,
            "certified": sample_certified,
        }

    def verify(self, question: Any) -> bool:
        """Breadth-first search by name over the question's own edges."""
        successors: dict[Any, list[Any]] = {}
        for start, end in question["edges"]:
            successors.setdefault(start, []).append(end)
        seen = {question["source"]}
        queue = [question["source"]]
        for node in queue:
            fresh = set(successors.get(node, ())) - seen
            seen |= fresh
            queue += fresh
        return question["target"] in seen

    def certifies(self, example: Example) -> bool:
        """The route is there, and its end and the mirror image of its end look alike up to h - 1 edges."""
        question, route = example.question, example.certificate["route"]
        end, mirror = route[-1], example.certificate["mirror"]
        edges = {(first, second) for first, second in question["edges"]}
        short = example.difficulty - 1
        source = question["source"]
        return bool(
            route[0] == source
            and len(route) == example.difficulty + 1
            and question["target"] == (end if example.label else mirror)
            and all(edge in edges for edge in pairwise(route))
            and self.verify({**question, "target": end})
            and not self.verify({**question, "target": mirror})
            and _view(question, end, source, short) == _view(question, mirror, source, short)
            and _view(question, source, end, short) == _view(question, source, mirror, short)
        )

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
        for key in (key for key in question if key not in (*expected, "nodes")):
            known = ", ".join(expected)
            raise QuestionError(f"unknown key '{key}' (expected: {known}, optionally nodes)")
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

    def phrases(self, question: Any, words: int) -> Encoded:
        """A sentence for each edge, "a is the way to b."; the source is called "start" in all of them.

        Told by its name, and in a sentence of its own which node that is, a model has to find out first what
        the others' first hop is; whether it ever does hangs on the seed.
        """
        encoded = self.encode(question)
        assert encoded.query is not None
        return self._told(encoded, [encoded.query[1]], words)

    def lesson(self, example: Example, words: int, num: int, hardest: int, rng: Random) -> Lesson:
        """Further questions are about other targets; every distance is asked as often as any other."""
        encoded = self.encode(example.question)
        assert encoded.edges is not None
        assert encoded.query is not None
        source, target = encoded.query
        hops = {source: 0}
        following: dict[int, list[int]] = {}
        for start, end in encoded.edges.tolist():
            following.setdefault(start, []).append(end)
        for node in (queue := [source]):
            for end in following.get(node, ()):
                if end not in hops:
                    hops[end] = hops[node] + 1
                    queue.append(end)
        never = [node for node in range(len(encoded.tokens)) if node not in hops]
        reached: dict[int, list[int]] = {}
        for node in queue[1:]:
            reached.setdefault(hops[node], []).append(node)
        near = [nodes for distance, nodes in reached.items() if distance <= hardest]
        targets, labels, difficulties = [target], [example.label], [example.difficulty]
        while len(targets) < num and near and never:
            labels.append(rng.random() < 0.5)
            targets.append(rng.choice(rng.choice(near) if labels[-1] else never))
            difficulties.append(hops.get(targets[-1], example.difficulty))
        told = self._told(encoded, targets, words)
        asked = tuple(range(len(targets)))
        return Lesson(
            encoded=told,
            asked=asked,
            labels=tuple(labels),
            difficulties=tuple(difficulties),
            words=(0,) * len(asked),  # yes or no is all there is to say
        )

    def _told(self, encoded: Encoded, targets: Sequence[int], words: int) -> Encoded:
        assert encoded.edges is not None
        assert encoded.query is not None
        called = [len(WORDS) + node for node in range(len(encoded.tokens))]
        called[encoded.query[0]] = START
        facts = [_sentence(called[start], called[end], ".") for start, end in encoded.edges.tolist()]
        asking = [_sentence(START, called[target], "?") for target in targets]
        return in_sentences(asking, facts, words)

    def parse(self, text: str) -> Any:
        return parse_json(text, '{"edges": [["a", "b"], ["b", "c"]], "source": "a", "target": "c"}')


def _sentence(start: int, end: int, mark: str) -> list[int]:
    return [start, *(WORDS.index(word) for word in ("is", "the", "way", "to")), end, WORDS.index(mark)]


def _view(question: Mapping[str, Any], observer: Any, marked: Any, num_edges: int) -> int:
    """All that an observer can learn by following so many edges, either way, where one node is marked."""
    neighbours: dict[Any, tuple[list[Any], list[Any]]] = {node: ([], []) for node in question["nodes"]}
    for start, end in question["edges"]:
        neighbours[start][1].append(end)
        neighbours[end][0].append(start)
    colour = {node: int(node == marked) for node in neighbours}
    for _ in range(num_edges):
        colour = {
            node: hash((colour[node], *(tuple(sorted(colour[other] for other in side)) for side in sides)))
            for node, sides in neighbours.items()
        }
    return colour[observer]


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
            if type(node) in (str, int) and node in index:
                continue  # as almost always
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
