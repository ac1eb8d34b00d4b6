"""TensorFlow 1.0's placement listings: which device does what, and devices chosen by hand or by a rule.

python examples/tf1/placement.py [--devices 4]
"""

import argparse
import contextlib
import io

import hloom as hl
import hloom.numpy as hnp
from hloom.errors import DeviceError
from hloom.sessions import Program, Session


def main(devices=4, report=print):
    """Returns the log of placements and the device of the sum."""
    log = io.StringIO()
    with hl.config(num_cpu_devices=devices, log_device_placement=True), contextlib.redirect_stderr(log):
        for found in hl.devices("cpu"):
            report(f"{found}: {found.description}")
        first = Program("first")  # two constants and their sum, all on one device
        with first:
            a = first.constant([1.0, 2.0, 3.0], "a")
            b = first.constant([1.0, 2.0, 3.0], "b")
            add = a + b
        with Session(first) as session:
            session.run(add)
        with hl.device("/cpu:0"):
            a = hnp.asarray([1.0, 2.0, 3.0])
            b = hnp.asarray([1.0, 2.0, 3.0])

        @hl.jit
        def add(a, b):
            with hl.device("/cpu:1"):
                total = a + b
            with hl.device(lambda operation: "/cpu:2" if operation.type == "multiply" else None):  # a rule
                return total, total * 2

        total, twice = add(a, b)
        try:
            with hl.device("/cpu:99"):
                add(a, b)
        except DeviceError as error:
            report(str(error).splitlines()[0])
        with hl.config(soft_placement=True), hl.device("/gpu:1"):
            hl.jit(lambda a, b: a - b)(a, b)
    report(log.getvalue().rstrip())
    report(f"{total} on {total.device}, {twice} on {twice.device}")
    return log.getvalue(), str(total.device), str(twice.device)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--devices", type=int, default=4, help="CPU devices (default: 4)")
    main(arguments.parse_args().devices)
