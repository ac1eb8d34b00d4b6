"""Objects that are alive: threads add while others iterate."""

import gc
import threading

import pytest

import hloom as hl
from hloom.ir.process.living import Living


class Thing:
    pass


@pytest.mark.quick
def test_what_lives_is_listed_once():
    living: Living[Thing] = Living()
    kept = [Thing() for _ in range(3)]
    for one in [*kept, *kept, Thing()]:
        living.add(one)
    del one
    gc.collect()
    assert sorted(map(id, living)) == sorted(map(id, kept)) and len(living) == 3
    del kept[0]
    gc.collect()
    assert list(living) == kept


def _beside(work, others):
    """Runs work while a thread repeats others; raises what either raised."""
    failures, ended = [], threading.Event()

    def repeat():
        try:
            while not ended.is_set():
                others()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        work()
    finally:
        ended.set()
        thread.join()
    assert not failures, failures


def test_threads_add_while_others_iterate():
    living: Living[Thing] = Living()
    kept = []

    def add():
        for _ in range(20_000):
            kept.append(Thing())
            living.add(kept[-1])

    _beside(add, lambda: list(living))
    assert len(list(living)) == 20_000


def test_functions_are_made_while_settings_change():
    def change():
        hl.config.debug_nans = True
        hl.config.debug_nans = False

    _beside(lambda: [hl.jit(lambda x: x) for _ in range(3000)], change)
