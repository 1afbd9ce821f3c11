"""Certified examples: the certificate holds, twins look alike, and tampering shows."""

import random
import re
from collections import Counter
from dataclasses import replace
from itertools import accumulate, pairwise

import networkx as nx
import pytest
from conftest import THREE

from deepen.tasks import TASKS, examples, get_task
from deepen.tasks.family_samplers import OFFSETS, chance_after, twin_hops
from deepen.tasks.logic import chance_of_true

DIFFICULTIES = {"graph": (1, 2, 3, 5, 8, 20), "logic": (1, 2, 5, 8, 14, 32), "family": (1, 2, 3, 5, 9, 12)}
STREAMS = [
    (name, distribution) for name in THREE for distribution in TASKS[name].samplers if "cert" in distribution
]


def twins(task, distribution, difficulty, num=100):
    drawn = examples(task, distribution, difficulty, seed=4, num=2 * num)
    return list(zip(drawn[::2], drawn[1::2], strict=True))


@pytest.mark.parametrize(("task", "distribution"), STREAMS)
def test_every_certificate_holds(task, distribution):
    for difficulty in DIFFICULTIES[task]:
        for example in examples(task, distribution, difficulty, num=200):
            assert get_task(task).certifies(example), example


@pytest.mark.parametrize(("task", "distribution"), STREAMS)
def test_a_certificate_of_another_label_or_difficulty_does_not_hold(task, distribution):
    for example in examples(task, distribution, 5, num=20):
        assert not get_task(task).certifies(replace(example, label=not example.label))
        assert not get_task(task).certifies(replace(example, difficulty=6))


def test_twin_graphs_are_one_graph_with_another_target():
    for hops in (1, 3, 8):
        for positive, negative in twins("graph", "certified", hops):
            yes, no = positive.question, negative.question
            assert {**yes, "target": None} == {**no, "target": None}
            graph = nx.DiGraph([tuple(edge) for edge in yes["edges"]])
            graph.add_nodes_from(yes["nodes"])
            assert nx.shortest_path_length(graph, yes["source"], yes["target"]) == hops
            assert not nx.has_path(graph, no["source"], no["target"])
            for direction in (graph.in_degree, graph.out_degree):
                assert direction[yes["target"]] == direction[no["target"]]
            # Not even against the arrows is there a shorter way.
            around = graph.to_undirected()
            assert nx.shortest_path_length(around, yes["source"], yes["target"]) == hops
            assert nx.shortest_path_length(around, no["source"], no["target"]) >= hops


def test_ignoring_the_direction_of_edges_tells_nothing():
    """Against the arrows, every source is connected to its target, reachable or not."""
    for hops in (1, 5, 12):
        for example in examples("graph", "certified", hops, num=200):
            around = nx.Graph([tuple(edge) for edge in example.question["edges"]])
            assert nx.has_path(around, example.question["source"], example.question["target"])


def test_a_tampered_graph_is_not_certified():
    """An edge that lets the target look different from nearby breaks the certificate."""
    for example in examples("graph", "certified", 4, num=20):
        question = example.question
        leak = [question["target"], question["target"]]
        tampered = replace(example, question={**question, "edges": [*question["edges"], leak]})
        assert not get_task("graph").certifies(tampered)


def test_twin_expressions_have_the_same_symbols_and_the_same_top():
    for depth in (1, 4, 8):
        for positive, negative in twins("logic", "certified", depth):
            assert Counter(positive.question) == Counter(negative.question)
            for levels in range(depth):
                assert chance_of_true(positive.question, levels) == chance_of_true(negative.question, levels)


def test_nesting_and_length_do_not_tell_the_critical_depth():
    def spread(depth):
        drawn = examples("logic", "certified", depth, num=1000)
        deepest = Counter(max_nesting(one.question) for one in drawn)
        return deepest, sum(len(one.question) for one in drawn) / 1000

    def max_nesting(text):
        depth = deepest = 0
        for symbol in text:
            depth += {"(": 1, ")": -1}.get(symbol, 0)
            deepest = max(deepest, depth)
        return deepest

    (shallow, short), (deep, long) = spread(1), spread(8)
    assert set(shallow) == set(deep) == {16, 17, 18}
    assert abs(short - long) < 0.05 * long


