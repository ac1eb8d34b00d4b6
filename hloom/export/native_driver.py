"""The functions that exported programs share with the runtime (`runtime.driver_source`, `runtime.numbers_source`),
printed as C.

What they call of the system (threads, locks, the clock) and of memory is in `native/words.c`.
"""

from __future__ import annotations

import functools

from hloom.compiler.kernel_ir.native.c_printer import constant, constants, declared, printed
from hloom.compiler.kernel_ir.native.functions import read_function, specialized
from hloom.runtime import driver_source, numbers_source

__all__ = ["driver_text"]

PREFIX = "DRIVER_"  # of the names of constants
# Steps that exported programs do not have: they wait for no other device, no message and no signal handler.
_NEVER = ("LOOP", "LOOK", "SIGNAL", "AWAIT", "POLL")
# Parameters that have one value in all of them: addresses are put into the argument words before, and no Python object
# is around.
_KNOWN = {"hloom_run": {"relocations": 0, "relocation_count": 0, "slots": 0, "block": 0}}
_FUNCTIONS = ("hloom_evaluate", "hloom_work", "hloom_wakes", "hloom_parallel", "hloom_run")
_OF_THREADS = ("hloom_worker", "hloom_stop", "hloom_spin")
_NAMES = {
    "load": "word_load", "store": "word_store", "relaxed_load": "word_relaxed_load", "pause": "pause_briefly",
    "relaxed_store": "word_relaxed_store", "atomic_load": "word_atomic_load", "atomic_store": "word_atomic_store",
    "atomic_add": "word_atomic_add", "compare_exchange": "word_compare_exchange", "load_byte": "byte_load",
    "pthread_mutex_lock": "lock_at", "pthread_mutex_unlock": "unlock_at", "pthread_cond_wait": "wait_at",
    "pthread_cond_broadcast": "wake_at", "sched_yield": "give_way",
}  # fmt: skip
# Constants that the C around these functions reads.
_MORE = (
    "KERNEL", "JUMP", "POOL_WORDS", "POOL_MUTEX", "POOL_CONDITION", "POOL_WAKING", "POOL_SPINS", "POOL_THREADS",
    "POOL_STARTED", "TICKET_WORDS", "WAKING", "SPIN_NANOSECONDS",
)  # fmt: skip


@functools.cache
def driver_text() -> str:
    """The C of the functions."""
    sources = {function.name: function for function in (*driver_source.FUNCTIONS, *numbers_source.FUNCTIONS)}

    def made(name: str):
        return specialized(read_function(sources[name]), _KNOWN.get(name, {}), _NEVER)

    always, threads = ([made(name) for name in names] for names in (_FUNCTIONS, _OF_THREADS))
    more = [f"#define {PREFIX}{name} {constant(driver_source.CONSTANTS[name])}" for name in _MORE]
    return "\n".join(
        [
            "/* The driver, printed from runtime/driver_source.py and numbers_source.py of hloom. */",
            *sorted({*constants([*always, *threads], PREFIX), *more}),
            *[f"{declared(function)};" for function in always],
            *[f"\n{printed(function, _NAMES, PREFIX)}" for function in always],
            "#if HLOOM_THREADS",
            *[f"\n{printed(function, _NAMES, PREFIX)}" for function in threads],
            "#endif",
        ]
    )
