"""Nested boolean expressions: is the expression true?

    !((T&F)|(!(T|F)))        = !(F | !T) = !(F | F) = T        difficulty 3 (nesting of parentheses)

NOT binds tighter than AND, AND tighter than OR. Difficulty is the nesting depth of the generator:
depth d is `(deep op other)`, one child of depth d-1 and one shallower.
"""

from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np

from deepen.shapes import Encoded
from deepen.tasks.task import QuestionError, Sampler, Split, Task

TOKENS = ("<pad>", "<cls>", "T", "F", "!", "&", "|", "(", ")")
IDS = {token: number for number, token in enumerate(TOKENS)}
MAX_CHARACTERS = 127
MAX_TRIES = 2_000

Terms = list[bool]
"""An expression without outer parentheses: the values of the conjunctions that are OR-ed together."""


class Logic(Task):
    name = "logic"
    difficulty_name = "depth"
    vocabulary = len(TOKENS)
    too_many = "symbols"

    @property
    def samplers(self) -> Mapping[str, Sampler]:
        return {"paper": _sample_paper}

    def verify(self, question: Any) -> bool:
        """An operator-precedence parser with explicit stacks: NOT > AND > OR."""
        strength = {"|": 1, "&": 2, "!": 3}
        values: list[bool] = []
        operators: list[str] = []

        def apply() -> None:
            operator = operators.pop()
            right = values.pop()
            if operator == "!":
                values.append(not right)
            else:
                left = values.pop()
                values.append((left and right) if operator == "&" else (left or right))

        for symbol in question:
            if symbol in "TF":
                values.append(symbol == "T")
            elif symbol in "(!":  # both wait for what follows
                operators.append(symbol)
            elif symbol == ")":
                while operators[-1] != "(":
                    apply()
                operators.pop()
            elif symbol in strength:
                while operators and strength.get(operators[-1], 0) >= strength[symbol]:
                    apply()
                operators.append(symbol)
        while operators:
            apply()
        return values.pop()

    def encode(self, question: Any) -> Encoded:
        """Token ids after <cls>; spaces between symbols are allowed and ignored."""
        if not isinstance(question, str):
            raise QuestionError(
                f"a logic question is a string like '!(T&F)|T', got {type(question).__name__}"
            )
        _check_grammar(question)
        ids = [IDS["<cls>"], *(IDS[symbol] for symbol in question if symbol in IDS)]
        return Encoded(tokens=np.array(ids, dtype=np.int64))

    def parse(self, text: str) -> Any:
        return text


def _check_grammar(text: str) -> None:
    """Raise QuestionError at the first symbol that cannot stand where it stands."""
    opened: list[int] = []
    operand_next = True
    for place, symbol in enumerate(text, start=1):
        where = f"character {place} of {text!r}" if len(text) <= 80 else f"character {place}"
        if symbol.isspace():
            continue
        if symbol not in "TF!&|()":
            raise QuestionError(f"{where}: unknown symbol {symbol!r} (expected T, F, !, &, |, ( or ))")
        if operand_next and symbol in "&|)":
            raise QuestionError(f"{where}: {symbol!r} where T, F, ! or ( was expected")
        if not operand_next and symbol in "TF!(":
            raise QuestionError(f"{where}: {symbol!r} where &, | or ) was expected")
        if symbol == "(":
            opened.append(place)
        if symbol == ")":
            if not opened:
                raise QuestionError(f"{where}: unbalanced parentheses, nothing is open here")
            opened.pop()
        operand_next = symbol in "!&|("
    if opened:
        raise QuestionError(f"unbalanced parentheses: the '(' at character {opened[-1]} is never closed")
    if operand_next:
        what = "ends where T, F, ! or ( was expected" if text.strip() else "is empty"
        raise QuestionError(f"the expression {what}")


def _sample_paper(rng: Random, depth: int, positive: bool, split: Split) -> tuple[Any, bool]:
    """The published generator; labels fall as they fall (`positive` is not used)."""
    for _ in range(MAX_TRIES):
        text, terms = _expression(rng, depth)
        if len(text) <= MAX_CHARACTERS:
            return text, any(terms)
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
