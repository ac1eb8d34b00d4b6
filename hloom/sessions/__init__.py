"""Graphs that are driven by name, as in TensorFlow 1: programs with placeholders, variables and targets, and sessions.

from hloom.sessions import Program, Session, placeholder, variable

program = Program("mlp")
with program:
    x = placeholder("x", [None, 32])
    w = variable("w", lambda: 0.1 * hl.random.normal(hl.random.key(0), (32, 8)))
    cost = hnp.sum(hnp.tanh(x @ w) ** 2)
    train = minimize(hl.optim.adam(1e-3), cost)

with Session(program) as session:
    session.run(program.initializer())
    session.run([train, "cost"], {"x": batch})
"""

from __future__ import annotations

from hloom.sessions import summaries
from hloom.sessions.building.current import (
    assign,
    assign_add,
    assign_sub,
    constant,
    control_dependencies,
    group,
    initializer,
    placeholder,
    scatter_add,
    scatter_sub,
    scatter_update,
    target,
    variable,
    variables,
)
from hloom.sessions.building.scopes import VariableScope, get_variable, get_variable_scope, variable_scope
from hloom.sessions.estimator import Estimator, EstimatorSpec, ModeKeys
from hloom.sessions.executor import Executor, LocalExecutor, register
from hloom.sessions.files import Saved, SavedFunction, load, save
from hloom.sessions.graph import Node, Operation, Placeholder, Text, Update, Variable
from hloom.sessions.placement import SessionConfig, replica_device_setter
from hloom.sessions.program import (
    GLOBAL_VARIABLES,
    LOSSES,
    QUEUE_RUNNERS,
    SUMMARIES,
    TRAINABLE_VARIABLES,
    Program,
    current_program,
    program_of,
    reset_default_program,
)
from hloom.sessions.queues import (
    Coordinator,
    FIFOQueue,
    PaddingFIFOQueue,
    QueueRunner,
    ShuffleQueue,
    batch,
    from_dataset,
    shuffle_batch,
    start_queue_runners,
)
from hloom.sessions.server import LocalServer
from hloom.sessions.session import Session, current_session
from hloom.sessions.sync_replicas import SyncReplicas
from hloom.sessions.training import MovingAverage, apply_gradients, global_step, gradients, minimize

__all__ = [
    "Coordinator",
    "Estimator",
    "EstimatorSpec",
    "Executor",
    "FIFOQueue",
    "GLOBAL_VARIABLES",
    "LOSSES",
    "LocalExecutor",
    "LocalServer",
    "ModeKeys",
    "MovingAverage",
    "Node",
    "Operation",
    "PaddingFIFOQueue",
    "Placeholder",
    "Program",
    "QUEUE_RUNNERS",
    "QueueRunner",
    "SUMMARIES",
    "Saved",
    "SavedFunction",
    "Session",
    "SessionConfig",
    "ShuffleQueue",
    "SyncReplicas",
    "TRAINABLE_VARIABLES",
    "Text",
    "Update",
    "Variable",
    "VariableScope",
    "apply_gradients",
    "assign",
    "assign_add",
    "assign_sub",
    "batch",
    "constant",
    "control_dependencies",
    "current_program",
    "current_session",
    "from_dataset",
    "get_variable",
    "get_variable_scope",
    "global_step",
    "gradients",
    "group",
    "initializer",
    "load",
    "minimize",
    "placeholder",
    "program_of",
    "register",
    "replica_device_setter",
    "reset_default_program",
    "save",
    "scatter_add",
    "scatter_sub",
    "scatter_update",
    "shuffle_batch",
    "start_queue_runners",
    "summaries",
    "target",
    "variable",
    "variable_scope",
    "variables",
]
__dir__ = __all__.copy
