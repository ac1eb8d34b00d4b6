"""Kernel functions: what is known leaves no trace, what is called is inlined, names stay apart."""

from __future__ import annotations

import pickle

import pytest

from hloom.compiler.kernel_ir.builder import ONE, cast, constant, times
from hloom.compiler.kernel_ir.generic.language import (
    Block,
    Formula,
    Int,
    Pointer,
    R,
    T,
    abs_squared,
    address,
    cabs1,
    conj,
    f64,
    is_finite,
    kernel_function,
    nan,
    pair,
    prefetch,
    s64,
    scratch,
    sqrt,
    summed,
)
from hloom.compiler.kernel_ir.generic.specialize import completed, specialized, statements_of
from hloom.compiler.kernel_ir.nodes import Assign, Kernel, Store, Var
from hloom.compiler.kernel_ir.printer import printed
from hloom.compiler.kernel_ir.reader import KernelSyntaxError
from hloom.compiler.kernel_ir.types import PART
from hloom.compiler.kernel_ir.verify import verify
from hloom.compiler.kernels.codegen.functions import later_source_of
from hloom.compiler.kernels.codegen.source import KernelSource
from hloom.compiler.kernels.math import FUNCTIONS
from hloom.compiler.targets.cpu import library

WIDTH = 4


def text_of(function, element="f32", **known) -> str:
    """The lines of the kernel of a function of pointers x and y, n, and what is known."""
    x, y = Var(f"*{element}", "x"), Var(f"*{element}", "y")
    n = Var("s64", "n")
    given = {"x": x, "y": y, "n": n} | known
    kernel = specialized(function, "k", (x, y, n), given, {"T": element, "R": PART.get(element, element), "Int": "s32"})
    verify(kernel, library.signature)
    return printed(kernel).partition("\n")[2]


@kernel_function
def choices(x: Pointer[T], y: Pointer[T], n: s64, down: bool, step: int) -> None:
    for i in range(n):
        if down and step > 1:
            at = n - 1 - i
        else:
            at = i
        y[at * (step - 1) + (step if down else 0)] = x[at % WIDTH]


def test_what_is_known_is_decided():
    assert text_of(choices, down=True, step=3) == (
        "    for i in range(n):\n        at = n - 1 - i\n        y[at * 2 + 3] = x[at % 4]\n"
    )
    assert text_of(choices, down=False, step=3) == (
        "    for i in range(n):\n        at = i\n        y[at * 2 + 0] = x[at % 4]\n"
    )


@kernel_function
def largest(x: Pointer[T], first: s64, n: s64) -> tuple[s64, T]:
    best = first
    most = x[first]
    for i in range(n):
        if x[first + i].real > most.real:
            most = x[first + i]
            best = first + i
    return best, most


@kernel_function
def two_of_one_name(x: Pointer[T], y: Pointer[T], n: s64) -> None:
    best = n + 1
    place, most = largest(x, n, n)
    y[place] = most
    y[best] = x[best]


def test_variables_of_a_part_stay_its_own():
    assert text_of(two_of_one_name) == (
        "    best = n + 1\n    place = n\n    most = x[n]\n    for i in range(n):\n        if x[n + i] > most:\n"
        "            most = x[n + i]\n            place = n + i\n    y[place] = most\n    y[best] = x[best]\n"
    )


@kernel_function
def half(n: s64) -> s64:
    n = n // 2
    rest = n % 2
    return n + rest


@kernel_function
def locals_of_one_name(x: Pointer[T], y: Pointer[T], n: s64) -> None:
    rest = n
    m = half(n)
    y[m] = x[rest]


def test_a_local_of_the_caller_is_not_overwritten():
    assert text_of(locals_of_one_name) == (
        "    rest = n\n    n_1 = n\n    n_1 = n_1 // 2\n    rest_1 = n_1 % 2\n    m = n_1 + rest_1\n"
        "    y[m] = x[rest]\n"
    )


@kernel_function
def grown(count: s64, other: s64) -> s64:
    count += other
    return count


@kernel_function
def in_and_out(x: Pointer[T], y: Pointer[T], n: s64) -> None:
    total = 0
    for i in range(n):
        total = grown(total, i)
    other = grown(total, total)
    y[other] = x[total]


def test_a_result_is_the_variable_of_the_caller():
    assert text_of(in_and_out) == (
        "    total = 0\n    for i in range(n):\n        total += i\n    other = total\n    other += total\n"
        "    y[other] = x[total]\n"
    )


@kernel_function
def squared(x: Pointer[T], place: s64) -> T:
    return x[place] * conj(x[place])


