"""Every rule has an example: text before and after, and both give the same numbers in the reference interpreter."""

from __future__ import annotations

import pytest
from passes_support import GOLDEN, arguments, assert_same, check_golden, parsed, read_golden, results

from hloom.compiler.passes.canonicalize.dots import CANONICAL, DOTS
from hloom.compiler.passes.move_reshapes import MOVED_RESHAPES, MOVED_TRANSPOSES, RESHAPES, TRANSPOSES
from hloom.compiler.passes.rules.structure import FOLD_ARRAYS
from hloom.compiler.passes.simplify import SIMPLIFY
from hloom.ir.rewrite import EXACT, INEXACT, Rules, rewrite
from hloom.ir.text import parse_module
from hloom.ir.verify import verify

pytestmark = pytest.mark.quick

ALL = {
    r.name: r
    for table in (SIMPLIFY, CANONICAL, MOVED_RESHAPES, MOVED_TRANSPOSES, RESHAPES, TRANSPOSES, DOTS, FOLD_ARRAYS)
    for r in table
}
FILES = {path.stem: path for path in sorted((GOLDEN / "rules").glob("*.hlo"))}


def test_every_rule_has_an_example_and_an_identity():
    assert set(ALL) == set(FILES)
    for r in ALL.values():
        assert len(r.identity) > 4, r.name


@pytest.mark.parametrize("name", sorted(FILES))
def test_rule(name, request):
    path = FILES[name]
    key, head, expected = read_golden(path, "RULE")
    assert key == name
    tested = ALL[name]
    before = parsed(head, path)
    # The rule alone, so that the example shows it and nothing else.
    computation = rewrite(before.entry, Rules([tested]), inexact=tested.numerics == INEXACT)
    assert computation is not before.entry, f"rule {name} does not apply to its example"
    after = before.with_entry(computation)
    verify(after)
    made = [i for i in computation.instructions if name in i.made_by]
    assert made or len(computation.instructions) < len(before.entry.instructions)
    check_golden(path, head, expected, after, request.config.getoption("--bless"))
    for seed in range(6):
        special = seed > 0 and tested.numerics != INEXACT
        values = arguments(before, seed, special)
        for a, b in zip(results(before, values), results(after, values), strict=True):
            # Products and sums cancel, and overflow in another order: what is near is only compared on tame numbers.
            if tested.numerics == EXACT or not special or "power" in name or "root" in name:
                assert_same(a, b, tested.numerics)


@pytest.mark.parametrize("name", sorted(n for n, r in ALL.items() if r.numerics == INEXACT))
def test_inexact_rules_need_the_flag(name):
    before = parsed(read_golden(FILES[name], "RULE")[1], FILES[name])
    assert rewrite(before.entry, Rules([ALL[name]])) is before.entry


def test_all_rules_together_end():
    """The whole table changes nothing more after the walks that rewrite makes on an example."""
    for name, path in FILES.items():
        before = parsed(read_golden(path, "RULE")[1], path)
        once = rewrite(before.entry, SIMPLIFY)
        assert rewrite(once, SIMPLIFY) is once, name


# Near misses: what looks like a rule and is none.
NOT_REWRITTEN = {
    "integers clamp on the way from floats, and wrap between themselves": (
        "x = u8[4] parameter(0)\n f = f32[4] convert(x)\n ROOT y = s8[4] convert(f)"
    ),
    "x + 0 turns -0 into 0": (
        "x = f32[4] parameter(0)\n c = f32[] constant(0)\n z = f32[4] broadcast(c), dimensions={}\n"
        "ROOT y = f32[4] add(x, z)"
    ),
    "x - x of NaN": "x = f32[4] parameter(0)\n ROOT y = f32[4] subtract(x, x)",
    "not (x < y) where one is NaN": (
        "x = f32[4] parameter(0)\n c = pred[4] compare(x, x), direction=LE\n ROOT y = pred[4] not(c)"
    ),
    "a third is no number of the dtype": (
        "x = f32[4] parameter(0)\n c = f32[] constant(3)\n z = f32[4] broadcast(c), dimensions={}\n"
        "ROOT y = f32[4] divide(x, z)"
    ),
    "narrowing first loses bits": "x = f32[4] parameter(0)\n h = f16[4] convert(x)\n ROOT y = f32[4] convert(h)",
}


@pytest.mark.parametrize("why", sorted(NOT_REWRITTEN))
def test_near_misses_stay(why):
    module = parse_module(f"HloModule m\nENTRY main {{\n {NOT_REWRITTEN[why]}\n}}\n")
    assert rewrite(module.entry, SIMPLIFY) is module.entry


def test_the_negative_of_an_unsigned_number_is_large():
    text = "HloModule m\nENTRY main {\n x = u8[4] parameter(0)\n n = u8[4] negate(x)\n ROOT y = u8[4] abs(n)\n}\n"
    assert rewrite(parse_module(text).entry, SIMPLIFY).root.opcode == "negate"
