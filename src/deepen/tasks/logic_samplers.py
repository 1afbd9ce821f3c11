"""How expressions are drawn, one sampler for each distribution of the logic task."""

from dataclasses import replace
from random import Random

from deepen.tasks.task import Example, Split

MAX_CHARACTERS = 127
MAX_TRIES = 2_000
MAX_CRITICAL_DEPTH = 64

Terms = list[bool]
"""An expression without outer parentheses: the values of the conjunctions that are OR-ed together."""


def sample_paper(rng: Random, depth: int, positive: bool, split: Split) -> Example:
    """The published generator; labels fall as they fall (`positive` is not used)."""
    shortest = 4 * depth + 1  # each level adds two parentheses, an operator and a literal
    for _ in range(MAX_TRIES if shortest <= MAX_CHARACTERS else 0):
        text, terms = _expression(rng, depth)
        if len(text) <= MAX_CHARACTERS:
            return Example(question=text, label=any(terms), difficulty=depth)
    raise ValueError(f"no expression of depth {depth} in {MAX_CHARACTERS} characters: choose a smaller depth")


def _expression(rng: Random, depth: int) -> tuple[str, Terms]:
    if depth == 0:
        return _atom(rng)
    shallower = range(depth)
    (other_depth,) = rng.choices(shallower, weights=[2 ** (depth - 1 - k) for k in shallower])
    deep, other = _expression(rng, depth - 1), _expression(rng, other_depth)
    text, terms = _join(rng, deep, other)
    if rng.random() < 0.25:
        return f"!({text})", [not any(terms)]
    return f"({text})", [any(terms)]


def _atom(rng: Random) -> tuple[str, Terms]:
    kind = rng.random()
    if kind < 0.5:
        return _literal(rng)
    if kind < 0.75:
        text, (value,) = _literal(rng)
        return f"!{text}", [not value]
    return _join(rng, _literal(rng), _literal(rng))


def _literal(rng: Random) -> tuple[str, Terms]:
    return ("T", [True]) if rng.random() < 0.5 else ("F", [False])


def _join(rng: Random, left: tuple[str, Terms], right: tuple[str, Terms]) -> tuple[str, Terms]:
    """Two expressions side by side; an AND binds only the conjunctions that touch it."""
    (left_text, a), (right_text, b) = left, right
    if rng.random() < 0.5:
        return f"{left_text}&{right_text}", [*a[:-1], a[-1] and b[0], *b[1:]]
    return f"{left_text}|{right_text}", a + b


def sample_lesson(rng: Random, depth: int, positive: bool, split: Split) -> Example:
    """Half of them certified, half as published; of the shallowest some without any parentheses."""
    if rng.random() < 0.5:
        return replace(sample_certified(rng, depth, positive, split), certificate=None)
    example = sample_paper(rng, depth, positive, split)
    if depth == 1 and rng.random() < 0.5 and example.question.startswith("("):
        inside = example.question[1:-1]
        if "(" not in inside:
            return replace(example, question=inside)
    return example


def sample_long_lesson(rng: Random, depth: int, positive: bool, split: Split) -> Example:
    """Half of them lessons, half with long groups; of each half one in two is full of double negations."""
    if rng.random() < 0.5:
        example = sample_lesson(rng, depth, positive, split)
    else:
        example = replace(sample_certified(rng, depth, positive, split, long=0.2), certificate=None)
    if rng.random() < 0.5:
        symbols = (
            "!!" + symbol if symbol in "TF!(" and rng.random() < 0.15 else symbol
            for symbol in example.question
        )
        example = replace(example, question="".join(symbols))
    return example


def sample_certified(rng: Random, depth: int, positive: bool, split: Split, long: float = 0.0) -> Example:
    """Neutral levels, the critical one, and as many decoys below; nesting is the same for depths up to 8.

    `long` is the share of levels with up to 20 literals instead of up to 3.
    """
    if depth > MAX_CRITICAL_DEPTH:
        raise ValueError(f"certified expressions have a critical depth of at most {MAX_CRITICAL_DEPTH}")
    nesting = 2 * max(depth, 8) + rng.randint(0, 2)  # near the bottom it could be found from there
    levels = [_neutral(rng, long) for _ in range(depth - 1)]
    either, other = _deciding(rng, "|", long), _deciding(rng, "&", long)
    levels += [either, other]
    levels += [
        _neutral(rng, long) if rng.random() < 0.5 else _deciding(rng, rng.choice("&|"), long)
        for _ in range(nesting - depth - 1)
    ]
    negated = [rng.random() < 0.5 for _ in levels]
    true_if_or = sum(negated[:depth]) % 2 == 0
    if positive != true_if_or:
        levels[depth - 1], levels[depth] = other, either
    text = _literal_of(rng, rng.random() < 0.5)
    for (operator, literals), negate in zip(reversed(levels), reversed(negated), strict=True):
        slot = rng.randint(0, len(literals))
        parts = [*literals[:slot], text, *literals[slot:]]
        text = f"{'!' if negate else ''}({operator.join(parts)})"
    path = [(*level, negate) for level, negate in zip(levels, negated, strict=True)][:depth]
    return Example(question=text, label=positive, difficulty=depth, certificate={"path": path})


def _neutral(rng: Random, long: float) -> tuple[str, list[str]]:
    """A level whose literals leave the nested group's value as it is."""
    operator = rng.choice("&|")
    return operator, [_literal_of(rng, operator == "&") for _ in range(_how_many(rng, long))]


def _deciding(rng: Random, operator: str, long: float) -> tuple[str, list[str]]:
    """A level with at least one literal that settles its value, whatever is nested in it."""
    values = [rng.random() < 0.5 for _ in range(_how_many(rng, long))]
    values[rng.randrange(len(values))] = operator == "|"
    return operator, [_literal_of(rng, value) for value in values]


def _how_many(rng: Random, long: float) -> int:
    return rng.randint(4, 20) if long and rng.random() < long else rng.randint(1, 3)


def _literal_of(rng: Random, value: bool) -> str:
    """T or F, a quarter of the time as the negation of the other."""
    return ("T" if value else "F") if rng.random() < 0.75 else ("!F" if value else "!T")
