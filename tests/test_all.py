"""The three tasks as one: every question keeps its meaning, and no two words of different tasks are alike."""

from collections import Counter
from random import Random

import pytest
from conftest import THREE, tiny

from deepen.batches import Stream
from deepen.config import ConfigError, changed
from deepen.grid import measure
from deepen.model import DepthRecurrent
from deepen.reasoner import Reasoner
from deepen.runs import load_model
from deepen.tasks import QuestionError, examples, get_task
from deepen.train import train

ALL = get_task("all")


def certified(task, difficulty, num):
    return examples("all", f"certified-{task}", difficulty, num=num)


def form(question):
    if isinstance(question, str):
        return "logic"
    return "graph" if "edges" in question else "family"


@pytest.mark.parametrize("task", THREE)
def test_questions_of_one_task_are_answered_by_it(task):
    own = get_task(task)
    for difficulty in (1, 4, 9):
        for example in certified(task, difficulty, 40):
            assert form(example.question) == task
            assert ALL.verify(example.question) == own.verify(example.question) == example.label
            assert ALL.certifies(example)


def test_the_mixture_goes_as_deep_as_the_published_training_of_each_task():
    seen = {task: Counter() for task in THREE}
    for difficulty in range(1, 9):
        for example in examples("all", "lessons", difficulty, num=100):
            seen[form(example.question)][example.difficulty] += 1
            assert ALL.verify(example.question) == example.label
    assert set(seen["logic"]) == set(range(1, 9))
    assert set(seen["graph"]) == set(seen["family"]) == set(range(1, 6))
    assert all(count.total() > 80 for count in seen.values())
    with pytest.raises(ValueError, match="ends at 8: try one of certified-graph"):
        examples("all", "lessons", 9)


def test_words_keep_apart_and_names_are_shared():
    words, names = {}, {}
    for task in THREE:
        own = get_task(task)
        translation = {}
        for example in certified(task, 5, 60):
            before, after = own.phrases(example.question, 12), ALL.phrases(example.question, 12)
            assert before.num_asking == after.num_asking
            pairs = zip(before.tokens.flatten().tolist(), after.tokens.flatten().tolist(), strict=True)
            for number, translated in pairs:
                assert translation.setdefault(number, translated) == translated
        assert translation.pop(0) == 0
        assert len(set(translation.values())) == len(translation)
        words[task] = {after for before, after in translation.items() if before < own.num_words}
        names[task] = {after for before, after in translation.items() if before >= own.num_words}
    assert all(max(words[task]) < ALL.num_words for task in THREE)
    assert not words["graph"] & words["logic"]
    assert not words["graph"] & words["family"]
    assert not words["logic"] & words["family"]
    assert min(names["graph"]) == min(names["logic"]) == ALL.num_words
    assert names["graph"] & names["family"] & names["logic"]


def test_lessons_stay_within_the_range_of_their_task():
    for task, hardest in (("graph", 5), ("logic", 8), ("family", 5)):
        asked = [
            difficulty
            for number, example in enumerate(certified(task, 5, 40))
            for difficulty in ALL.lesson(example, 12, 16, 8, Random(number)).difficulties
        ]
        assert max(asked) <= hardest
        assert len(asked) > 300


def test_what_is_told_is_told_in_the_words_of_all_tasks():
    """The right claim of a wrong one, and of a right one the claim itself."""
    for number, example in enumerate(certified("family", 5, 20)):
        found = ALL.lesson(example, 12, 16, 8, Random(number))
        claimed = found.encoded.tokens[list(found.asked), 3].tolist()
        for claim, word, label in zip(claimed, found.words, found.labels, strict=True):
            assert (claim == word) == label
            assert word == 0 or word < ALL.num_words


def test_what_is_typed_is_read_by_its_form():
    assert ALL.parse("!(T & F)\n") == "!(T & F)\n"
    assert ALL.parse("t&f") == "t&f"  # whoever reads it names the symbol that is not one
    assert ALL.parse(' {"edges": [[1, 2]], "source": 1, "target": 2}')["source"] == 1
    typed = ALL.parse("Ann is the parent of Bo. Ann is the parent of Bo?")
    assert typed == {"facts": ["Ann is the parent of Bo"], "query": "Ann is the parent of Bo"}


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (3, "a question is a string like .*got int"),
        ({"nodes": []}, r"got \['nodes'\]"),
        ({"edges": [[1, 2]], "source": 1}, "no 'target'"),
        ({"facts": []}, "a mapping with 'facts' and 'query'"),
        ("T&", "the expression ends"),
    ],
)
def test_a_bad_question_is_explained(question, message):
    with pytest.raises(QuestionError, match=message):
        ALL.phrases(question, 12)


def test_other_perceptions_are_refused_before_training(tmp_path):
    config = changed(
        tiny("all", "frontier"),
        model__perception__kind="unstructured",
        model__tells=False,
        data__questions=1,
        train__slack=None,
    )
    with pytest.raises(ConfigError, match="told in phrases only"):
        train(config, tmp_path / "run")


def test_the_mixture_is_not_measured_as_one(tmp_path):
    config = tiny("all", "frontier", grid__distribution="lessons")
    with pytest.raises(ConfigError, match="measure one of certified-graph, certified-logic"):
        train(config, tmp_path / "run")


def test_one_model_trains_on_all_and_answers_all(tmp_path):
    config = tiny("all", "frontier", train__updates=4, data__curriculum=0.0, data__batch=24)
    batch = Stream(config)[0]
    assert batch.asked is not None
    train(config, tmp_path / "run")
    model, loaded = load_model(tmp_path / "run")
    assert isinstance(model, DepthRecurrent)
    reasoner = Reasoner(model, loaded)
    for task in THREE:
        grid = changed(config, grid__distribution=f"certified-{task}", grid__difficulties=(1, 3)).grid
        measured = measure(model, config, grid)
        assert measured.cell(3, 1).ceiling < 0.8
        assert measured.cell(3, 6).ceiling == 1
    asked = [example.question for task in THREE for example in certified(task, 3, 4)]
    together = reasoner.answer_many(asked, steps=5)
    for question, answer in zip(asked, together, strict=True):
        assert answer.probability == pytest.approx(reasoner.answer(question, 5).probability, abs=1e-5)
