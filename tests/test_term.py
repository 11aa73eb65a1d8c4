"""The tree: values fold back from the leaves, units combine, integers stay exact, expressions follow from the parts."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin import term, units
from napkin.commands.command import MODULES, find
from napkin.render import render
from napkin.render.screen import Display
from napkin.render.term_table import table_of
from napkin.term import Term, add, constant, divide, fold, leaf, multiply
from tests.conftest import answered

BIG = st.integers(1, 10**40)


@given(st.lists(BIG, min_size=1, max_size=5))
def test_a_sum_equals_its_parts(values: list[int]) -> None:
    total = add("total", *(leaf(f"part{i}", v, "byte") for i, v in enumerate(values)))
    assert total.value == sum(values)
    assert isinstance(total.value, int)
    assert fold(total) == total.value


@given(BIG, BIG)
def test_a_quotient_undoes_a_product_exactly(a: int, b: int) -> None:
    product = multiply("product", leaf("a", a, "FLOP"), leaf("b", b, "token"))
    assert divide("a", product, leaf("b", b, "token")).value == a
    assert divide("a", product, leaf("b", b, "token")).unit == "FLOP"


def test_units_that_differ_cannot_be_added() -> None:
    with pytest.raises(ValueError, match="units differ"):
        add("nonsense", leaf("a", 1, "byte"), leaf("b", 1, "second"))


def test_overflow_is_infinite_and_never_an_exception() -> None:
    huge = leaf("huge", 10**300, "1")
    assert multiply("m", multiply("n", huge, huge), leaf("x", 0.5, "1")).value == math.inf
    assert divide("d", leaf("a", 10**700, "1"), leaf("b", 3, "1")).value == math.inf


def test_the_expression_is_made_of_the_parts() -> None:
    node = multiply("flops", constant("6", 6, "1"), leaf("params", 3, "param"), leaf("tokens", 4, "token"))
    assert term.expression(node) == "6 × params × tokens"


def test_names_that_share_the_node_s_path_are_written_short() -> None:
    parts = [leaf(f"step/{name}", 1, "second") for name in ("compute", "bubble")]
    assert term.expression(add("step/time", *parts)) == "compute + bubble"
    assert term.expression(add("step", *parts)) == "compute + bubble"
    assert term.expression(add("total", *parts)) == "step/compute + step/bubble"
    mixed = multiply("flops/total", leaf("flops/each", 1, "FLOP/token"), leaf("tokens", 1, "token"))
    assert term.expression(mixed) == "flops/each × tokens"


def test_the_same_formula_takes_numbers_and_arrays() -> None:
    import numpy

    def cost(tp: Any) -> Term:
        size = divide("size", leaf("all", 4096, "byte"), leaf("tp", tp, "1"))
        return term.largest("worst", size, leaf("floor", 600, "byte"))

    scalars = [cost(tp).value for tp in (1, 2, 4, 8)]
    assert list(cost(numpy.array([1.0, 2.0, 4.0, 8.0])).value) == scalars == [4096, 2048, 1024, 600]


EXAMPLES = [example for name in MODULES for example in find(name).examples if name not in ("bench", "check")]
FORMS = ("text", "json", "csv", "markdown")


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_recomputes_from_its_leaves_and_shows_in_every_form(example: str) -> None:
    answer = answered(example)
    assert answer.terms or answer.rows
    for published in answer.finite():
        for node in published.walk():
            if not node.parts:
                assert node.kind in (term.GIVEN, term.TRUE, term.SEEN, term.MEASURED, term.ASSUMED), node
                continue
            op = term.OPS[node.op]
            assert op.fold([p.value for p in node.parts]) == node.value, node
            assert units.exponents(op.unit([p.unit for p in node.parts])) == units.exponents(node.unit), node
        assert fold(published) == published.value
    for form in FORMS:
        for explain in (False, True):
            assert render(answer, form, Display(explain=explain)).strip(), form
    for view in (Display(color=True), Display(verbose=True), Display(paths=True), Display(60), Display(200)):
        assert render(answer, "text", view).strip()


def test_a_term_is_written_once_by_its_path() -> None:
    size = constant("size", 2, "byte")
    first = add("first", size, multiply("all", size, constant("4", 4)))
    second = add("second", constant("size", 2, "byte"), multiply("all", size, constant("3", 3)))
    table = table_of([first, second, add("total", first, second)])
    assert list(table) == ["first", "second", "total", "size", "first/all", "4", "second/all", "3"]
    assert table["second"].parts == ["size", "second/all"]
    assert table["total"].parts == ["first", "second"]
    twice = add("sum", constant("a", 1), constant("a", 2))
    assert table_of([twice])["sum"].parts == ["sum/a", "sum/a#2"]


def test_the_largest_table_of_terms_stays_small_and_recomputes() -> None:
    line = "step deepseek-v3 --tp 4 --pp 16 --ep 32 --gpus 2048 --hardware h800 --global-batch 15360 --seq 4096"
    answer = answered(line)
    text = render(answer, "json", Display(explain=True))
    assert len(text) < 1e6
    data = json.loads(text)
    for published in answer.finite():
        assert data["terms"][published.name]["value"] == data["values"][published.name]
    for entry in data["terms"].values():
        if "parts" in entry:
            parts = [data["terms"][path]["value"] for path in entry["parts"]]
            assert term.OPS[entry["op"]].fold(parts) == pytest.approx(entry["value"])
