"""What is asked about a text in training: true, no harder than it may be, told in the right words."""

from collections import Counter
from random import Random

import networkx as nx
import pytest
import torch
from conftest import assert_close, spelled, tiny

from deepen.batches import Stream, answerable, drawn, lesson, training_example
from deepen.config import ConfigError, changed
from deepen.loss import told_loss
from deepen.model import DepthRecurrent
from deepen.peers import build
from deepen.presets import get_preset
from deepen.tasks import examples, get_task
from deepen.tasks.family import TOKENS as FAMILY_TOKENS
from deepen.tasks.family_samplers import OFFSETS
from deepen.tasks.graph import START
from deepen.tasks.logic import TOKENS as LOGIC_TOKENS
from deepen.tasks.logic import chance_of_true
from deepen.train import train, training_loss
from deepen.unroll import Fixed

TEXTS = ("logic", "family")


def groups_of(text):
    """Oracle: every group with its negations, found by counting parentheses."""
    for start, symbol in enumerate(text):
        if symbol == "(":
            end, opened = start, 0
            while True:
                opened += (text[end] == "(") - (text[end] == ")")
                end += 1
                if not opened:
                    break
            first = start
            while first and text[first - 1] == "!":
                first -= 1
            yield text[first:end]


def levels_needed(text):
    return next(levels for levels in range(99) if chance_of_true(text, levels) in (0, 1))


@pytest.mark.parametrize("distribution", ["certified", "paper", "long-lessons"])
def test_what_else_is_asked_about_an_expression_is_true(distribution):
    logic = get_task("logic")
    num_inner = 0
    for number, example in enumerate(examples("logic", distribution, 4, num=100)):
        found = logic.lesson(example, 12, 1000, 4, Random(number))
        expected = {}
        phrases = ["".join(spelled(row, LOGIC_TOKENS)) for row in found.encoded.tokens]
        opens = [place for place, phrase in enumerate(phrases) if phrase.endswith("(")]
        for place, text in zip(opens, groups_of(example.question), strict=True):
            if place and levels_needed(text) <= 4:
                expected[place] = logic.verify(text), levels_needed(text)
        expected[0] = example.label, example.difficulty
        asked = zip(found.asked, zip(found.labels, found.difficulties, strict=True), strict=True)
        assert dict(asked) == expected
        num_inner += len(expected) - 1
    assert num_inner > 200


@pytest.mark.parametrize("distribution", ["certified", "lessons"])
def test_what_else_is_asked_about_a_family_is_true_and_not_harder(distribution):
    family = get_task("family")
    harder, told_words = set(), 0
    for number in range(60):
        example = family.example(distribution, "train", 0, 3, number)
        found = family.lesson(example, 7, 16, 4, Random(number))
        said = [spelled(row, FAMILY_TOKENS) for row in found.encoded.tokens]
        assert found.encoded.num_asking == len(found.asked) == 16
        facts = [" ".join(one[:-1]) for one in said[16:]]
        assert [one[3] for one in said[16:]] == [fact.split()[3] for fact in example.question["facts"]]
        if len(facts) >= 28:  # a text of few people is told with names of the published vocabulary
            assert facts == example.question["facts"]
        told = nx.DiGraph([(first, second) for first, _, _, _, _, second, _ in said[16:]])
        for place, label, hops in zip(found.asked, found.labels, found.difficulties, strict=True):
            question = {"facts": facts, "query": " ".join(said[place][:-1])}
            assert family.verify(question) == label
            both = said[place][0], said[place][5]
            assert nx.has_path(told.to_undirected(), *both)
            assert max(len(nx.ancestors(told, person)) for person in both) == hops <= 4
            harder.add(hops)
            assert said[place][3] in OFFSETS
            if relation := found.words[place]:
                claim = [*said[place][:3], FAMILY_TOKENS[relation], *said[place][4:-1]]
                assert family.verify({"facts": facts, "query": " ".join(claim)})
                told_words += 1
    assert harder == {1, 2, 3, 4}
    assert told_words > 0.9 * 60 * 16


def test_a_lesson_of_facts_that_form_a_circle_ends():
    """Published distractors sometimes do; once the way to where they begin was followed for ever."""
    family = get_task("family")
    drawn = [family.example("paper", "train", 0, 5, number) for number in range(300)]
    for number, example in enumerate(drawn):
        assert len(family.lesson(example, 7, 16, 5, Random(number)).asked) == 16


def test_lessons_of_short_chains_show_every_hop_from_every_sum_of_long_ones():
    """Models that had seen few hops from large sums were wrong wherever a long chain came to one."""
    config = get_preset("family", "frontier")
    shown = set()
    for index in range(60_000, 60_600):
        facts = [fact.split() for fact in training_example(config, index).question["facts"]]
        before = {other: (subject, OFFSETS[relation]) for subject, _, _, relation, _, other in facts}
        for person, hop in before.values():
            total = 0
            while person in before:
                person, offset = before[person]
                total += offset
            shown.add((total, hop))
    assert {(total, hop) for total in range(-8, 9) for hop in range(-2, 3)} <= shown


