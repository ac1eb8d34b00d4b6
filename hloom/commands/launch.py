"""Runs a Python program in several processes of this machine.

The processes find each other with `hl.distributed.initialize()`. Each line of output starts with the number of its
process. When one fails, all are ended, and its traceback and status are those of the command.

Examples:
    hloom launch -n 4 train.py --epochs 3
    hloom launch -n 2 --devices-per-process 4 train.py
    hloom launch -n 2 -m package.train

"""

from __future__ import annotations

import argparse

from hloom.distributed.launcher import launch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--processes", type=int, default=2, metavar="N", help="number of processes")
    parser.add_argument(
        "--devices-per-process",
        type=int,
        default=1,
        metavar="D",
        help="CPU devices of each process (HLOOM_NUM_CPU_DEVICES)",
    )
    parser.add_argument("--no-label", action="store_true", help="print lines without the number of their process")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is the name of a module")
    parser.add_argument("program", help="a Python file, or with -m a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the program gets in sys.argv")


def run(options: argparse.Namespace) -> int:
    return launch(
        [options.program, *options.arguments],
        options.processes,
        options.devices_per_process,
        module=options.module,
        label=not options.no_label,
    )
