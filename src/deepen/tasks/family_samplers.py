"""How families are drawn, one sampler for each distribution of the family task, and their words."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise, product
from random import Random

from deepen.tasks.task import Example, Split

MAX_OFFSET = 12
CERTIFIED_FACTS = 28  # of every certified text up to 12 hops
CERTIFIED_RANGE = 2  # certified hops and sums are offsets from -2 to 2
CERTIFIED_HOPS = range(-CERTIFIED_RANGE, CERTIFIED_RANGE + 1)
LEAPS = range(-8, 9)  # what a hop of a lesson's decoy may be
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


def sample_paper(rng: Random, depth: int, positive: bool, split: Split) -> Example:
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


def sample_certified(
    rng: Random,
    depth: int,
    positive: bool,
    split: Split,
    apex: bool = False,
    drift: bool = False,
    inside: bool = False,
    apart: int = 1,
) -> Example:
    """A true chain, its twin, and decoy chains; `apex` sorts the hops of each chain, ups first.

    With `drift` decoy chains go one way, then perhaps another: as a lesson, short ones then pass through the
    sums of long ones, there and back. With `inside` others come before the first of both chains, so that
    sums from where the facts begin are of no use. Twins are `apart` generations apart: if that is even,
    whether a sum is odd or even is of no use.
    """
    num_facts = max(CERTIFIED_FACTS, 2 * depth + 4)
    num_chains = num_facts // depth
    lengths = [depth] * num_chains + [num_facts % depth] * (num_facts % depth > 0)
    if inside and len(lengths) == 3:  # one before each of the two
        lengths[2:] = [lengths[2] // 2, lengths[2] - lengths[2] // 2]
    if sum(lengths) + len(lengths) > len(NAMES) + len(MORE_NAMES):
        raise ValueError(f"not enough names for certified chains of {depth} hops")
    names = rng.sample(NAMES + MORE_NAMES, sum(lengths) + len(lengths))
    right, wrong = twin_hops(rng, depth, apart)
    hops = [right, wrong] if positive else [wrong, right]
    for length in lengths[2:]:
        hops.append(_drifting(rng, length) if drift else [rng.choice(CERTIFIED_HOPS) for _ in range(length)])
    chains: list[list[str]] = []
    facts: list[str] = []
    for number, (length, offsets) in enumerate(zip(lengths, hops, strict=True)):
        people = [names.pop() for _ in range(length + 1)]
        if inside and number in (2, 3):
            people[-1] = chains[number - 2][0]
        elif number >= 2 and rng.random() < 0.5:
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


def sample_lesson(rng: Random, depth: int, positive: bool, split: Split) -> Example:
    """With drifting decoys; of every third text only a few of the facts beside the true chain are told."""
    example = sample_certified(rng, depth, positive, split, drift=True)
    facts, chain = example.question["facts"], set(pairwise(example.certificate["chain"]))
    if rng.random() < 1 / 3:
        others = [fact for fact in facts if (fact.split()[0], fact.split()[-1]) not in chain]
        told = set(rng.sample(others, rng.randint(0, rng.randint(0, len(others)))))
        facts = [fact for fact in facts if fact in told or fact not in others]
    return replace(example, question={**example.question, "facts": facts}, certificate=None)


def _drifting(rng: Random, length: int) -> list[int]:
    """Hops of one direction or of any, and from some hop on of another; often one that leaps.

    A leap shows in two hops what a long chain comes to only after many: how to go on from any sum.
    """
    ways = (range(-CERTIFIED_RANGE, 1), range(CERTIFIED_RANGE + 1), CERTIFIED_HOPS)
    before, after = rng.choice(ways), rng.choice(ways)
    turn = rng.randint(1, length)
    hops = [rng.choice(before if place < turn else after) for place in range(length)]
    if rng.random() < 0.5:
        rest = sum(hops[1:])
        hops[0] = rng.choice([leap for leap in LEAPS if abs(rest + leap) <= MAX_OFFSET])
    return hops


def twin_hops(rng: Random, depth: int, apart: int = 1) -> tuple[list[int], list[int]]:
    """Hops of two chains that differ in one place; both sums are in range."""
    values = CERTIFIED_HOPS
    while True:
        right = [rng.choice(values) for _ in range(depth)]
        place = rng.randrange(depth)
        if sum(right) in values and (exchanged := _replacements(sum(right), right[place], apart)):
            return right, [*right[:place], rng.choice(exchanged), *right[place + 1 :]]


def _replacements(total: int, hop: int, apart: int = 1) -> list[int]:
    """What one hop of a chain may be exchanged for: its neighbours, if hop and sum stay in range."""
    values = CERTIFIED_HOPS
    return [hop + step for step in (-apart, apart) if hop + step in values and total + step in values]


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
