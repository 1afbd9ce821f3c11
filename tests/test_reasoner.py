"""Asking: the shipped checkpoint, any mix of questions, halting, and what is refused."""

from itertools import permutations

import pytest
import torch
from conftest import tiny

import deepen
from deepen.runs import RunError
from deepen.tasks import get_task
from deepen.tasks.family_samplers import WORDS
from deepen.train import train


@pytest.fixture(scope="module")
def graph():
    return deepen.load("graph")


@pytest.fixture(scope="module", params=["logic", "family", "graph"])
def runs(request, tmp_path_factory):
    """A barely trained reasoner of each task, from its run folder."""
    path = tmp_path_factory.mktemp("runs") / request.param
    train(tiny(request.param, train__updates=2), path)
    return deepen.load(path)


def chain(num, cut=None):
    edges = [[f"n{i}", f"n{i + 1}"] for i in range(num) if i != cut]
    return {"nodes": [f"n{i}" for i in range(num + 1)], "edges": edges, "source": "n0", "target": f"n{num}"}


@pytest.mark.parametrize("hops", [6, 8, 12, 16, 24, 40])
def test_the_shipped_model_has_the_exact_frontier(graph, hops):
    """.50 one step short, >= .99 from T = h on, still at T = 3h; half of the negatives are cut paths."""
    drawn = deepen.examples("graph", "cut", hops, seed=77, num=200)
    answers = graph.answer_many([one.question for one in drawn], steps=3 * hops)
    labels = torch.tensor([one.label for one in drawn])
    says_yes = torch.tensor([answer.trace for answer in answers]) > 0.5
    accuracy = (says_yes == labels[:, None]).float().mean(dim=0)
    assert 0.45 <= accuracy[hops - 2] <= 0.55
    assert accuracy[hops - 1] >= 0.99
    assert accuracy[-1] >= 0.99


def test_the_shipped_model_crosses_hundreds_of_hops(graph):
    answers = graph.answer_many([chain(200), chain(200, cut=120)], steps=220)
    assert [answer.label for answer in answers] == [True, False]
    assert 200 <= next(step for step, p in enumerate(answers[0].trace, start=1) if p > 0.5) <= 220


def test_left_alone_it_never_stops_before_it_has_arrived(graph):
    """It halts by itself: late enough to be right, and long before the cut-off."""
    for hops in (1, 5, 20, 60):
        drawn = deepen.examples("graph", "cut", hops, seed=5, num=60)
        answers = graph.answer_many([one.question for one in drawn])
        assert [answer.label for answer in answers] == [one.label for one in drawn]
        assert all(answer.steps >= hops for answer, one in zip(answers, drawn, strict=True) if one.label)
    assert graph.answer(chain(60)).steps < 100


def test_answers_do_not_depend_on_company(runs):
    drawn = [
        one
        for difficulty in (2, 5, 9)
        for one in deepen.examples(runs.task.name, difficulty=difficulty, num=3)
    ]
    questions = [one.question for one in drawn]
    budgets = [1, 7, 3, None, 2, 5, 4, None, 6]
    together = runs.answer_many(questions, steps=budgets)
    for question, budget, answer in zip(questions, budgets, together, strict=True):
        alone = runs.answer(question, steps=budget)
        assert alone.steps == answer.steps == len(answer.trace)
        assert alone.trace == pytest.approx(answer.trace, abs=1e-5)
        assert answer.probability == answer.trace[-1]
        assert answer.label == (answer.probability > 0.5)
        if budget is not None:
            assert answer.steps == budget


def test_no_questions_no_answers(graph):
    assert graph.answer_many([]) == []


@pytest.mark.parametrize("steps", [0, -1, 2.5, True, "3", [4, 4]])
def test_steps_that_make_no_sense_are_refused(graph, steps):
    with pytest.raises(ValueError, match="steps"):
        graph.answer_many([chain(3)], steps=steps)


def test_a_bad_question_in_a_list_is_named(graph):
    bad = {**chain(3), "target": "nowhere"}
    with pytest.raises(deepen.QuestionError, match=r"question 2: target: node 'nowhere'"):
        graph.answer_many([chain(3), chain(4), bad], steps=5)


def test_more_names_than_the_model_knows_are_refused(tmp_path):
    train(tiny("graph", train__updates=1), tmp_path / "graph")
    with pytest.raises(deepen.QuestionError, match="14 nodes too many for this model"):
        deepen.load(tmp_path / "graph").answer(chain(39), steps=3)
    train(tiny("family", train__updates=1), tmp_path / "family")
    facts = [f"P{i} is the parent of P{i + 1}" for i in range(21)]
    with pytest.raises(deepen.QuestionError, match="2 different names too many"):
        deepen.load(tmp_path / "family").answer({"facts": facts, "query": facts[0]}, steps=3)