@kernel_function
def operations(x: Pointer[T], y: Pointer[T], n: s64) -> None:
    row = scratch(T, 2 * WIDTH)
    s = T(0.0)
    for i in range(n):
        s = summed(s, squared(x, i + 1))
        size = sqrt(abs_squared(x[i])) + cabs1(x[i])
        row[i] = (x[i] - size) * size / x[0] + pair(size, x[i].imag)
        y[i] = -row[i] if is_finite(x[i]) else T(nan)
        y[0] = x[i] / size if x[i] == T(1.0) else size * (size / x[1]) + s


def test_operations_of_complex_numbers_become_those_of_parts():
    assert text_of(operations, "c64") == (
        "    row = scratch_c64(8)\n"
        "    s = complex_f32(f32(0.0), f32(0.0))\n"
        "    for i in range(n):\n"
        "        s = s + mul_c64(x[i + 1], complex_f32(x[i + 1].real, -x[i + 1].imag))\n"
        "        size = sqrt_f32(x[i].real * x[i].real + x[i].imag * x[i].imag)"
        " + (abs_f32(x[i].real) + abs_f32(x[i].imag))\n"
        "        row[i] = div_c64(complex_f32((x[i] - complex_f32(size, f32(0.0))).real * size,"
        " (x[i] - complex_f32(size, f32(0.0))).imag * size), x[0]) + complex_f32(size, x[i].imag)\n"
        "        y[i] = -row[i] if is_finite_f32(x[i].real) and is_finite_f32(x[i].imag)"
        " else complex_f32(f32(nan), f32(nan))\n"
        "        y[0] = complex_f32(x[i].real / size, x[i].imag / size) if x[i] == complex_f32(f32(1.0), f32(0.0))"
        " else complex_f32(div_c64(complex_f32(size, f32(0.0)), x[1]).real * size,"
        " div_c64(complex_f32(size, f32(0.0)), x[1]).imag * size) + s\n"
    )


@kernel_function
def real_operations(x: Pointer[T], y: Pointer[T], n: s64) -> None:
    for i in range(n):
        s = summed(conj(x[i]), x[i].imag)
        y[i] = s * abs_squared(x[i]) if is_finite(x[i]) else T(cabs1(x[i].real)) + T(f64(i))


def test_real_numbers_are_their_own_real_parts():
    assert text_of(real_operations, "f64") == (
        "    for i in range(n):\n"
        "        s = sum_f64(x[i], f64(0.0))\n"
        "        y[i] = s * (x[i] * x[i]) if is_finite_f64(x[i]) else f64(abs_f64(x[i])) + f64(f64(i))\n"
    )


@kernel_function
def names_of_several_types(x: Pointer[T], y: Pointer[T], n: s64) -> None:
    for i in range(n):
        s = x[i] + x[0]
        y[i] = s
    for i in range(n):
        s = half(i)
        y[s] = x[s]
    m = half(n)
    other = half(n + 2)
    s = m + other
    y[s] = x[m]


@kernel_function
def nested(x: Pointer[T], y: Pointer[T], n: s64) -> None:
    for i in range(n):
        for k in range(i):
            place, most = largest(x, k, i)
            y[place] = most
    for i in range(n):
        place, most = largest(x, i, n)
        y[place] = most
        for k in range(n):
            at, most = largest(x, k, place)
            y[at] = most


def test_names_of_parts_are_those_of_one_function():
    """What is made is what the text is read as: one variable of a name where one is seen (`text_of` verifies that)."""
    several = text_of(names_of_several_types)
    assert "        s = x[i] + x[0]\n" in several and "        s_1 = n_1 + rest\n" in several
    assert "    s_2 = m + other\n" in several
    assert text_of(nested).count("for i_1 in range(") == 3


@kernel_function
def wrong_type(x: Pointer[T], y: Pointer[Int], n: s64) -> None:
    y[n] = Int(n)


@kernel_function
def two_results(x: Pointer[T], y: Pointer[T], n: s64) -> None:
    place = largest(x, n, n)
    y[place] = x[place]


@kernel_function
def exchanged(a: s64, b: s64) -> tuple[s64, s64]:
    a += 1
    b += 2
    return a, b


@kernel_function
def crossed(x: Pointer[T], y: Pointer[T], n: s64) -> None:
    p = n
    q = n + 1
    q, p = exchanged(p, q)
    y[p] = x[q]


@kernel_function
def within_an_expression(x: Pointer[T], y: Pointer[T], n: s64) -> None:
    y[half(n) + 1] = x[n]


@kernel_function
def unknown_size(x: Pointer[T], y: Pointer[T], n: s64) -> None:
    row = scratch(T, n)
    y[n] = row[n]


@kernel_function
def mixed(x: Pointer[T], y: Pointer[R], n: s64) -> None:
    y[n] = x[n] + sqrt(2.0)


