"""Texts as phrases: what they say, how deep they stand, which words they share, what is asked about them."""

from collections import Counter
from itertools import pairwise, product
from random import Random

import networkx as nx
import pytest
import torch
from conftest import assert_close, tiny

from deepen.batches import Stream, answerable, collate, drawn, encode, lesson, training_example
from deepen.blocks import rotary_table
from deepen.config import ConfigError, changed
from deepen.loss import told_loss
from deepen.model import DepthRecurrent
from deepen.peers import build
from deepen.perception import DRAWN, leads_to_first, likeness
from deepen.presets import get_preset
from deepen.reasoner import Reasoner, load
from deepen.tasks import examples, get_task
from deepen.tasks.family import TOKENS as FAMILY_TOKENS
from deepen.tasks.family_samplers import OFFSETS
from deepen.tasks.logic import FIRST_NAME, chance_of_true
from deepen.tasks.logic import TOKENS as LOGIC_TOKENS
from deepen.train import train, training_loss
from deepen.unroll import Fixed

TEXTS = ("logic", "family")


def spelled(row, tokens):
    return [tokens[word] for word in row if 0 < word < len(tokens)]


@pytest.mark.parametrize("words", [3, 5, 14])
def test_the_phrases_of_an_expression_are_the_expression(words):
    for example in examples("logic", "certified", 5, num=50):
        encoded = get_task("logic").phrases(example.question, words)
        phrases = ["".join(spelled(row, LOGIC_TOKENS)) for row in encoded.tokens]
        assert "".join(phrases) == example.question
        assert all(phrases)
        for phrase in phrases:
            assert "(" not in phrase[:-1]
            assert ")" not in phrase[1:]
        before = ""
        for phrase, (own, opened, *_) in zip(phrases, encoded.tokens - FIRST_NAME, strict=True):
            closes, opens = phrase.startswith(")"), phrase.endswith("(")
            assert own == before.count("(") - before.count(")") - closes
            assert opened == (own + 1 if opens else -FIRST_NAME)  # of a phrase that opens none it is no word
            before += phrase


def test_operators_outside_of_all_parentheses_are_put_into_some():
    logic = get_task("logic")
    for loose, whole in (("(T&F)|T", "((T&F)|T)"), ("!(T)&!(F)", "(!(T)&!(F))")):
        assert (logic.phrases(loose, 14).tokens == logic.phrases(whole, 14).tokens).all()
    assert len(logic.phrases("T|F&T", 14).tokens) == 1
    assert len(logic.phrases("!!(T|F)", 14).tokens) == 3


def test_spaces_and_repeated_negations_are_the_same_expression():
    logic = get_task("logic")
    spaced, dense = (logic.phrases(text, 12).tokens for text in ("! ! ( T & F ) | T", "!!(T&F)|T"))
    assert (spaced == dense).all()


def test_a_family_is_asked_first():
    (example,) = examples("family", "certified", 3)
    encoded = get_task("family").phrases(example.question, 7)
    said = [" ".join(spelled(row, FAMILY_TOKENS)) for row in encoded.tokens]
    assert said[0] == example.question["query"].rstrip("?") + " ?"
    assert said[1:] == [fact.rstrip(".") + " ." for fact in example.question["facts"]]
    assert encoded.num_asking == 1


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


def test_no_operand_is_torn_if_it_fits():
    """A negation ended one phrase, its group stood in the next: so what was asked there was another value."""
    num_full = 0
    for example in examples("logic", "long-lessons", 5, num=100):
        tokens = get_task("logic").phrases(example.question, 14).tokens
        for phrase, after in pairwise("".join(spelled(row, LOGIC_TOKENS)) for row in tokens):
            if not phrase.endswith("(") and not after.startswith(")"):
                num_full += 1
                assert phrase[-1] in "&|"
    assert num_full > 100


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


def test_likeness_counts_shared_names_by_their_places():
    """Slow twin: four loops."""
    tokens = torch.tensor([[[1, 2, 0], [2, 1, 3], [3, 3, 0]], [[4, 5, 6], [6, 5, 4], [0, 0, 0]]])
    strengths = torch.randn(2, 3, 3, dtype=torch.float64)
    for names_from in (2, 3, 5, 7):  # names at every place, at some, at none
        found = likeness(tokens, strengths, names_from)
        assert found.shape == (2, 2, 3, 3)
        for row, i, j in product(range(2), range(3), range(3)):
            pairs = [
                (a, b)
                for a, b in product(range(3), range(3))
                if tokens[row, i, a] >= names_from and tokens[row, i, a] == tokens[row, j, b]
            ]
            expected = sum((strengths[:, a, b] for a, b in pairs), torch.zeros(2, dtype=torch.float64))
            torch.testing.assert_close(found[row, :, i, j], expected)


def test_what_the_answer_can_depend_on_is_all_that_names_lead_to():
    """Oracle: a search through the graph of who is drawn to whom, in any head."""
    torch.manual_seed(0)
    alike = 5 * torch.rand(6, 2, 12, 12) - 2.75  # some are drawn far, some to a few, some to nobody
    alike[0, :, 0] = 0.0
    found = leads_to_first(alike)
    for row in range(6):
        drawn = nx.DiGraph()
        drawn.add_nodes_from(range(12))
        drawn.add_edges_from((alike[row] >= DRAWN).any(dim=0).nonzero().tolist())
        reached = nx.descendants(drawn, 0) | {0}
        expected = reached if len(reached) > 1 else set(range(12))
        assert set(found[row].nonzero().flatten().tolist()) == expected
    assert found[0].all()
    assert 0 < found[1:].sum() < 5 * 12


