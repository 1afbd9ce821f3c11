"""What a task is: samplers that make examples, a verifier that judges them, an encoder for models.

Example i is a pure function of (task, distribution, split, seed, difficulty, i). Training and test draw
from separate streams; where there are few questions, as in logic of depth 2, both can still come to the
same one. The sampler and the verifier of a task share no code; the tests let them argue.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from deepen.shapes import Encoded, Lesson

Split = Literal["train", "valid", "test"]


class QuestionError(ValueError):
    """A malformed question; the message says what is wrong, where, and what was expected."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A question, its true answer, and how hard it is."""

    question: Any
    label: bool
    difficulty: int
    certificate: Any = None
    """Why nothing short of `difficulty` steps can tell the answer; None where that is not promised."""


Sampler = Callable[[Random, int, bool, Split], Example]
"""(random source, difficulty, wanted label, split) -> example."""


class Task(ABC):
    """One reasoning problem: its knobs, samplers, verifier and encoder, in one file each."""

    name: ClassVar[str]
    difficulty_name: ClassVar[str]
    """What difficulty counts: hops, depth."""
    too_many: ClassVar[str]
    """What a question has too many of when its token ids run past a model's vocabulary."""
    num_words: ClassVar[int]
    """Token ids of phrases from this one on are names, which mean nothing."""

    @property
    @abstractmethod
    def samplers(self) -> Mapping[str, Sampler]:
        """The task's distributions by name."""

    def source(self, distribution: str) -> tuple[str, str]:
        """Task and distribution whose shortcuts these examples have."""
        return self.name, distribution

    @abstractmethod
    def verify(self, question: Any) -> bool:
        """The true answer, found without any of the sampler's code."""

    @abstractmethod
    def certifies(self, example: Example) -> bool:
        """Whether the certificate holds, checked without any of the sampler's code."""

    @abstractmethod
    def encode(self, question: Any) -> Encoded:
        """A question as numbers; raises QuestionError if it is malformed."""

    @abstractmethod
    def phrases(self, question: Any, words: int) -> Encoded:
        """A question as phrases of at most so many tokens; what is asked stands first."""

    def lesson(self, example: Example, words: int, num: int, hardest: int, rng: Random) -> Lesson:
        """An example as phrases, with its own and up to `num` - 1 further questions, none above `hardest`.

        Unless a task says otherwise, nothing further can be asked.
        """
        return Lesson(
            encoded=self.phrases(example.question, words),
            asked=(0,),
            labels=(example.label,),
            difficulties=(example.difficulty,),
            words=(0,),
        )

    @abstractmethod
    def parse(self, text: str) -> Any:
        """A question as typed on the command line."""

    def example(self, distribution: str, split: Split, seed: int, difficulty: int, index: int) -> Example:
        """Example `index` of one stream; even indices ask for a positive, odd ones for a negative."""
        if distribution not in self.samplers:
            known = ", ".join(self.samplers)
            raise ValueError(f"task '{self.name}' has no distribution '{distribution}' (known: {known})")
        if split not in get_args(Split):
            raise ValueError(f"unknown split '{split}' (known: {', '.join(get_args(Split))})")
        if difficulty < 1:
            raise ValueError(f"difficulty must be at least 1, got {difficulty}")
        # A certified positive and the negative after it are twins: the same draws, another answer.
        stream = index // 2 if distribution.startswith("certified") else index
        rng = Random(f"{self.name}/{distribution}/{split}/{seed}/{difficulty}/{stream}")
        return self.samplers[distribution](rng, difficulty, index % 2 == 0, split)


def in_sentences(asking: Sequence[Sequence[int]], facts: Sequence[Sequence[int]], words: int) -> Encoded:
    """Sentences as phrases; those that ask come first and are seen by nobody else."""
    longest = max(len(sentence) for sentence in (*asking, *facts))
    if words < longest:
        raise ValueError(f"a sentence has {longest} words: perception.words must not be {words}")
    tokens = np.zeros((len(asking) + len(facts), words), dtype=np.int64)
    for row, sentence in enumerate((*asking, *facts)):
        tokens[row, : len(sentence)] = sentence
    return Encoded(tokens=tokens, num_asking=len(asking))


def parse_json(text: str, example: str) -> Any:
    """A question that was typed as JSON."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise QuestionError(f"not JSON ({error}); expected e.g. '{example}'") from None
