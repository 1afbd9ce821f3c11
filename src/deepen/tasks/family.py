"""Relational composition over text: does the claimed relation follow from the facts?

    Alice is the parent of Bob.  Bob is the child of Carol.      (+1) + (-1) = 0
    query: Alice is the sibling of Carol?                        sibling = 0: yes, difficulty 2

A relation is a signed offset of generations; hops add up. Difficulty is the number of hops in the
chain from the first queried person to the second. Facts are shuffled, and some are about others.
Names are exchangeable: a question may use any, up to as many as the model has name tokens.

`certified` has a twin chain beside the true one, of the same length, whose hops are the same but for
one, and further decoy chains of that length, some growing out of it, until every text has 28 facts.
In the negative of a pair the two chains have changed relations, so every count of words and names is
the same. Hops are -2 to 2 in any order and the whole sums stay in that range. What a part of both
chains still gives away (a sum may leave the claim out of reach) is `chance_after`, exactly. In
`certified-inside` the chains go on before the first person that is asked about. In `certified-even` twins
are two generations apart, so that telling odd from even sums does not help.

`lessons`, to train on, has decoy chains that drift, and often fewer facts.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice, pairwise
from random import Random
from typing import Any

import numpy as np

from deepen.shapes import Encoded, Lesson
from deepen.tasks.family_samplers import (
    CERTIFIED_FACTS,
    MORE_NAMES,
    NAMES,
    OFFSETS,
    WORDS,
    sample_certified,
    sample_lesson,
    sample_paper,
)
from deepen.tasks.task import Example, QuestionError, Sampler, Task, in_sentences, parse_json

SUBJECT, RELATION, OTHER = 0, 3, 5  # places in a sentence
# Names come last, those of the published vocabulary first.
# A model that tells names only by where they recur has rows for what comes before them, and one for all.
TOKENS = ("<pad>", "<cls>", "<sep>", "is", "the", "of", ".", "query", "?", *OFFSETS, *NAMES, *MORE_NAMES)
IDS = {token: number for number, token in enumerate(TOKENS)}

JSON_EXAMPLE = '{"facts": ["Ann is the parent of Bo"], "query": "Bo is the child of Ann"}'
EXAMPLE = "Ann is the parent of Bo. Bo is the child of Cy. Ann is the sibling of Cy?"
Routes = dict[int, dict[int, list[tuple[int, int, int]]]]
"""By hops and sum: first and last person, and how far the last is from where its chain begins."""


class Family(Task):
    name = "family"
    difficulty_name = "depth"
    too_many = "different names"
    num_words = IDS[NAMES[0]]

    @property
    def samplers(self) -> Mapping[str, Sampler]:
        return {
            "paper": sample_paper,
            "certified": sample_certified,
            "certified-apex": partial(sample_certified, apex=True),
            "certified-inside": partial(sample_certified, inside=True),
            "certified-even": partial(sample_certified, apart=2),
            "lessons": sample_lesson,
        }

    def verify(self, question: Any) -> bool:
        """Compose hops outward from the first queried person, over facts read in both directions."""
        hops: dict[str, list[tuple[str, int]]] = {}
        for place, fact in enumerate(question["facts"]):
            subject, relation, other = _read(fact, f"facts[{place}]")
            hops.setdefault(subject, []).append((other, OFFSETS[relation]))
            hops.setdefault(other, []).append((subject, -OFFSETS[relation]))
        subject, claimed, other = _read(question["query"], "query")
        offset_of = {subject: 0}
        queue = [subject]
        for person in queue:
            for neighbour, offset in hops.get(person, ()):
                if neighbour not in offset_of:
                    offset_of[neighbour] = offset_of[person] + offset
                    queue.append(neighbour)
        return offset_of.get(other) == OFFSETS[claimed]

    def certifies(self, example: Example) -> bool:
        """Both chains are there, alone lead where they lead, and exactly one of them sums to the claim."""
        facts = [_read(fact, "facts") for fact in example.question["facts"]]
        relation = {(first, second): word for first, word, second in facts}
        first, claimed, last = _read(example.question["query"], "query")
        chain, twin = example.certificate["chain"], example.certificate["twin"]
        sums = [sum(OFFSETS[relation[hop]] for hop in pairwise(route)) for route in (chain, twin)]
        people = {name for hop in relation for name in hop}
        num_pieces = len(people) - len(facts)  # if no facts form a circle, as is checked next
        return bool(
            (chain[0], chain[-1]) == (first, last)
            and len(chain) == len(twin) == example.difficulty + 1
            and (sums[0] == OFFSETS[claimed]) == example.label
            and (sums[1] == OFFSETS[claimed]) != example.label
            and num_pieces == _count_pieces(people, relation)
            and len(facts) == max(CERTIFIED_FACTS, 2 * example.difficulty + 4)
        )

    def encode(self, question: Any) -> Encoded:
        """<cls>, the facts with full stops, <sep>, the query with a question mark."""
        facts, asked = self._numbered(question)
        words = [word for fact in facts for word in fact]
        ids = [IDS["<cls>"], *words, IDS["<sep>"], IDS["query"], *asked]
        return Encoded(tokens=np.array(ids, dtype=np.int64))

    def phrases(self, question: Any, words: int) -> Encoded:
        """A sentence each, the query first."""
        facts, asked = self._numbered(question)
        return in_sentences([asked], facts, words)

    def lesson(self, example: Example, words: int, num: int, hardest: int, rng: Random) -> Lesson:
        """Further queries, half of them from where a chain begins, as the first one, half from inside.

        If all began there, nobody would have to look at whom a claim is about: the sum from the beginning
        would do. Some are asked from the other side. Every length is asked as often as any other, and of a
        length every sum: long chains pass through sums that are rare in short ones. Sums become known from
        the beginning on: from there to the last person is how difficult a query is.
        """
        facts, asked = self._numbered(example.question)
        before = {fact[OTHER]: (fact[SUBJECT], OFFSETS[TOKENS[fact[RELATION]]]) for fact in facts}
        beginnings: Routes = {}
        inner: Routes = {}
        for last in before:
            line = list(islice(_upwards(last, before), hardest + 1))
            if len(line) > hardest:
                continue
            for hops, (first, total) in enumerate(line, start=1):
                if total in WORDS:
                    routes = beginnings if hops == len(line) else inner
                    routes.setdefault(hops, {}).setdefault(total, []).append((first, last, len(line)))
        right = dict(islice(_upwards(asked[OTHER], before), len(facts)))[asked[SUBJECT]]
        queries = [(asked, example.label, example.difficulty, WORDS.get(right))]
        while len(queries) < num:
            routes = rng.choice((beginnings, inner or beginnings))
            hops = rng.choice(list(routes))
            total = rng.choice(list(routes[hops]))
            first, last, difficulty = rng.choice(routes[hops][total])
            true = rng.random() < 0.5
            claim = total if true else _wrong_claim(rng, total, routes[hops])
            if rng.random() < 0.2:
                first, last, claim, total = last, first, -claim, -total
            queries.append((_sentence_ids(first, WORDS[claim], last, "?"), true, difficulty, WORDS[total]))
        asking, labels, difficulties, relations = zip(*queries, strict=True)
        return Lesson(
            encoded=in_sentences(asking, facts, words),
            asked=tuple(range(num)),
            labels=labels,
            difficulties=difficulties,
            words=tuple(0 if relation is None else IDS[relation] for relation in relations),
        )

    def _numbered(self, question: Any) -> tuple[list[list[int]], list[int]]:
        """The facts and the query, each as the ids of its words."""
        if not isinstance(question, Mapping) or set(question) != {"facts", "query"}:
            got = sorted(map(str, question)) if isinstance(question, Mapping) else type(question).__name__
            raise QuestionError(f"a family question is a mapping with 'facts' and 'query', got {got}")
        facts, query = question["facts"], question["query"]
        if not isinstance(facts, list | tuple) or not facts:
            raise QuestionError("'facts' must be a list of at least one sentence")
        sentences = [_read(fact, f"facts[{place}]") for place, fact in enumerate(facts)]
        for place, (subject, _, other) in enumerate(sentences):
            if subject == other:
                raise QuestionError(f"facts[{place}]: both people are {subject!r}")
        name_ids = _name_ids([name for subject, _, other in sentences for name in (subject, other)])
        asked = _read(query, "query")
        for name in (asked[0], asked[2]):
            if name not in name_ids:
                raise QuestionError(f"query: {name!r} is in none of the facts")
        if asked[0] == asked[2]:
            raise QuestionError(f"query: both people are {asked[0]!r}: ask about two people")
        known = [
            _sentence_ids(name_ids[subject], relation, name_ids[other], ".")
            for subject, relation, other in sentences
        ]
        return known, _sentence_ids(name_ids[asked[0]], asked[1], name_ids[asked[2]], "?")

    def parse(self, text: str) -> Any:
        """Sentences separated by full stops, the last one, with a question mark, being the query; or JSON."""
        if text.lstrip().startswith("{"):
            return parse_json(text, JSON_EXAMPLE)
        sentences = [sentence.strip() for sentence in re.split(r"[.?\n]", text)]
        *facts, query = [sentence for sentence in sentences if sentence] or [""]
        if not facts or text.count("?") != 1 or not text.rstrip().endswith("?"):
            raise QuestionError(f"expected facts and, last, a question: {EXAMPLE!r}")
        return {"facts": facts, "query": query}


def _upwards(person: int, before: Mapping[int, tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Who comes before a person in the facts, one after the other, with the sum of the hops between them.

    Without an end where facts form a circle.
    """
    total = 0
    while person in before:
        person, offset = before[person]
        total += offset
        yield person, total