def test_chance_of_true_agrees_with_every_possible_world():
    """Slow twin: replace each group that is nested too deep by T or F in all ways, and count."""
    verify = get_task("logic").verify

    def worlds(text, levels):
        depth, kept, hidden = 0, "", 0
        for symbol in text:
            if symbol == "(":
                depth += 1
                if depth == levels + 1:
                    kept += "?"
                    hidden += 1
            if depth <= levels:
                kept += symbol
            if symbol == ")":
                depth -= 1
        for world in range(2**hidden):
            filled = kept
            for place in range(hidden):
                filled = filled.replace("?", "TF"[world >> place & 1], 1)
            yield verify(filled)

    for distribution in ("paper", "certified"):
        for example in examples("logic", distribution, 4, num=60):
            for levels in range(4):
                values = list(worlds(example.question, levels))
                assert chance_of_true(example.question, levels) == pytest.approx(sum(values) / len(values))


def test_twin_texts_have_the_same_words_names_and_claim():
    for distribution in ("certified", "certified-apex"):
        for depth in (1, 3, 5, 12):
            for positive, negative in twins("family", distribution, depth, num=50):
                assert positive.question["query"] == negative.question["query"]
                counts = [Counter(" ".join(one.question["facts"]).split()) for one in (positive, negative)]
                assert counts[0] == counts[1]


def test_every_family_text_is_as_long_and_every_claim_in_the_same_range():
    for depth in (1, 3, 7, 12):
        drawn = examples("family", "certified", depth, num=400)
        assert {len(one.question["facts"]) for one in drawn} == {28}
        claims = {OFFSETS[re.split(r" is the | of ", one.question["query"])[1]] for one in drawn}
        assert claims == {-2, -1, 0, 1, 2}


@pytest.mark.parametrize("depth", [4, 9, 12])
def test_some_decoys_grow_out_of_the_chain_and_some_out_of_its_twin(depth):
    attached = Counter()
    for example in examples("family", "certified", depth, num=200):
        people = [name for fact in example.question["facts"] for name in re.split(r" is the \S+ of ", fact)]
        named = Counter(people)
        for which, route in example.certificate.items():
            attached[which] += any(
                named[name] > (1 if name in (route[0], route[-1]) else 2) for name in route
            )
    assert 20 < attached["chain"] < 190
    assert 20 < attached["twin"] < 190


def test_apex_chains_go_up_before_they_go_down():
    for example in examples("family", "certified-apex", 6, num=50):
        facts = {
            tuple(re.split(r" is the \S+ of ", fact)): fact.split()[3] for fact in example.question["facts"]
        }
        for route in example.certificate.values():
            hops = [OFFSETS[facts[hop]] for hop in pairwise(route)]
            assert hops == sorted(hops, reverse=True)


@pytest.mark.parametrize(("depth", "seen"), [(2, 1), (3, 1), (3, 2), (5, 4)])
def test_the_exact_ceiling_of_partial_chains_is_what_counting_finds(depth, seen):
    """Whoever sees the first hops of both chains, each by itself, scores no more than the formula says."""
    counts, rng, num = Counter(), random.Random(1), 60_000
    for _ in range(num):
        right, wrong = twin_hops(rng, depth)
        claim, differ = sum(right), next(k for k in range(depth) if right[k] != wrong[k])
        hops = (right[differ], wrong[differ]) if differ < seen else (0, 0)
        shown = sum(right[:seen]), sum(wrong[:seen])
        counts[claim, shown, hops, True] += 1
        counts[claim, shown[::-1], hops[::-1], False] += 1
    views = {view[:3] for view in counts}
    best = sum(max(counts[*view, True], counts[*view, False]) for view in views) / (2 * num)
    assert chance_after(depth, seen) == pytest.approx(best, abs=0.006)


def test_ceilings_of_partial_sums_rise_to_certainty():
    for depth in (1, 5, 12):
        chances = [chance_after(depth, seen) for seen in range(depth + 1)]
        assert chances[0] == pytest.approx(0.5)
        assert chances[-1] == pytest.approx(1.0)
        assert chances == sorted(chances)
        assert max(chances[:-1]) < 0.77


def test_a_fabricated_path_does_not_certify_an_expression():
    logic = get_task("logic")
    for example in examples("logic", "certified", 5, num=40):
        path = example.certificate["path"]
        operator, literals, negated = path[2]
        for level in (("&" if operator == "|" else "|", literals, negated), (operator, ["T"] * 4, negated)):
            forged = [*path[:2], level, *path[3:]]
            assert not logic.certifies(replace(example, certificate={"path": forged}))
        # A level above that already leans: a literal that decides where only neutral ones may stand.
        early = examples("logic", "certified", 3, seed=example.difficulty, num=1)[0]
        assert not logic.certifies(replace(example, question=early.question))


