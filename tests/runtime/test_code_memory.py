"""Memory of machine code: many objects in one mapping, never writable and executable, given back with the last user."""

from __future__ import annotations

import ctypes
import gc
import os
import threading

import pytest

from hloom.backends.cpu.driver import driver
from hloom.runtime import code_memory, elf

pytestmark = [pytest.mark.quick, pytest.mark.skipif(not elf.usable(), reason="it is for Linux on x86-64")]

# mov eax, imm32; ret
RETURN = b"\xb8%s\xc3"


def function(number: int) -> code_memory.Piece:
    (piece,) = code_memory.place([16])
    code = RETURN.replace(b"%s", number.to_bytes(4, "little"))
    with piece.memory as memory:
        memory[: len(code)] = code
    code_memory.seal([piece])
    return piece


def call(piece: code_memory.Piece) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int)(piece.address)()


def mappings() -> list[str]:
    return open("/proc/self/maps").read().splitlines()


def test_a_thousand_objects_share_mappings():
    before = len(mappings())
    pieces = [function(k) for k in range(1000)]
    assert [call(piece) for piece in pieces] == list(range(1000))
    assert len(mappings()) - before < 30


def test_what_is_not_used_any_more_is_given_back():
    driver()  # which is code too, and may be loaded in the background
    gc.collect()
    before = code_memory.statistics()
    pieces = [function(k) for k in range(1000)]
    assert code_memory.statistics().bytes_used >= before.bytes_used + 1000 * code_memory.PAGE
    del pieces[1::2]
    assert [call(piece) for piece in pieces] == list(range(0, 1000, 2))
    again = [function(-k & 0xFFFF) for k in range(500)]  # in the gaps
    assert code_memory.statistics().bytes_held <= before.bytes_held + 1000 * code_memory.PAGE + (2 << 20)
    assert [call(piece) for piece in pieces] == list(range(0, 1000, 2))
    del pieces, again
    assert code_memory.statistics().bytes_used == before.bytes_used
    assert code_memory.statistics().blocks <= before.blocks + 1


def test_an_object_larger_than_a_block_has_one_of_its_own():
    (large,) = code_memory.place([3 << 20])
    assert len(large) == 3 << 20
    small = function(7)
    code_memory.seal([large])
    assert call(small) == 7


def permissions(address: int) -> str:
    for line in mappings():
        span, rights, *_ = line.split()
        low, high = (int(end, 16) for end in span.split("-"))
        if low <= address < high:
            return rights
    raise AssertionError("no mapping")


def test_no_page_may_be_written_and_executed():
    pieces = [function(k) for k in range(20)]
    del pieces[3:9]
    (unsealed,) = code_memory.place([100])
    assert {permissions(piece.address)[:3] for piece in pieces} == {"r-x"}
    assert permissions(unsealed.address)[:3] == "rw-"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_has_code_of_its_own():
    kept = function(1)
    gone = function(2)
    ready, answered = os.pipe()
    child = os.fork()
    if not child:
        del gone
        made = [function(k) for k in range(50)]
        good = call(kept) == 1 and [call(p) for p in made] == list(range(50))
        os.write(answered, b"1" if good else b"0")
        os._exit(0)
    assert os.read(ready, 1) == b"1"
    os.waitpid(child, 0)
    assert (call(kept), call(gone)) == (1, 2)


def test_threads_place_and_free_at_the_same_time():
    wrong = []

    def work(start: int) -> None:
        pieces = []
        for k in range(start, start + 300):
            pieces.append(function(k))
            if k % 3 == 0:
                del pieces[0]
        wrong.extend(k for k, p in zip(range(start + 299, start, -1), reversed(pieces), strict=False) if call(p) != k)

    threads = [threading.Thread(target=work, args=(1000 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_only_the_last_piece_unmaps_a_block():
    """The interpreter, which clears modules in an order of its own when it ends, does not: destructors of other
    libraries may still call what is there."""
    block = code_memory._Block(code_memory.BLOCK)
    address = block.address
    del block
    assert permissions(address)[:3] == "rw-"
    (piece,) = code_memory.place([3 << 20])
    code_memory.seal([piece])
    address = piece.address
    assert permissions(address)[:3] == "r-x"
    del piece
    with pytest.raises(AssertionError, match="no mapping"):
        permissions(address)
