"""The native functions that evaluate integers known only when a program is called (`hloom.ir.sizes.numbers`), in the
language of `hloom.runtime.driver_source`."""

from __future__ import annotations

from hloom.ir.sizes.numbers import ADD, DIVIDE, EQUAL, GREATEST, LEAST, LESS_EQUAL, MULTIPLY, SUBTRACT
from hloom.runtime.driver_source import NativeFunction, words

MOST = (1 << 63) - 1  # no number is further from 0
SMALL = 1 << 31  # products of smaller values do not overflow
ROW_WORDS, PATCH_WORDS = 4, 2
WELL, OVERFLOW, BY_ZERO = 0, 1, 2
CONSTANTS = {
    "ADD": ADD, "SUBTRACT": SUBTRACT, "MULTIPLY": MULTIPLY, "DIVIDE": DIVIDE, "LEAST": LEAST, "GREATEST": GREATEST,
    "LESS_EQUAL": LESS_EQUAL, "EQUAL": EQUAL, "MOST": MOST, "SMALL": SMALL, "OVERFLOW": OVERFLOW, "BY_ZERO": BY_ZERO,
}  # fmt: skip

# Evaluates rows (operation, node, node, node of the result) in the values of nodes. Answers OVERFLOW where a number has
# no room in 64 bits and BY_ZERO for a quotient by 0, or 0.
EVALUATE = """
def hloom_evaluate(rows, count, values):
    for k in range(count):
        row = rows + 32 * k
        operation = load(row, 0)
        left = load(values, load(row, 1))
        right = load(values, load(row, 2))
        result = 0
        if operation == ADD:
            if right > 0 and left > MOST - right or right < 0 and left < -MOST - right:
                return OVERFLOW
            result = left + right
        elif operation == MULTIPLY:
            if left >= SMALL or right >= SMALL or left <= -SMALL or right <= -SMALL:
                if left != 0 and abs(right) > MOST // abs(left):
                    return OVERFLOW
            result = left * right
        elif operation == DIVIDE:
            if right == 0:
                return BY_ZERO
            result = left // right
        elif operation == GREATEST:
            result = max(left, right)
        elif operation == LEAST:
            result = min(left, right)
        elif operation == LESS_EQUAL:
            if left <= right:
                result = 1
        elif operation == EQUAL:
            if left == right:
                result = 1
        elif operation == SUBTRACT:
            if right < 0 and left > MOST + right or right > 0 and left < -MOST + right:
                return OVERFLOW
            result = left - right
        store(values, load(row, 3), result)
    return 0
"""

# Writes values of nodes where they are wanted: rows (address of a word, node).
WRITE = """
def hloom_write(rows, count, values):
    for k in range(count):
        row = rows + 16 * k
        store(load(row, 0), 0, load(values, load(row, 1)))
"""

FUNCTIONS = (
    NativeFunction("hloom_evaluate", EVALUATE, words(3), "s64", exported=True, constants=CONSTANTS),
    NativeFunction("hloom_write", WRITE, words(3), exported=True, constants=CONSTANTS),
)
