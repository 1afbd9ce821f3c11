"""What someone who does not reason can see of a question.

An observer has three kinds of eyes. `surfaces` are statistics that need no reasoning at all: degrees,
word counts. `after_steps` is all that so many steps of honest work can tell: the neighbourhood within
k edges, the top k levels, the sum of the first k hops. `numbers` are all surface statistics at once,
for a classifier that may combine them as it likes.
"""

import re
from collections import Counter
from collections.abc import Hashable
from itertools import accumulate, pairwise
from typing import Any, Protocol

from deepen.tasks.family_samplers import OFFSETS
from deepen.tasks.logic import chance_of_true

CROWD = 12  # more nodes than this are just many: a look-up table needs keys that come back


class Observer(Protocol):
    """The shortcuts of one task."""

    def surfaces(self, question: Any) -> dict[str, Hashable]:
        """Named statistics that cost no step of reasoning."""
        ...

    def after_steps(self, question: Any, most: int) -> list[tuple[Hashable, ...]]:
        """What can be known after 0, 1, ..., `most` steps, the most telling first."""
        ...

    def numbers(self, question: Any) -> list[float]:
        """Every surface statistic as a number."""
        ...


class GraphObserver:
    """Sees degrees; each step follows one more edge, backwards from the target, forwards from the source."""

    def surfaces(self, question: Any) -> dict[str, Hashable]:
        starts, ends = Counter(a for a, _ in question["edges"]), Counter(b for _, b in question["edges"])
        source, target = question["source"], question["target"]
        return {
            "degrees of source and target": (starts[source], ends[target]),
            "all four degrees": (starts[source], ends[source], starts[target], ends[target]),
            "nodes and edges": (len(question["nodes"]), len(question["edges"])),
        }

    def after_steps(self, question: Any, most: int) -> list[tuple[Hashable, ...]]:
        after: dict[Any, set[Any]] = {node: set() for node in question["nodes"]}
        before: dict[Any, set[Any]] = {node: set() for node in question["nodes"]}
        for start, end in question["edges"]:
            after[start].add(end)
            before[end].add(start)
        source, target = question["source"], question["target"]
        behind, ahead = {target}, {source}
        new_behind, new_ahead = {target}, {source}
        views: list[tuple[Hashable, ...]] = [(False,)]
        for _ in range(most):
            new_behind = set().union(*(before[node] for node in new_behind)) - behind
            new_ahead = set().union(*(after[node] for node in new_ahead)) - ahead
            behind |= new_behind
            ahead |= new_ahead
            # Growth that has stopped short of the other end is proof that there is no path.
            exhausted = not new_behind or not new_ahead
            views.append((source in behind, exhausted, min(len(behind), CROWD), min(len(ahead), CROWD)))
        return views

    def numbers(self, question: Any) -> list[float]:
        starts, ends = Counter(a for a, _ in question["edges"]), Counter(b for _, b in question["edges"])
        num_nodes, num_edges = len(question["nodes"]), len(question["edges"])
        own = [count[question[role]] for role in ("source", "target") for count in (starts, ends)]
        spread = [
            sum(count[node] == d for node in question["nodes"]) for count in (starts, ends) for d in range(5)
        ]
        return [*own, *spread, num_nodes, num_edges, num_edges / num_nodes, max(starts.values(), default=0)]


class LogicObserver:
    """Sees symbols; each step evaluates one more level from the top."""

    def surfaces(self, question: Any) -> dict[str, Hashable]:
        counts = Counter(question)
        return {
            "length": len(question) // 4,
            "nesting": _nesting(question),
            "leaves": (counts["T"] - counts["F"], counts["!"] % 2),
            "operators": (counts["&"] - counts["|"], counts["!"] % 2),
            "leaves against operators": (counts["T"] - counts["&"], counts["!"] % 2),
        }

    def after_steps(self, question: Any, most: int) -> list[tuple[Hashable, ...]]:
        chances = [chance_of_true(question, levels) for levels in range(most + 1)]
        return [((chance > 0.5) - (chance < 0.5),) for chance in chances]

    def numbers(self, question: Any) -> list[float]:
        counts = Counter(question)
        pairs = Counter(pairwise(question))
        symbols = "TF!&|("
        follows = [pairs[first, second] for first in "TF!&|()" for second in "TF!&|()"]
        return [*(counts[symbol] for symbol in symbols), *follows, len(question), _nesting(question)]


class FamilyObserver:
    """Sees words; each step adds one more hop of the route from the first queried person to the second."""

    def surfaces(self, question: Any) -> dict[str, Hashable]:
        facts, (first, claimed, last) = _read(question)
        counts = Counter(word for _, word, _ in facts)
        words = tuple(counts[word] for word in ("parent", "child", "sibling", "grandparent", "grandchild"))
        outer = tuple(sorted(word for a, word, b in facts if {a, b} & {first, last}))
        return {
            "counts of words and the query": (words, claimed),
            "sum of all words less the claim": sum(OFFSETS[word] for _, word, _ in facts) - OFFSETS[claimed],
            "the query alone": claimed,
            "facts that name the queried people": (outer, claimed),
        }

    def after_steps(self, question: Any, most: int) -> list[tuple[Hashable, ...]]:
        facts, (first, claimed, last) = _read(question)
        sums = list(accumulate(_route(facts, first, last), initial=0))
        views: list[tuple[Hashable, ...]] = []
        for steps in range(most + 1):
            done = steps >= len(sums) - 1
            left = OFFSETS[claimed] - sums[min(steps, len(sums) - 1)]
            views.append((done, left == 0) if done else (done, OFFSETS[claimed], left))
        return views

    def numbers(self, question: Any) -> list[float]:
        facts, (first, claimed, last) = _read(question)
        counts = Counter(word for _, word, _ in facts)
        named = Counter(name for a, _, b in facts for name in (a, b))
        places = [
            next(place for place, (a, _, b) in enumerate(facts) if name in (a, b)) for name in (first, last)
        ]
        often = [sum(times == n for times in named.values()) for n in range(1, 5)]
        words = [counts[word] for word in OFFSETS]
        return [*words, *places, *often, OFFSETS[claimed], named[first], named[last], len(facts), len(named)]


OBSERVERS: dict[str, Observer] = {
    "graph": GraphObserver(),
    "logic": LogicObserver(),
    "family": FamilyObserver(),
}


def _nesting(text: str) -> int:
    return max(accumulate((symbol == "(") - (symbol == ")") for symbol in text))


def _read(question: Any) -> tuple[list[list[str]], list[str]]:
    """Facts and query as [first person, relation, second person]."""
    return [re.split(r" is the | of ", fact) for fact in question["facts"]], re.split(
        r" is the | of ", question["query"]
    )


def _route(facts: list[list[str]], first: str, last: str) -> list[int]:
    """The offsets of the hops from one person to another, by the shortest way."""
    hops: dict[str, list[tuple[str, int]]] = {}
    for a, word, b in facts:
        hops.setdefault(a, []).append((b, OFFSETS[word]))
        hops.setdefault(b, []).append((a, -OFFSETS[word]))
    ways: dict[str, list[int]] = {first: []}
    queue = [first]
    for person in queue:
        for neighbour, offset in hops.get(person, ()):
            if neighbour not in ways:
                ways[neighbour] = [*ways[person], offset]
                queue.append(neighbour)
    return ways[last]