def test_what_is_not_there_cannot_be_loaded(tmp_path):
    with pytest.raises(
        RunError, match=r"no shipped checkpoint of that name \(shipped: all, family, graph, logic\)"
    ):
        deepen.load("grpah")
    with pytest.raises(RunError, match="no run folder or weights file"):
        deepen.load(tmp_path / "graph")  # a path is never the name of a shipped checkpoint
    with pytest.raises(RunError, match="device 'gpu' cannot be used"):
        deepen.load("graph", device="gpu")
    with pytest.raises(RunError, match="does not exist"):
        deepen.load(tmp_path)


def test_loading_is_not_fooled_by_a_checkpoint_for_resuming(tmp_path):
    run = train(tiny("graph", "frontier", train__updates=1), tmp_path)
    with pytest.raises(RunError, match="holds no model to load"):
        deepen.load(run.checkpoint_file)


@pytest.mark.parametrize(
    ("task", "hardest", "further"), [("graph", 5, 12), ("logic", 8, 20), ("family", 5, 9)]
)
def test_one_shipped_model_knows_all_tasks(task, hardest, further):
    """Told to think and left alone; beyond its training range as well; at chance without the steps."""
    reasoner = deepen.load("all")
    for difficulty, least in ((2, 59), (hardest, 58), (further, 57)):
        asked = deepen.examples(task, "certified", difficulty, seed=9, num=60)
        questions = [one.question for one in asked]
        for steps in (2 * difficulty + 2, None):
            answers = reasoner.answer_many(questions, steps)
            assert sum(answer.label == one.label for answer, one in zip(answers, asked, strict=True)) >= least
        early = reasoner.answer_many(questions, difficulty // 3 or 1)
        right = sum(answer.label == one.label for answer, one in zip(early, asked, strict=True))
        assert difficulty == 2 or 15 <= right <= 45


@pytest.mark.parametrize(
    ("task", "difficulty", "steps", "least"),
    [("logic", 8, 16, 0.98), ("logic", 20, 40, 0.95), ("family", 5, 10, 0.99), ("family", 12, 24, 0.95)],
)
def test_the_shipped_text_models_think_further_than_they_were_trained(task, difficulty, steps, least):
    reasoner = deepen.load(task)
    asked = deepen.examples(task, "certified", difficulty, seed=9, num=200)
    questions = [one.question for one in asked]
    for num_steps, low, high in ((steps, least, 1.0), (max(1, difficulty // 3), 0.4, 0.6)):
        answers = reasoner.answer_many(questions, num_steps)
        right = sum(answer.label == one.label for answer, one in zip(answers, asked, strict=True)) / 200
        assert low <= right <= high


SIMPLE = {
    "T": True,
    "!T": False,
    "T&F": False,
    "(T&F)|T": True,
    "!(T|F)": False,
    "((T|F)&(F|T))&!((F|F)|(T&F))": True,
    "!((T&F)|(!(T|F)))": True,
}


@pytest.mark.parametrize("model", ["logic", "all"])
def test_the_shipped_models_answer_simple_expressions(model):
    answers = deepen.load(model).answer_many(list(SIMPLE))
    assert [answer.label for answer in answers] == list(SIMPLE.values())


@pytest.mark.parametrize("model", ["family", "all"])
@pytest.mark.parametrize("names", [("Alice", "Bob", "Carol", "David"), ("Zo", "Y2", "W. X", "Vi")])
def test_the_shipped_models_answer_simple_questions_about_families(model, names):
    """About any two people, with any claim: once it took grandparents for siblings, both being even."""
    a, b, c, d = names
    facts = [f"{a} is the parent of {b}", f"{b} is the parent of {c}", f"{c} is the child of {d}"]
    claims = [
        (first, WORDS[offset], last) for first, last in permutations(names, 2) for offset in range(-3, 4)
    ]
    questions = [{"facts": facts, "query": "{} is the {} of {}".format(*claim)} for claim in claims]
    reasoner = deepen.load(model)
    for answer, question in zip(reasoner.answer_many(questions), questions, strict=True):
        assert answer.label == get_task("family").verify(question), question["query"]
    assert reasoner.answer({"facts": facts[:1], "query": facts[0]}).label


@pytest.mark.parametrize("distribution", ["certified-inside", "certified-even"])
def test_the_shipped_family_model_adds_up(distribution):
    asked = deepen.examples("family", distribution, 5, seed=9, num=200)
    answers = deepen.load("family").answer_many([one.question for one in asked], 20)
    right = sum(answer.label == one.label for answer, one in zip(answers, asked, strict=True))
    assert right >= 195
