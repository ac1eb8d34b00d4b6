"""The native functions that run a team: the programs of several devices that wait for each other.

Python source as in `driver_source`, which explains it.
"""

from __future__ import annotations

from hloom.runtime import driver_source
from hloom.runtime.driver_source import C_LIBRARY, CONSTANTS, RUN_SIGNATURE, NativeFunction, words

# Words of a team: programs that run alongside and wait for each other, on any number of threads.
TEAM_COUNT, TEAM_HELPERS, TEAM_STATUS, TEAM_BLOCK, TEAM_STATE = 0, 1, 2, 3, 4
TEAM_FINISHED, TEAM_SLICES, TEAM_STOP = 16, 32, 48  # programs that have ended; times that one ran; why all end, or 0
TEAM_MEMBERS, MEMBER_WORDS = 64, 2  # of each program the block, and the address of its driver's state
INTERRUPTED, STUCK = 1, 2  # why a team stops: a signal handler raised; all that are left wait for each other

LOOKING = 1000  # naps of a thread of a team after which it looks for signals, and whether there is any hope
STEALING = 64  # times that a thread of a team looks for a program of its own share before it steals another's

_CONSTANTS = CONSTANTS | {name: value for name, value in globals().items() if name.isupper() and isinstance(value, int)}

# Before a team runs: all of its programs at their first step. args: one word, the address of the team.
TEAM_BEGIN = """
def hloom_team_begin(args, low, high):
    team = load(args, 0)
    atomic_store(team, TEAM_FINISHED, 0)
    atomic_store(team, TEAM_SLICES, 0)
    atomic_store(team, TEAM_STOP, 0)
    for member in range(load(team, TEAM_COUNT)):
        block = load(team, TEAM_MEMBERS + MEMBER_WORDS * member)
        store(block, BLOCK_FIRST, 0)
        store(block, BLOCK_INTERRUPTED, 0)
        store(block, BLOCK_LOOK, 0)
        store(block, BLOCK_TURNS, 1)
        store(block, BLOCK_SEEN, 0)
        store(block, BLOCK_BUSY, 0)
        store(block, BLOCK_AT, 0)
"""

# Whether a program of a team can continue: it waits for nothing, or its wait is satisfied.
READY = """
def hloom_ready(block):
    first = atomic_load(block, BLOCK_FIRST)
    if first == 0:
        return 1
    if atomic_load(first, 0) < atomic_load(atomic_load(block, BLOCK_SECOND), 0):
        return 0
    return 1
"""

# Runs a program of a team until it waits or ends, unless another thread does; returns whether it ran. look: as
# BLOCK_LOOK, in the thread that called the team.
SLICE = """
def hloom_slice(team, member, look):
    block = load(team, TEAM_MEMBERS + MEMBER_WORDS * member)
    if atomic_load(block, BLOCK_AT) < 0 or atomic_load(block, BLOCK_BUSY) != 0 or hloom_ready(block) == 0:
        return 0
    if not compare_exchange(block, BLOCK_BUSY, 0, 1):
        return 0
    if atomic_load(block, BLOCK_AT) < 0:
        atomic_store(block, BLOCK_BUSY, 0)
        return 0
    outer = load(team, TEAM_BLOCK)
    store(block, BLOCK_LOOK, look)
    if look != 0:
        store(block, BLOCK_THREAD, load(outer, BLOCK_THREAD))
    store(block, BLOCK_FIRST, 0)
    hloom_run(
        load(load(team, TEAM_MEMBERS + MEMBER_WORDS * member + 1), STATE_POOL), load(block, BLOCK_STEPS),
        load(block, BLOCK_STEP_COUNT), load(block, BLOCK_RELOCATIONS), load(block, BLOCK_RELOCATION_COUNT),
        load(block, BLOCK_ARGS), load(block, BLOCK_SLOTS), block,
    )
    if look != 0:
        store(outer, BLOCK_THREAD, load(block, BLOCK_THREAD))
        if load(block, BLOCK_INTERRUPTED) != 0:
            store(outer, BLOCK_INTERRUPTED, 1)
            atomic_store(team, TEAM_STOP, INTERRUPTED)
    atomic_add(team, TEAM_SLICES, 1)
    if load(block, BLOCK_AT) < 0:
        atomic_add(team, TEAM_FINISHED, 1)
    atomic_store(block, BLOCK_BUSY, 0)
    return 1
"""

