"""Element-wise work on rows, four elements a thread: which accesses of a statement can be those of 16 bytes.

An index counts as aligned where it is the innermost variable plus multiples of four: rows that are a multiple of four
long begin at such places, and so does every fourth element of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

VECTOR = 4
_ELEMENT = re.compile(r"(\w+)\[([^\[\]]*)\]")
_LOAD = re.compile(r"load_(\w+)\((\w+), ([^()]*)\)")
_STORE = re.compile(r"^store_(\w+)\((\w+), ([^(),]*), (.*)\)$")


class WideRows:
    """The statements of a row's element, for element `k` of four.

    pointers: by name the HLO dtype. integers: values of the names in indexes. lines: None where a statement needs more
    than aligned accesses. reads, writes: (pointer, index) -> the array of four that stands for it.
    """

    def __init__(self, body: list, variable: str, pointers: Mapping[str, str], integers: Mapping[str, int]):
        self.variable, self.pointers, self.integers = variable, pointers, integers
        self.reads: dict[tuple[str, str], str] = {}
        self.writes: dict[tuple[str, str], str] = {}
        self.lines: list[str] | None = []
        for statement in body:
            line = self._line(statement) if isinstance(statement, str) else None
            if line is None:
                self.lines = None
                return
            self.lines.append(line)

    def _line(self, line: str) -> str | None:
        stored = _STORE.match(line)
        if stored and stored[2] in self.pointers:
            array = self._array(self.writes, "y", stored[2], stored[3])
            line = f"store_{stored[1]}({array}, k, {stored[4]})" if array else line
        found = re.match(r"^(\w+)\[([^\[\]]*)\] = (.*)$", line)
        if found and found[1] in self.pointers:
            array = self._array(self.writes, "y", found[1], found[2])
            line = f"{array}[k] = {found[3]}" if array else line
        line = _LOAD.sub(self._load, line)
        line = _ELEMENT.sub(self._element, line)
        return None if re.search(rf"\b{self.variable}\b", line) else line

    def _load(self, found: re.Match) -> str:
        array = self._array(self.reads, "x", found[2], found[3])
        return f"load_{found[1]}({array}, k)" if array else found[0]

    def _element(self, found: re.Match) -> str:
        array = self._array(self.reads, "x", found[1], found[2])
        return f"{array}[k]" if array else found[0]

    def _array(self, arrays: dict[tuple[str, str], str], letter: str, pointer: str, index: str) -> str:
        """The array for an access; '' for one that is not by vectors."""
        if pointer not in self.pointers or not self._aligned(index):
            return ""
        return arrays.setdefault((pointer, index), f"{letter}{len(arrays)}")

    def _aligned(self, index: str) -> bool:
        terms = index.split(" + ")
        if terms.count(self.variable) != 1:
            return False
        return all(self._is_multiple(term) for term in terms if term != self.variable)

    def _is_multiple(self, term: str) -> bool:
        factors = [self.integers.get(word, int(word) if word.isdigit() else 1) for word in term.split(" * ")]
        return any(factor % VECTOR == 0 for factor in factors)
