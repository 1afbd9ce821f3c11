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
chains still gives away (a sum may leave the claim out of reach) is `chance_after`, exactly.

`lessons`, to train on, has decoy chains that drift, and often fewer facts.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from random import Random
from typing import Any

import numpy as np

from deepen.shapes import Encoded, Lesson
from deepen.tasks.task import Example, QuestionError, Sampler, Split, Task, in_sentences

MAX_OFFSET = 12
SUBJECT, RELATION, OTHER = 0, 3, 5  # places in a sentence
CERTIFIED_FACTS = 28  # of every certified text up to 12 hops
CERTIFIED_RANGE = 2  # certified hops and sums are offsets from -2 to 2
CERTIFIED_HOPS = range(-CERTIFIED_RANGE, CERTIFIED_RANGE + 1)
NAMES = [
    *("Alice", "Bob", "Carol", "David", "Eve", "Frank", "Grace", "Henry", "Irene", "Jack"),
    *("Karen", "Leo", "Mary", "Nathan", "Olivia", "Paul", "Quinn", "Rachel", "Sam", "Tina"),
]
MORE_NAMES = [
    *("Ursula", "Victor", "Wendy", "Xavier", "Yara", "Zach", "Amir", "Bella", "Cyrus", "Dina"),
    *("Emil", "Fiona", "Gideon", "Hana", "Ivan", "Judith", "Kurt", "Laura", "Milo", "Nora"),
    *("Oscar", "Petra", "Ralph", "Sonia", "Theo", "Ulla", "Vera", "Walter", "Xenia", "Yusuf"),
    *("Zelda", "Anton", "Birgit", "Clara", "Dario", "Elsa"),
]


def _relation_word(offset: int) -> str:
    """sibling, parent, grandchild, great-grandparent, ...: one word an offset."""
    if offset == 0:
        return "sibling"
    word = "parent" if offset > 0 else "child"
    return word if abs(offset) == 1 else "great-" * (abs(offset) - 2) + "grand" + word


OFFSETS = {_relation_word(offset): offset for offset in range(-MAX_OFFSET, MAX_OFFSET + 1)}
WORDS = {offset: word for word, offset in OFFSETS.items()}
# Names come last, those of the published vocabulary first.
# A model that tells names only by where they recur has rows for what comes before them, and one for all.
TOKENS = ("<pad>", "<cls>", "<sep>", "is", "the", "of", ".", "query", "?", *OFFSETS, *NAMES, *MORE_NAMES)
IDS = {token: number for number, token in enumerate(TOKENS)}


