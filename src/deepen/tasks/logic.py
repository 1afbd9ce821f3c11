"""Nested boolean expressions: is the expression true?

    !((T&F)|(!(T|F)))        = !(F | !T) = !(F | F) = T        difficulty 3 (nesting of parentheses)

NOT binds tighter than AND, AND tighter than OR. Difficulty is the nesting depth of the generator:
depth d is `(deep op other)`, one child of depth d-1 and one shallower.

`certified` has a critical depth c instead, which is its difficulty: on levels 1 to c-1 all siblings of
the nested group are neutral (T beside &, F beside |), on level c they decide, and what is nested
deeper changes nothing. Twins of opposite value consist of the same symbols and agree on every level
above c: levels c and c+1, one that decides by | and one that decides by &, have changed places. As
many levels again are nested below, so reading from the inside is no shorter than from the outside.

`lessons`, to train on, are half certified and half published; `long-lessons` have groups of up to 20 literals
and double negations as well.
"""

from collections.abc import Mapping
from functools import lru_cache
from random import Random
from typing import Any

import numpy as np

from deepen.shapes import Encoded, Lesson
from deepen.tasks.logic_samplers import sample_certified, sample_lesson, sample_long_lesson, sample_paper
from deepen.tasks.task import Example, QuestionError, Sampler, Task

TOKENS = ("<pad>", "<cls>", "T", "F", "!", "&", "|", "(", ")")
IDS = {token: number for number, token in enumerate(TOKENS)}
FIRST_NAME = len(TOKENS)  # groups have names, which mean nothing but where they recur


class Logic(Task):
    name = "logic"
    difficulty_name = "depth"
    too_many = "symbols"
    num_words = len(TOKENS)

    @property
    def samplers(self) -> Mapping[str, Sampler]:
        return {
            "paper": sample_paper,
            "certified": sample_certified,
            "lessons": sample_lesson,
            "long-lessons": sample_long_lesson,
        }

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

    def certifies(self, example: Example) -> bool:
        """The levels above the critical one leave the value open, the critical one settles it."""
        path, text, depth = example.certificate["path"], example.question, example.difficulty
        value = path[-1][0] == "|"  # what decides beside | is T, beside & is F
        for _, _, negated in path:
            value ^= negated
        return bool(
            len(path) == depth
            and [list(level) for level in path] == _outer_levels(text, depth)
            and value == example.label == self.verify(text)
            and all(chance_of_true(text, levels) == 0.5 for levels in range(depth))
            and chance_of_true(text, depth) == example.label
        )

    def encode(self, question: Any) -> Encoded:
        """Token ids after <cls>; spaces between symbols are allowed and ignored."""
        ids = [IDS["<cls>"], *(IDS[symbol] for symbol in self._symbols(question))]
        return Encoded(tokens=np.array(ids, dtype=np.int64))

    def _symbols(self, question: Any) -> str:
        """The expression without spaces."""
        if not isinstance(question, str):
            raise QuestionError(
                f"a logic question is a string like '!(T&F)|T', got {type(question).__name__}"
            )
        _check_grammar(question)
        return "".join(question.split())

    def phrases(self, question: Any, words: int) -> Encoded:
        """What stands between two parentheses, with the one that opens at its end or closes before it.

        A phrase begins with two names, of the group it belongs to and of the group that it opens, if it does.
        """
        return _stretches(_in_parentheses(self._symbols(question)), words)[0]

    def lesson(self, example: Example, words: int, num: int, hardest: int, rng: Random) -> Lesson:
        """Further questions are the values of nested groups, read where the group is about to open."""
        encoded, opens = _stretches(example.question, words)
        whole = (0, example.label, example.difficulty)
        inner = [
            (place, *group)
            for place, group in zip(opens, _groups(example.question), strict=True)
            if place > 0 and group[1] <= hardest
        ]
        chosen = rng.sample(inner, min(num - 1, len(inner)))
        asked, labels, difficulties = zip(whole, *chosen, strict=True)
        return Lesson(
            encoded=encoded,
            asked=asked,
            labels=labels,
            difficulties=difficulties,
            words=(0,) * len(asked),  # yes or no is all there is to say
        )

    def parse(self, text: str) -> Any:
        return text


def _in_parentheses(text: str) -> str:
    """`(T&F)|T` as `((T&F)|T)`: every text with parentheses is one group, as all that are trained on."""
    level, outside = 0, ""
    for symbol in text:
        level -= symbol == ")"
        outside += symbol if level == 0 else ""
        level += symbol == "("
    return f"({text})" if "(" in text and set(outside) & {"&", "|"} else text