def test_several_questions_are_as_often_true_as_false():
    config = get_preset("family", "frontier")
    labels = [label for index in range(200) for label in lesson(config, index).labels]
    assert 0.45 < sum(labels) / len(labels) < 0.55


@pytest.mark.parametrize("task", TEXTS)
def test_with_slack_nothing_is_asked_that_t_steps_cannot_answer(task):
    config = tiny(task, "frontier", train__steps=(2, 9), train__slack=1, data__curriculum=0.0)
    with_slack = Stream(config)
    without = Stream(changed(config, train__slack=None))
    fewer = 0
    for update in range(24):
        _, num_steps, _ = drawn(config, update)
        few, all_of_them = with_slack[update], without[update]
        kept = all_of_them.difficulty < num_steps
        assert kept.any()
        for part in ("asked", "labels", "difficulty"):
            assert torch.equal(getattr(few, part), getattr(all_of_them, part)[kept])
        fewer += bool((~kept).any())
        model = DepthRecurrent(config.model)
        assert set(training_loss(model, few, config, update)[1].num_steps.tolist()) == {num_steps}
    assert fewer > 5


def test_a_batch_with_nothing_easy_is_asked_everything():
    config = tiny("family", "frontier")
    lessons = [lesson(config, index) for index in range(1200, 1204)]
    assert answerable(lessons, 0) == lessons
    assert [one.asked for one in answerable(lessons, 99)] == [one.asked for one in lessons]


@pytest.mark.parametrize("task", TEXTS)
def test_the_loss_reaches_every_parameter(task):
    config = tiny(task, "frontier")
    model = DepthRecurrent(config.model).train()
    loss, output = training_loss(model, Stream(config)[30], config, 30)
    loss.backward()
    assert len(output.answer) > config.data.batch
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_what_would_have_been_right_is_asked_only_where_it_is_known():
    """A mean over no word at all was not a number."""
    logits = torch.randn(3, 5, dtype=torch.float64)
    chances = logits.softmax(dim=1)
    known = told_loss(logits, torch.tensor([2, 0, 4]))
    assert_close(known, -(chances[0, 2].log() + chances[2, 4].log()) / 2)
    assert told_loss(logits, torch.zeros(3, dtype=torch.long)) == 0


def test_what_else_is_asked_about_a_graph_is_true_and_not_harder():
    graph = get_task("graph")
    distances, num_false = Counter(), 0
    for number, example in enumerate(examples("graph", "certified", 3, num=60)):
        nodes = dict(enumerate(example.question["nodes"], start=graph.num_words))
        found = graph.lesson(example, 7, 16, 4, Random(number))
        assert found.encoded.num_asking == len(found.asked) == 16
        drawn = nx.DiGraph(example.question["edges"])
        for place, label, hops in zip(found.asked, found.labels, found.difficulties, strict=True):
            assert found.encoded.tokens[place, 0] == START  # so the source is called
            first, last = example.question["source"], nodes[found.encoded.tokens[place, 5]]
            assert graph.verify({**example.question, "target": last}) == label
            if label:
                assert nx.shortest_path_length(drawn, first, last) == hops <= 4
                distances[hops] += 1
            else:
                num_false += 1
    assert set(distances) == {1, 2, 3, 4}
    assert 0.4 < num_false / (60 * 16) < 0.6


def test_adaptive_time_can_be_asked_several_questions_a_text():
    plain = {"recall": False, "state_norm": False, "state_noise": 0.0}
    config = tiny(
        "family",
        "frontier",
        **{f"model__core__{name}": value for name, value in plain.items()},
        model__act={"cap": 6},
        train__detached_start=0.0,
    )
    model = build(config.model)
    batch = Stream(config)[30]
    loss, output = training_loss(model.train(), batch, config, 30)
    assert len(output.answer) == len(batch.labels) > config.data.batch
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        ("logic", {"model__tells": True}, "lessons of 'logic' know yes and no, no other word"),
        ("family", {"model__perception__names_from": 12}, "task 'family' has 34 words, .*not 12"),
    ],
)
def test_who_tells_words_needs_words(task, changes, message, tmp_path):
    """A table of words that was too small ended in an IndexError, with a run folder left behind."""
    with pytest.raises(ConfigError, match=message):
        train(changed(tiny(task, "frontier"), **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("has_act", [False, True])
def test_what_is_told_is_read_where_the_answer_is_read(has_act):
    """Of a model that halts by itself that is a mixture of states, not the last one."""
    plain = {"recall": False, "state_norm": False, "state_noise": 0.0}
    act = {f"model__core__{name}": value for name, value in plain.items()} | {"model__act": {"cap": 4}}
    config = tiny("family", "frontier", train__detached_start=0.0, **(act if has_act else {}))
    model = build(config.model).eval()
    _, scene = model.begin(batch := Stream(config)[30])
    state = model(batch, Fixed(4)).state
    seen = (
        state.mixture + ((1 - state.chance) * state.running)[..., None] * state.hidden
        if has_act
        else state.hidden
    )
    for place, (row, asked) in enumerate(batch.asked.tolist()):
        assert_close(model.tell(state, scene)[place], model.teller.weight @ seen[row, asked])