# Whether all programs of a team that have not ended wait for each other. That state is permanent: a wait can only be
# satisfied by another program that runs, which is then marked busy, or has counted its run. A program may start while
# it is being checked, release another one and wait again: so it must not be busy after the check, either.
STUCK_TEAM = """
def hloom_stuck(team):
    ran = atomic_load(team, TEAM_SLICES)
    count = load(team, TEAM_COUNT)
    for member in range(count):
        block = load(team, TEAM_MEMBERS + MEMBER_WORDS * member)
        if atomic_load(block, BLOCK_BUSY) != 0:
            return 0
        if atomic_load(block, BLOCK_AT) >= 0 and hloom_ready(block) != 0:
            return 0
        if atomic_load(block, BLOCK_BUSY) != 0:
            return 0
    if atomic_load(team, TEAM_SLICES) != ran or atomic_load(team, TEAM_FINISHED) == count:
        return 0
    return 1
"""

# One thread's part of running a team: its share of the programs, each until it waits; those of others where all of its
# own wait for long. Any number of threads, even one, runs all programs to their end.
TEAM = """
def hloom_team(args, low, high):
    team = load(args, 0)
    count = load(team, TEAM_COUNT)
    helpers = load(team, TEAM_HELPERS)
    status = load(team, TEAM_STATUS)
    state = load(team, TEAM_STATE)
    outer = load(team, TEAM_BLOCK)
    look = load(outer, BLOCK_LOOK)
    if look != 0 and pthread_self() != load(state, STATE_MAIN_THREAD):
        look = 0
    first = count * low // helpers
    share = count * (low + 1) // helpers - first
    limit = load(load(state, STATE_POOL), POOL_SPINS)
    idle = 0
    while atomic_load(team, TEAM_FINISHED) != count and atomic_load(team, TEAM_STOP) == 0:
        if load_byte(status) == 0:
            return
        ran = 0
        scanned = share
        if idle >= STEALING:
            scanned = count
        for k in range(scanned):
            ran |= hloom_slice(team, (first + k) % count, look)
            if atomic_load(team, TEAM_STOP) != 0:
                return
        if ran != 0:
            idle = 0
            continue
        idle += 1
        if idle == STEALING:
            if hloom_stuck(team) != 0:
                atomic_store(team, TEAM_STOP, STUCK)
        elif idle <= limit:
            pause()
        elif idle <= limit + LONG_WAIT:
            sched_yield()
        else:
            usleep(50)
            if (idle - limit) % LOOKING == 0:
                if hloom_stuck(team) != 0:
                    atomic_store(team, TEAM_STOP, STUCK)
                if look != 0:
                    call_kernel(look, outer, 0, 0)
                    if load(outer, BLOCK_INTERRUPTED) != 0:
                        atomic_store(team, TEAM_STOP, INTERRUPTED)
"""

_READY = {"hloom_ready": (words(1), "s64")}


def _function(name: str, text: str, count: int, result: str = "void", calls=None, exported: bool = False):
    return NativeFunction(name, text, words(count), result, calls or {}, exported, _CONSTANTS)


_SLICE = {"hloom_slice": (words(3), "s64"), "hloom_stuck": (words(1), "s64")}

FUNCTIONS = (
    *driver_source.FUNCTIONS,
    _function("hloom_team_begin", TEAM_BEGIN, 3, exported=True),
    _function("hloom_ready", READY, 1, "s64"),
    _function("hloom_slice", SLICE, 3, "s64", RUN_SIGNATURE | _READY),
    _function("hloom_stuck", STUCK_TEAM, 1, "s64", _READY),
    _function("hloom_team", TEAM, 3, calls=C_LIBRARY | RUN_SIGNATURE | _SLICE, exported=True),
)
