"""The entry point of each process of `hloom launch`: runs the user's program, and records how it ends.

    python -m hloom.distributed.worker FOLDER [-m] PROGRAM ARGUMENTS...

The output of the process goes to the pipes `<number>.out` and `<number>.err` of the folder, which gets `<number>.pid`
at the start and `<number>.status` at the end.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from hloom.distributed.environment import process_number, started_processes
from hloom.distributed.launcher import INTERRUPTED, PIPES, SECONDS_TO_END
from hloom.distributed.parents import die_with_parent


def run(arguments: Sequence[str]) -> int:
    """Runs `[-m] program arguments...` as Python would, and returns the exit status. Exceptions are printed."""
    module = arguments[0] == "-m"
    program, *rest = arguments[1:] if module else arguments
    sys.argv = [program, *rest]
    if not module:
        sys.path[0] = str(Path(program).resolve().parent)
    start: Callable = runpy.run_module if module else runpy.run_path
    options = {"alter_sys": True} if module else {}
    try:
        start(program, run_name="__main__", **options)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BaseException as error:
        _print(error)
        return 1
    return 0


def _print(error: BaseException) -> None:
    """The traceback from the user's program on, without the frames that started it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def main() -> None:
    die_with_parent()  # nothing outlives a launcher that is killed
    number, folder = process_number(), Path(sys.argv[1])
    (folder / f"{number}.pid").write_text(str(os.getpid()))
    for name, stream in zip(PIPES, (1, 2), strict=True):
        pipe = os.open(folder / f"{number}.{name}", os.O_WRONLY)
        os.dup2(pipe, stream)
        os.close(pipe)
    leave, own = os._exit, os.getpid()

    def left(status: int) -> None:
        if os.getpid() == own:  # not a child that the program forked
            _record(folder, number, status)
        leave(status)

    # The program may exit this way. mpiexec mixes up statuses and signals, and hides which process ended.
    os._exit = left  # type: ignore[assignment]
    status = run(sys.argv[2:])
    sys.stdout.flush()
    sys.stderr.flush()
    _record(folder, number, status)
    if (folder / INTERRUPTED).exists():
        # The first one to end would end the others, which may have something to save.
        ends = time.monotonic() + SECONDS_TO_END
        while time.monotonic() < ends and len(list(folder.glob("*.status"))) < started_processes():
            time.sleep(0.02)
    if status:
        # Finalizing MPI would wait for the others; mpiexec ends them when one process ends so.
        leave(status)


def _record(folder: Path, number: int, status: int) -> None:
    written = folder / f"{number}.ends"
    written.write_text(str(status))
    written.rename(folder / f"{number}.status")  # it is there with its text, or not at all


if __name__ == "__main__":
    main()