def _stretches(text: str, words: int) -> tuple[Encoded, list[int]]:
    """The phrases, and for each opening parenthesis the one that it ends."""
    if words < 3:
        raise ValueError(f"a phrase has two names and a symbol or more: perception.words must not be {words}")
    enclosing = [0]  # the groups that are open; the whole is group 0
    phrases = [[FIRST_NAME, 0]]
    opens: list[int] = []
    for place, symbol in enumerate(text):
        if symbol == ")":
            enclosing.pop()
        if symbol == ")" or (place and text[place - 1] == "("):
            phrases.append([FIRST_NAME + enclosing[-1], 0])
        elif len(phrases[-1]) == words:
            phrases[-1], rest = _without_torn_operand(phrases[-1])
            phrases.append([FIRST_NAME + enclosing[-1], 0, *rest])
        phrases[-1].append(IDS[symbol])
        if symbol == "(":
            opens.append(len(phrases) - 1)
            enclosing.append(len(opens))
            phrases[-1][1] = FIRST_NAME + len(opens)
    tokens = np.zeros((len(phrases), words), dtype=np.int64)
    for row, phrase in enumerate(phrases):
        tokens[row, : len(phrase)] = phrase
    return Encoded(tokens=tokens), opens


def _without_torn_operand(phrase: list[int]) -> tuple[list[int], list[int]]:
    """A full phrase up to its last operator, and the operand that has begun, if there is room for one."""
    ends = [place for place, word in enumerate(phrase) if place > 1 and word in (IDS["&"], IDS["|"])]
    last = ends[-1] + 1 if ends else len(phrase)
    return phrase[:last], phrase[last:]


def _groups(text: str) -> list[tuple[bool, int]]:
    """Of each group, with its negation, in the order in which they open: value, and levels that settle it."""
    found: list[tuple[bool, int]] = []
    place = 0

    def disjunction() -> tuple[bool, int]:
        nonlocal place
        terms = [conjunction()]
        while place < len(text) and text[place] == "|":
            place += 1
            terms.append(conjunction())
        return _settled(terms, by=True)

    def conjunction() -> tuple[bool, int]:
        nonlocal place
        terms = [factor()]
        while place < len(text) and text[place] == "&":
            place += 1
            terms.append(factor())
        return _settled(terms, by=False)

    def factor() -> tuple[bool, int]:
        nonlocal place
        negated = False
        while text[place] == "!":
            negated = not negated
            place += 1
        symbol = text[place]
        place += 1
        if symbol != "(":
            return (symbol == "T") != negated, 0
        number = len(found)
        found.append((False, 0))
        value, levels = disjunction()
        place += 1  # the closing parenthesis
        found[number] = (value != negated, levels + 1)
        return found[number]

    disjunction()
    return found


def _settled(terms: list[tuple[bool, int]], by: bool) -> tuple[bool, int]:
    """One term of the value `by` settles it, the shallowest such; else all of them do."""
    deciding = [levels for value, levels in terms if value == by]
    return (by, min(deciding)) if deciding else (not by, max(levels for _, levels in terms))


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


def _outer_levels(text: str, num_levels: int) -> list[list[Any]]:
    """Of the outermost levels: operator, literals beside the nested group, negation; read from the text."""
    levels: list[list[Any]] = []
    for _ in range(num_levels):
        negated = text.startswith("!")
        inside = text[2 if negated else 1 : -1]
        # The nested group goes from the first parenthesis, with its negation, to the last.
        start, end = inside.find("("), inside.rfind(")") + 1
        start -= start > 0 and inside[start - 1] == "!"
        beside = inside[:start] + inside[end:]
        operator = "&" if "&" in beside else "|"
        levels.append([operator, [literal for literal in beside.split(operator) if literal], negated])
        text = inside[start:end]
    return levels


@lru_cache(maxsize=8)
def _closing(text: str) -> dict[int, int]:
    """Where each opening parenthesis is closed."""
    opened: list[int] = []
    closing: dict[int, int] = {}
    for place, symbol in enumerate(text):
        if symbol == "(":
            opened.append(place)
        elif symbol == ")":
            closing[opened.pop()] = place
    return closing


def chance_of_true(text: str, levels: int) -> float:
    """The chance that an expression is true if all that is nested deeper than so many levels were coins."""
    place = 0

    def disjunction(depth: int) -> float:
        nonlocal place
        chance = conjunction(depth)
        while place < len(text) and text[place] == "|":
            place += 1
            chance = 1 - (1 - chance) * (1 - conjunction(depth))
        return chance

    def conjunction(depth: int) -> float:
        nonlocal place
        chance = factor(depth)
        while place < len(text) and text[place] == "&":
            place += 1
            chance *= factor(depth)
        return chance

    def factor(depth: int) -> float:
        nonlocal place
        symbol = text[place]
        place += 1
        if symbol == "!":
            return 1 - factor(depth)
        if symbol == "(" and depth == levels:
            place = _closing(text)[place - 1] + 1
            return 0.5
        if symbol == "(":
            inside = disjunction(depth + 1)
            place += 1  # the closing parenthesis
            return inside
        return float(symbol == "T")

    return disjunction(0)
