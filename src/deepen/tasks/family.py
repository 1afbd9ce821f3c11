"""Relational composition over text: does the claimed relation follow from the facts?

    Alice is the parent of Bob.  Bob is the child of Carol.      (+1) + (-1) = 0
    query: Alice is the sibling of Carol?                        sibling = 0: yes, difficulty 2

A relation is a signed offset of generations; hops add up. Difficulty is the number of hops in the
chain from the first queried person to the second. Facts are shuffled, and some are about others.
Names are exchangeable: a question may use any, up to as many as the model has name tokens.
"""

import re
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np

from deepen.shapes import Encoded
from deepen.tasks.task import QuestionError, Sampler, Split, Task

MAX_OFFSET = 12
NAMES = [
    *("Alice", "Bob", "Carol", "David", "Eve", "Frank", "Grace", "Henry", "Irene", "Jack"),
    *("Karen", "Leo", "Mary", "Nathan", "Olivia", "Paul", "Quinn", "Rachel", "Sam", "Tina"),
]


def _relation_word(offset: int) -> str:
    """sibling, parent, grandchild, great-grandparent, ...: one word an offset."""
    if offset == 0:
        return "sibling"
    word = "parent" if offset > 0 else "child"
    return word if abs(offset) == 1 else "great-" * (abs(offset) - 2) + "grand" + word


OFFSETS = {_relation_word(offset): offset for offset in range(-MAX_OFFSET, MAX_OFFSET + 1)}
WORDS = {offset: word for word, offset in OFFSETS.items()}
TOKENS = ("<pad>", "<cls>", "<sep>", "is", "the", "of", ".", "query", "?", *OFFSETS, *NAMES)
IDS = {token: number for number, token in enumerate(TOKENS)}
SENTENCE = re.compile(r"\s*(?P<subject>\S.*?) is the (?P<relation>\S+) of (?P<object>\S.*?)\s*[.?]?\s*")


class Family(Task):
    name = "family"
    difficulty_name = "depth"
    vocabulary = len(TOKENS)
    too_many = "different names"

    @property
    def samplers(self) -> Mapping[str, Sampler]:
        return {"paper": _sample_paper}

    def verify(self, question: Any) -> bool:
        """Compose hops outward from the first queried person, over facts read in both directions."""
        hops: dict[str, list[tuple[str, int]]] = {}
        for fact in question["facts"]:
            subject, relation, other = re.split(r" is the | of ", fact)
            hops.setdefault(subject, []).append((other, OFFSETS[relation]))
            hops.setdefault(other, []).append((subject, -OFFSETS[relation]))
        subject, claimed, other = re.split(r" is the | of ", question["query"])
        offset_of = {subject: 0}
        queue = [subject]
        for person in queue:
            for neighbour, offset in hops.get(person, ()):
                if neighbour not in offset_of:
                    offset_of[neighbour] = offset_of[person] + offset
                    queue.append(neighbour)
        return offset_of.get(other) == OFFSETS[claimed]

    def encode(self, question: Any) -> Encoded:
        """<cls>, the facts with full stops, <sep>, the query with a question mark."""
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
        ids = [IDS["<cls>"]]
        for subject, relation, other in sentences:
            ids += _sentence_ids(name_ids[subject], relation, name_ids[other], ".")
        ids += [
            IDS["<sep>"],
            IDS["query"],
            *_sentence_ids(name_ids[asked[0]], asked[1], name_ids[asked[2]], "?"),
        ]
        return Encoded(tokens=np.array(ids, dtype=np.int64))

    def parse(self, text: str) -> Any:
        """Sentences separated by full stops; the last one, with a question mark, is the query."""
        sentences = [sentence.strip() for sentence in re.split(r"[.?\n]", text)]
        *facts, query = [sentence for sentence in sentences if sentence] or [""]
        return {"facts": facts, "query": query}


def _name_ids(names: list[str]) -> dict[str, int]:
    """Known names keep their own id; any other takes a free one, past the table's end when none is left."""
    named = dict.fromkeys(names)
    free = [IDS[name] for name in NAMES if name not in named]
    free += range(len(TOKENS), len(TOKENS) + len(named))
    return {name: IDS[name] if name in NAMES else free.pop(0) for name in named}


def _sentence_ids(subject: int, relation: str, other: int, end: str) -> list[int]:
    return [subject, IDS["is"], IDS["the"], IDS[relation], IDS["of"], other, IDS[end]]


def _read(sentence: Any, where: str) -> tuple[str, str, str]:
    """Subject, relation and object of one sentence."""
    match = SENTENCE.fullmatch(sentence) if isinstance(sentence, str) else None
    if match is None:
        raise QuestionError(f"{where}: expected 'NAME is the RELATION of NAME', got {sentence!r}")
    if match["relation"] not in OFFSETS:
        known = "parent, child, sibling, grandparent, grandchild, great-grandparent, ..."
        raise QuestionError(f"{where}: unknown relation {match['relation']!r} (expected {known})")
    return match["subject"], match["relation"], match["object"]


def _sample_paper(rng: Random, depth: int, positive: bool, split: Split) -> tuple[Any, bool]:
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
    return {"facts": facts, "query": _sentence(chain[0], WORDS[claimed], chain[-1])}, positive


def _sentence(subject: str, relation: str, other: str) -> str:
    return f"{subject} is the {relation} of {other}"