class Family(Task):
    name = "family"
    difficulty_name = "depth"
    too_many = "different names"
    num_words = IDS[NAMES[0]]

    @property
    def samplers(self) -> Mapping[str, Sampler]:
        return {
            "paper": _sample_paper,
            "certified": _sample_certified,
            "certified-apex": partial(_sample_certified, apex=True),
            "certified-drift": partial(_sample_certified, drift=True),
            "lessons": _sample_lesson,
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
        """Further queries are about people and those they all descend from in the facts.

        Every length is asked as often as any other, and of a length every sum: long chains pass through
        sums that are rare in short ones.
        """
        facts, asked = self._numbered(example.question)
        queries = [(asked, example.label, example.difficulty)]
        before = {fact[OTHER]: (fact[SUBJECT], OFFSETS[TOKENS[fact[RELATION]]]) for fact in facts}
        routes: dict[int, dict[int, list[tuple[int, int]]]] = {}  # hops -> sum -> first and last person
        for last in before:
            person, total, hops = last, 0, 0
            while person in before and hops <= hardest:
                person, offset = before[person]
                total, hops = total + offset, hops + 1
            if hops <= hardest:
                routes.setdefault(hops, {}).setdefault(total, []).append((person, last))
        while len(queries) < num:
            hops = rng.choice(list(routes))
            total = rng.choice(list(routes[hops]))
            first, last = rng.choice(routes[hops][total])
            true = rng.random() < 0.5
            claim = total if true else _wrong_claim(rng, total, routes[hops])
            queries.append((_sentence_ids(first, WORDS[claim], last, "?"), true, hops))
        asking, labels, difficulties = zip(*queries, strict=True)
        encoded = in_sentences(asking, facts, words)
        return Lesson(encoded=encoded, asked=tuple(range(num)), labels=labels, difficulties=difficulties)

    def _numbered(self, question: Any) -> tuple[list[list[int]], list[int]]:
        """The facts and the query, each as the ids of its words."""
        if not isinstance(question, Mapping) or set(question) != {"facts", "query"}:
            got = sorted(question) if isinstance(question, Mapping) else type(question).__name__
            raise QuestionError(f"a family question is a mapping with 'facts' and 'query', got {got}")
        facts, query = question["facts"], question["query"]
        if not isinstance(facts, list | tuple) or not facts:
            raise QuestionError("'facts' must be a list of at least one sentence")
        sentences = [_read(fact, f"facts[{place}]") for place, fact in enumerate(facts)]
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
        """Sentences separated by full stops; the last one, with a question mark, is the query."""
        sentences = [sentence.strip() for sentence in re.split(r"[.?\n]", text)]
        *facts, query = [sentence for sentence in sentences if sentence] or [""]
        return {"facts": facts, "query": query}


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
    """One generation off, or the sum of another chain as long, or sometimes anything.

    So that hardly any claim is likelier wrong than right.
    """
    near, others = [total - 1, total + 1], [other for other in sums if other != total]
    ways = (near, near, near, others or near, others or near, others or near, list(WORDS))
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


def _sample_paper(rng: Random, depth: int, positive: bool, split: Split) -> Example:
    """The published generator: up-hops, then down-hops; wrong claims keep the parity of the right one."""
    if depth > MAX_OFFSET:
        raise ValueError(f"the relation words end at {MAX_OFFSET} hops: no depth {depth}")
    names = rng.sample(NAMES, len(NAMES))
    chain, others = names[: depth + 1], names[depth + 1 :]
    num_up = rng.randint(0, depth)
    relations = ["parent"] * num_up + ["child"] * (depth - num_up)
    facts = [
        _sentence(first, relation, second)
        for first, relation, second in zip(chain, relations, chain[1:], strict=False)
    ]
    distractors: dict[tuple[str, str], str] = {}
    for _ in range(rng.randint(2, 4)):
        first, second = rng.sample(others, 2)
        distractors.setdefault((first, second), rng.choice(("parent", "child", "sibling")))
    facts += [_sentence(first, relation, second) for (first, second), relation in distractors.items()]
    rng.shuffle(facts)
    offset = claimed = 2 * num_up - depth
    if not positive:
        shifted = [max(-MAX_OFFSET, min(MAX_OFFSET, offset + shift)) for shift in (-4, -2, 2, 4)]
        claimed = rng.choice([wrong for wrong in shifted if wrong != offset])
    question = {"facts": facts, "query": _sentence(chain[0], WORDS[claimed], chain[-1])}
    return Example(question=question, label=positive, difficulty=depth)


def _sentence(subject: str, relation: str, other: str) -> str:
    return f"{subject} is the {relation} of {other}"


def _sample_certified(
    rng: Random, depth: int, positive: bool, split: Split, apex: bool = False, drift: bool = False
) -> Example:
    """A true chain, its twin, and decoy chains; `apex` sorts the hops of each chain, ups first.

    With `drift` decoy chains go one way, then perhaps another: as a lesson, short ones then pass through the
    sums of long ones, there and back.
    """
    num_facts = max(CERTIFIED_FACTS, 2 * depth + 4)
    num_chains = num_facts // depth
    lengths = [depth] * num_chains + [num_facts % depth] * (num_facts % depth > 0)
    if sum(lengths) + len(lengths) > len(NAMES) + len(MORE_NAMES):
        raise ValueError(f"not enough names for certified chains of {depth} hops")
    names = rng.sample(NAMES + MORE_NAMES, sum(lengths) + len(lengths))
    right, wrong = _twin_hops(rng, depth)
    hops = [right, wrong] if positive else [wrong, right]
    for length in lengths[2:]:
        hops.append(_drifting(rng, length) if drift else [rng.choice(CERTIFIED_HOPS) for _ in range(length)])
    chains: list[list[str]] = []
    facts: list[str] = []
    for number, (length, offsets) in enumerate(zip(lengths, hops, strict=True)):
        people = [names.pop() for _ in range(length + 1)]
        if number >= 2 and rng.random() < 0.5:
            people[0] = rng.choice(chains[rng.randrange(2)])  # grows out of the true chain or of its twin
        chains.append(people)
        ordered = sorted(offsets, reverse=True) if apex else offsets
        facts += [
            _sentence(first, WORDS[offset], second)
            for (first, second), offset in zip(pairwise(people), ordered, strict=True)
        ]
    rng.shuffle(facts)
    question = {"facts": facts, "query": _sentence(chains[0][0], WORDS[sum(right)], chains[0][-1])}
    certificate = {"chain": chains[0], "twin": chains[1]}
    return Example(question=question, label=positive, difficulty=depth, certificate=certificate)


def _sample_lesson(rng: Random, depth: int, positive: bool, split: Split) -> Example:
    """As `certified-drift`; of every third text only a few of the facts beside the true chain are told."""
    example = _sample_certified(rng, depth, positive, split, drift=True)
    facts, chain = example.question["facts"], set(pairwise(example.certificate["chain"]))
    if rng.random() < 1 / 3:
        others = [fact for fact in facts if (_read(fact, "")[0], _read(fact, "")[2]) not in chain]
        told = set(rng.sample(others, rng.randint(0, rng.randint(0, len(others)))))
        facts = [fact for fact in facts if fact in told or fact not in others]
    return replace(example, question={**example.question, "facts": facts}, certificate=None)


def _drifting(rng: Random, length: int) -> list[int]:
    """Hops of one direction or of any, and from some hop on of another."""
    ways = (range(-CERTIFIED_RANGE, 1), range(CERTIFIED_RANGE + 1), CERTIFIED_HOPS)
    before, after = rng.choice(ways), rng.choice(ways)
    turn = rng.randint(1, length)
    return [rng.choice(before if place < turn else after) for place in range(length)]


def _twin_hops(rng: Random, depth: int) -> tuple[list[int], list[int]]:
    """Hops of two chains that differ in one place; both sums are in range."""
    values = CERTIFIED_HOPS
    while True:
        right = [rng.choice(values) for _ in range(depth)]
        place = rng.randrange(depth)
        if sum(right) in values and (exchanged := _replacements(sum(right), right[place])):
            return right, [*right[:place], rng.choice(exchanged), *right[place + 1 :]]


def _replacements(total: int, hop: int) -> list[int]:
    """What one hop of a chain may be exchanged for: its neighbours, if hop and sum stay in range."""
    values = CERTIFIED_HOPS
    return [hop + step for step in (-1, 1) if hop + step in values and total + step in values]


def chance_after(depth: int, num_hops: int) -> float:
    """The best accuracy for who knows so many hops of the chain and of its twin, exactly.

    Counts the pairs of a right and a wrong chain by all that matters of what they show: the claim,
    both partial sums, and the hop that was exchanged if it is among those seen. The negative twin
    shows the same with right and wrong in exchanged places.
    """
    values = CERTIFIED_HOPS
    N: list[Counter[int]] = [Counter({0: 1})]  # N[j][s] chains of j hops sum to s
    for _ in range(depth):
        N.append(Counter())
        for total, count in N[-2].items():
            for value in values:
                N[-1][total + value] += count
    seen, unseen = num_hops, depth - num_hops
    pairs: defaultdict[tuple[int, int, int, int, int], float] = defaultdict(float)
    for claim, shown, hop in product(values, N[seen], values):
        exchanged = _replacements(claim, hop)
        if exchanged and unseen:
            pairs[claim, shown, shown, 0, 0] += unseen * N[seen][shown] * N[unseen - 1][claim - shown - hop]
        for value in exchanged if seen else ():
            ways = seen * N[seen - 1][shown - hop] * N[unseen][claim - shown]
            pairs[claim, shown, shown - hop + value, hop, value] += ways / len(exchanged)
    best = 0.0
    for claim, a, b, x, y in set(pairs) | {(claim, b, a, y, x) for claim, a, b, x, y in pairs}:
        best += max(pairs.get((claim, a, b, x, y), 0), pairs.get((claim, b, a, y, x), 0))
    return best / (2 * sum(pairs.values()))