def test_negations_are_spread_over_the_levels():
    drawn = examples("logic", "certified", 6, num=200)
    for level in range(6):
        assert 60 < sum(one.certificate["path"][level][2] for one in drawn) < 140


def test_the_bottom_of_an_expression_tells_nothing():
    """Nesting once ended just below the critical level: reading from the inside found it at once."""
    for depth in (1, 8, 14):
        for example in examples("logic", "certified", depth, num=50):
            deepest = max(accumulate({"(": 1, ")": -1}.get(symbol, 0) for symbol in example.question))
            assert deepest >= 2 * depth


def test_tampered_facts_are_not_certified():
    """A missing fact, a circle, a twin that fits the claim as well: each breaks the certificate."""
    family = get_task("family")
    for example in examples("family", "certified", 4, num=40):
        facts, chain, twin = example.question["facts"], *example.certificate.values()
        spare = next(fact for fact in facts if not set(re.split(r" is the \S+ of ", fact)) & {*chain, *twin})
        others = [fact for fact in facts if fact != spare]
        circle = f"{chain[0]} is the parent of {chain[2]}"
        for tampered in (others, [*others, circle]):
            assert not family.certifies(replace(example, question={**example.question, "facts": tampered}))
        if not example.label:  # there the twin is the one that sums to the claim: spoil it
            hop = next(fact for fact in facts if re.split(r" is the \S+ of ", fact) == twin[:2])
            word = "parent" if " parent " not in hop else "child"
            spoilt = re.sub(r"is the \S+ of", f"is the {word} of", hop)
            changed = [spoilt if fact == hop else fact for fact in facts]
            assert not family.certifies(replace(example, question={**example.question, "facts": changed}))


def test_names_of_nodes_tell_nothing_to_who_goes_backwards():
    """Ancestors of source and target, by name and up to h - 1 edges away, once had some in common."""
    for hops in (2, 5, 8):
        for example in examples("graph", "certified", hops, num=100):
            graph = nx.DiGraph([tuple(edge) for edge in example.question["edges"]]).reverse()
            behind = [
                set(nx.single_source_shortest_path_length(graph, example.question[role], cutoff=hops - 1))
                for role in ("source", "target")
            ]
            assert not behind[0] & behind[1]


def test_inside_a_chain_sums_from_its_beginning_are_of_no_use():
    """Certified questions alone start where the facts do: who adds up from there need not ask about whom."""

    def from_the_beginning(example):
        before = {}
        for fact in example.question["facts"]:
            first, second = re.split(r" is the \S+ of ", fact)
            before[second] = first, OFFSETS[fact.split()[3]]
        *_, claimed, _, person = example.question["query"].split()
        total = 0
        while person in before:
            person, offset = before[person]
            total += offset
        return total == OFFSETS[claimed]

    family = get_task("family")
    for depth in (1, 4, 9, 12):
        for distribution, low, high in (("certified", 1.0, 1.0), ("certified-inside", 0.35, 0.65)):
            drawn = examples("family", distribution, depth, num=200)
            assert all(family.certifies(one) and family.verify(one.question) == one.label for one in drawn)
            right = sum(from_the_beginning(one) == one.label for one in drawn) / len(drawn)
            assert low <= right <= high


def test_odd_or_even_tells_all_certified_families_apart_but_those_that_are_even():
    """A model that had learned no sums, only whether they are odd, was right on all the others."""
    for distribution, low, high in (("certified", 1.0, 1.0), ("certified-even", 0.5, 0.5)):
        for depth in (1, 5, 12):
            right = 0
            for one in (drawn := examples("family", distribution, depth, num=100)):
                relation = {}
                for fact in one.question["facts"]:
                    relation[tuple(re.split(r" is the \S+ of ", fact))] = OFFSETS[fact.split()[3]]
                claimed = OFFSETS[one.question["query"].split()[3]]
                total = sum(relation[hop] for hop in pairwise(one.certificate["chain"]))
                right += ((total - claimed) % 2 == 0) == one.label
                assert get_task("family").verify(one.question) == one.label
                assert get_task("family").certifies(one)
            assert low <= right / len(drawn) <= high