@pytest.mark.parametrize(
    "function, found",
    [
        (wrong_type, r"wrong_type: y is \*f32 where \*s32 is expected"),
        (two_results, "two_results: 2 results for 1 variables"),
        (crossed, "crossed: results that are no variables"),
        (within_an_expression, "within_an_expression: statements within an expression"),
        (unknown_size, "unknown_size: scratch memory of a computed size"),
        (choices, "choices: parameters x, y, n, down, step, given x, y, n"),
    ],
)
def test_what_is_no_kernel_is_refused(function, found):
    with pytest.raises(KernelSyntaxError, match=found) as caught:
        text_of(function)
    first = function.__code__.co_firstlineno
    assert first <= caught.value.line <= first + 6


def test_complex_and_other_numbers_do_not_mix():
    x, n = Var("*c64", "x"), Var("s64", "n")
    given = {"x": x, "y": Var("*f32", "y"), "n": n}
    with pytest.raises(KernelSyntaxError, match="complex with other numbers"):
        specialized(mixed, "k", (x, given["y"], n), given, {"T": "c64", "R": "f32"})


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_functions_return_what_the_library_says(dtype):
    """`language` says what a function returns; so does the math library, which is compiled."""
    assert FUNCTIONS[f"is_finite_{dtype}"].result == "pred"
    for name in ("sqrt", "fma", "max", "sum", "abs"):
        assert FUNCTIONS[f"{name}_{dtype}"].result == dtype


@kernel_function
def mapped_elements(x: Pointer[T], y: Pointer[T], n: s64, formula: Formula) -> None:
    for i in range(n):
        taken = x[i]
        y[i] = formula(taken)


def test_elements_of_narrow_types_are_registers():
    assert text_of(mapped_elements, "bf16", formula=lambda x: times(x, cast("f32", constant(2.0)))) == (
        "    for i in range(n):\n        taken = load_bf16(x, i)\n        store_bf16(y, i, taken * f32(2.0))\n"
    )
    assert text_of(mapped_elements, "pred", formula=lambda x: x) == (
        "    for i in range(n):\n        taken = load_pred(x, i)\n        store_pred(y, i, taken)\n"
    )


def test_formulas_are_checked():
    with pytest.raises(KernelSyntaxError, match="mapped_elements: formula, which makes an expression, is given f32"):
        text_of(mapped_elements, formula="f32")
    with pytest.raises(KernelSyntaxError, match="mapped_elements: truth values with floats"):
        text_of(mapped_elements, formula=lambda x: times(x, constant(True)))


@kernel_function
def doubled_while_small(y: Pointer[T], count: s64, n: s64, step: int) -> s64:
    for i in range(n):
        total = count * step
        y[i] = T(total)
        count = total + i
    return count


def test_functions_among_other_statements():
    y, n, count, total = Var("*f32", "y"), Var("s64", "n"), Var("s64", "count"), Var("s64", "total")
    part = statements_of(doubled_while_small, {"y": y, "count": count, "n": n, "step": 3}, {"T": "f32"}, (count,))
    body = [Assign(count, ONE), Assign(total, n), *part, Store(y, count, cast("f32", total), "f32")]
    kernel = completed(Kernel("k", (y, n), body))
    verify(kernel, library.signature)
    assert printed(kernel).partition("\n")[2] == (
        "    count = 1\n    total = n\n"
        "    for i in range(n):\n"
        "        total_1 = count * 3\n        y[i] = f32(total_1)\n        count = total_1 + i\n"
        "    y[count] = f32(total)\n"
    )


# --- kernels that are made later


@kernel_function
def rows(x: Pointer[T], y: Pointer[T], lo: s64, hi: s64, width: int, copy: Block) -> None:
    for item in range(lo, hi):
        source = address(x) + item * width
        prefetch(source + width)
        copy(source, address(y) + item * width)


def later(width: int, dtype: str = "f32") -> KernelSource:
    kinds = {"x": f"{dtype}*", "y": f"{dtype}*", "lo": "s64", "hi": "s64"}
    known = {"width": width, "copy": f"copy_{dtype}_{WIDTH}", "other": 1}
    return later_source_of(rows, f"rows_{dtype}", kinds, known, {"T": dtype})


def test_blocks_and_addresses():
    assert later(16).text.splitlines() == [
        "def rows_f32(x, y, lo, hi):",
        "    for item in range(lo, hi):",
        "        source = address(x) + item * 16",
        "        prefetch(source + 16)",
        "        copy_f32_4(source, address(y) + item * 16)",
    ]
    verify(later(16).nodes, library.signature)


def test_a_kernel_is_made_when_it_is_asked_for():
    source = later(16)
    assert source == later(16) and hash(source) == hash(later(16)) and source.identity == later(16).identity
    assert len({source, later(16), later(32), later(16, "f64")}) == 3
    assert source.params == ("f32*", "f32*", "s64", "s64") and "text" not in vars(source)
    plain = KernelSource(source.name, source.text, source.params)
    assert source != plain and plain.identity == plain.text and source.identity != source.text
    assert pickle.loads(pickle.dumps(source)) == plain