def _count_pieces(people: set[str], hops: Iterable[tuple[str, str]]) -> int:
    """In how many unconnected pieces the facts leave the people."""
    piece = {name: name for name in people}

    def root(name: str) -> str:
        while piece[name] != name:
            name = piece[name]
        return name

    for first, second in hops:
        piece[root(first)] = root(second)
    return sum(piece[name] == name for name in people)


def _name_ids(names: list[str]) -> dict[str, int]:
    """Known names keep their own id; any other takes a free one, past the table's end when none is left.

    A text of few people stays within the published names, whichever names it uses.
    """
    named = dict.fromkeys(names)
    known = NAMES if len(named) <= len(NAMES) else NAMES + MORE_NAMES
    free = [IDS[name] for name in known if name not in named]
    free += range(len(TOKENS), len(TOKENS) + len(named))
    return {name: IDS[name] if name in known else free.pop(0) for name in named}


def _sentence_ids(subject: int, relation: str, other: int, end: str) -> list[int]:
    return [subject, IDS["is"], IDS["the"], IDS[relation], IDS["of"], other, IDS[end]]


def _wrong_claim(rng: Random, total: int, sums: Iterable[int]) -> int:
    """One generation off, or two, or the sum of another chain as long, or anything.

    Two, since who is only ever one off from the truth can do without sums: odd or even is enough.
    """
    one, two, others = (
        (total - 1, total + 1),
        (total - 2, total + 2),
        [other for other in sums if other != total],
    )
    ways = (one, one, two, others or two, list(WORDS))
    return rng.choice([claim for claim in rng.choice(ways) if claim in WORDS and claim != total])


def _read(sentence: Any, where: str) -> tuple[str, str, str]:
    """Subject, relation and object of one sentence."""
    # No regular expression: with two names of any length, a malformed one takes cubic time.
    text = sentence.strip() if isinstance(sentence, str) else ""
    subject, _, rest = text.removesuffix(".").removesuffix("?").rstrip().partition(" is the ")
    relation, _, other = rest.partition(" of ")
    if not (subject and relation and other.strip()) or "\n" in text or " " in relation:
        raise QuestionError(f"{where}: expected 'NAME is the RELATION of NAME', got {sentence!r}")
    if relation not in OFFSETS:
        known = "parent, child, sibling, grandparent, grandchild, great-grandparent, ..."
        raise QuestionError(f"{where}: unknown relation {relation!r} (expected {known})")
    return subject.strip(), relation, other.strip()
