"""The scheduler asks the new target for every kernel of a program."""

import numpy as np
from counting_target import CountingTarget

import hloom as hl
import hloom.numpy as hnp
from hloom.compiler.pipeline import PIPELINE, run_passes
from hloom.compiler.schedule.scheduler import make_plan
from hloom.compiler.targets.cpu.machine import host

target = CountingTarget(host(), [])
module = hl.make_module(lambda x: hnp.sum(hnp.tanh(x) * 2, axis=1))(np.ones((64, 80), np.float32))
plan = make_plan(run_passes(module, PIPELINE), target)
assert target.seen == [("row", 64)] and len(plan.kernels()) == 1