def test_chains_that_lead_nowhere_do_not_matter_to_a_family():
    """Of a certified text the true chain matters, and what branches off it does only where it does."""
    reasoner = load("family")
    asked = examples("family", "certified", 5, num=20)
    for one in asked:
        batch = collate([reasoner.encode(one.question)], [one.label])
        matters = reasoner.model.perception(batch).matters[0, 1:]
        told = {tuple(fact.split()[::5]): place for place, fact in enumerate(one.question["facts"])}
        chain = [told[pair] for pair in pairwise(one.certificate["chain"])]
        assert matters[chain].all()
        assert matters.sum() < 14  # of 28


def test_a_share_of_the_channels_turns():
    table = rotary_table(16, 100.0, 0.25, torch.arange(5.0))
    assert table.shape == (5, 8)
    torch.testing.assert_close(table[:, :2], rotary_table(4, 100.0, 1.0, torch.arange(5.0)))
    assert table[1, 1].angle().item() == pytest.approx(0.1)
    assert (table[:, 2:] == 1).all()


@pytest.mark.parametrize("task", TEXTS)
def test_a_question_is_answered_as_if_it_were_the_only_one(task):
    config = tiny(task, "frontier", data__questions=6)
    model = DepthRecurrent(config.model).eval()
    many = [lesson(config, index) for index in range(1200, 1206)]
    batch = collate(
        [one.encoded for one in many],
        [label for one in many for label in one.labels],
        asked=[one.asked for one in many],
    )
    with torch.no_grad():
        together = model(batch, Fixed(5)).answer
        start = 0
        for index, one in zip(range(1200, 1206), many, strict=True):
            alone = encode(get_task(task), training_example(config, index).question, config.model.perception)
            expected = model(collate([alone], [False]), Fixed(5)).answer
            assert_close(together[start : start + 1], expected)
            start += len(one.asked)


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


@pytest.mark.parametrize("task", TEXTS)
def test_length_and_company_do_not_change_an_answer(task):
    config = tiny(task, "frontier")
    reasoner = Reasoner(DepthRecurrent(config.model), config)
    asked = [one.question for depth in (1, 9) for one in examples(task, "certified", depth, num=3)]
    together = reasoner.answer_many(asked, steps=4)
    for question, answer in zip(asked, together, strict=True):
        assert reasoner.answer(question, steps=4).probability == pytest.approx(answer.probability, abs=1e-5)


def renamed(question, names):
    """The same question about other people."""

    def said(sentence):
        return " ".join(names.get(word.strip(".?"), word) for word in sentence.split())

    return {"facts": [said(fact) for fact in question["facts"]], "query": said(question["query"])}


def test_without_rows_names_mean_nothing_and_there_can_be_any_number_of_them():
    config = tiny("family", "frontier", model__perception__vocabulary=get_task("family").num_words + 1)
    reasoner = Reasoner(DepthRecurrent(config.model), config)
    (example,) = examples("family", "certified", 2)
    before = reasoner.answer(example.question, 3).probability
    others = renamed(example.question, {name: f"Zo{name}" for name in FAMILY_TOKENS[34:]})
    assert others != example.question
    assert reasoner.answer(others, 3).probability == pytest.approx(before, abs=1e-6)
    other = {**example.question, "query": example.question["facts"][0]}
    assert reasoner.answer(other, 3).probability != pytest.approx(before, abs=1e-6)
    many = [f"P{number} is the parent of P{number + 1}" for number in range(300)]
    reasoner.answer({"facts": many, "query": "P0 is the sibling of P3"}, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__perception__kind": "hierarchical"}, "data.questions above 1 needs the perception"),
        ({"data__train_set": 64}, "train_set must be None"),
        ({"data__questions": 1}, "train.slack needs several questions"),
    ],
)
def test_configs_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        changed(tiny("logic", "frontier", data__curriculum=0.0), **changes)


@pytest.mark.parametrize("task", ["family", "graph"])
def test_sentences_that_do_not_fit_are_refused_before_training(task, tmp_path):
    config = changed(
        get_preset(task, "frontier"),
        model__perception__kind="phrases",
        model__perception__words=5,
        data__questions=1,
        train__slack=None,
    )
    with pytest.raises(ConfigError, match="a sentence has 7 words"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_graph_can_be_told_in_sentences():
    graph = get_task("graph")
    (example,) = examples("graph", "certified", 3)
    question = example.question
    encoded = graph.phrases(question, 8)
    assert encoded.num_asking == 1
    names = {}
    said = [(row[0], row[5]) for row in encoded.tokens]
    pairs = [(question["source"], question["target"]), ("<start>", question["source"]), *question["edges"]]
    for told, meant in zip(said, pairs, strict=True):
        for number, name in zip(told, meant, strict=True):
            assert names.setdefault(number, name) == name
    assert len(set(names.values())) == len(names)
    assert min(number for number, name in names.items() if name != "<start>") >= graph.num_words


def test_what_else_is_asked_about_a_graph_is_true_and_not_harder():
    graph = get_task("graph")
    distances, num_false = Counter(), 0
    for number, example in enumerate(examples("graph", "certified", 3, num=60)):
        nodes = dict(enumerate(example.question["nodes"], start=graph.num_words))
        found = graph.lesson(example, 7, 16, 4, Random(number))
        assert found.encoded.num_asking == len(found.asked) == 16
        drawn = nx.DiGraph(example.question["edges"])
        for place, label, hops in zip(found.asked, found.labels, found.difficulties, strict=True):
            first, last = (nodes[found.encoded.tokens[place, word]] for word in (0, 5))
            assert first == example.question["source"]
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


def test_phrases_too_short_for_their_names_are_refused():
    with pytest.raises(ValueError, match=r"perception\.words must not be 2"):
        get_task("logic").phrases("(T&F)", 2)
