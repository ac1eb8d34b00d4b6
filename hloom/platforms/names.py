"""Names of devices: `cpu:0`, `cuda:1`, and TensorFlow's: `/gpu:0`, `/device:GPU:0`, `/job:worker/task:1/cpu:0`.

`/job:worker/task:1` alone is the first CPU device of that task.
"""

from __future__ import annotations

import re

from hloom.errors import DeviceError
from hloom.ir.records import record

ALIASES = {"gpu": "cuda"}
_PARTS = re.compile(
    r"""/?(?:
        job:(?P<job>\w+)
        | replica:(?P<replica>\d+)
        | task:(?P<task>\d+)
        | (?:device:)?(?P<kind>[A-Za-z]\w*)(?::(?P<index>\d+|\*))?
    )""",
    re.VERBOSE,
)


@record(frozen=True)
class DeviceName:
    """The parts of a device name.

    kind: 'cpu', 'cuda' or another registered kind, in lower case. index: 0 where the name has none. job, task: of a
    process of a cluster; None where the name has none.
    """

    kind: str
    index: int = 0
    job: str | None = None
    task: int | None = None

    def __str__(self) -> str:
        here = f"{self.kind}:{self.index}"
        if self.job is None and self.task is None:
            return here
        parts = [f"/job:{self.job}"] if self.job is not None else []
        return "".join([*parts, f"/task:{self.task or 0}", f"/{here}"])


def parse_device_name(text: str) -> DeviceName:
    """The parts of a name. Raises DeviceError for a malformed name."""
    position, found = 0, {}
    while position < len(text):
        match = _PARTS.match(text, position)
        if match is None or match.end() == position:
            break
        for name, value in match.groupdict().items():
            if value is not None:
                if name in found:
                    raise _unreadable(text)
                found[name] = value
        position = match.end()
    if position != len(text) or not text or not found.keys() & {"kind", "task"}:
        raise _unreadable(text)
    kind = found.get("kind", "cpu").lower()
    index = found.get("index", "0")
    return DeviceName(
        ALIASES.get(kind, kind),
        0 if index == "*" else int(index),
        found.get("job"),
        int(found["task"]) if "task" in found else None,
    )


def _unreadable(text: str) -> DeviceError:
    return DeviceError(
        f"device {text!r}",
        "a name is a kind and an index, optionally after TensorFlow's job and task",
        "write it as 'cpu:0', '/device:CPU:0' or '/job:worker/task:1/cpu:0'",
    )
