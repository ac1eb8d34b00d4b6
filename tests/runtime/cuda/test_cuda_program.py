"""Programs on the fake driver: results, graphs and their use again, loops and branches, Python functions, errors."""

from __future__ import annotations

import threading

import cuda_cases as cases
import numpy as np
import pytest
from cuda_cases import OUT, VECTOR, N, X, Y, device, fetch, finish, host, launch, place, vectors

from hloom.ir.types import Shape
from hloom.runtime.cuda.programs.executable import CAPTURES, REBUILDS, Executable
from hloom.runtime.cuda.programs.program import Conditional, Copy, CudaProgram, Enqueue, Exchange, Fill, While

OLD, MIDDLE, NEW = 12020, 12040, 13000  # drivers without conditional nodes, with loops only, with all


def test_a_program_computes_and_its_graph_is_replayed():
    dev = device()
    run = Executable(cases.straight(), dev)
    x, y = vectors(2)
    bx, by = dev.put(x, "x"), dev.put(y, "y")
    for turn in range(5):
        (out,) = run([bx, by])
        assert (fetch(dev, out) == cases.straight_result(x, y)).all()
        if turn == 0:
            first = dev.fake.counts()
        del out
    counts = dev.fake.counts()
    assert counts["cuGraphInstantiate"] == first["cuGraphInstantiate"] == 1
    assert counts["cuGraphLaunch"] == 5 and "cuLaunchKernel" not in counts
    finish(dev)


def test_a_replay_is_two_calls_of_the_driver():
    dev = device()
    run = Executable(cases.straight(), dev)
    inputs = [dev.put(v, "v") for v in vectors(2)]
    for _ in range(3):
        run(inputs)
    start = len(dev.fake.calls)
    run(inputs)
    assert dev.fake.counts(start) == {"cuGraphLaunch": 1, "cuEventRecord": 1}
    finish(dev)


def test_the_host_does_not_wait():
    dev = device()
    run = Executable(cases.straight(), dev)
    inputs = [dev.put(v, "v") for v in vectors(2)]
    start = len(dev.fake.calls)
    (out,) = run(inputs)
    assert not any("Synchronize" in name for name, _ in dev.fake.calls[start:])
    assert out.ready is not None
    dev.wait(out.ready, "the result was waited for")
    finish(dev)


def test_other_addresses_first_get_graphs_of_their_own_and_then_change_one():
    dev = device()
    run = Executable(cases.straight(), dev)
    kept = []
    for turn in range(CAPTURES + 3):
        x, y = vectors(2, turn)
        inputs = [dev.put(x, "x"), dev.put(y, "y")]
        (out,) = run(inputs)
        assert (fetch(dev, out) == cases.straight_result(x, y)).all()
        kept += [*inputs, out]
    counts = dev.fake.counts()
    assert counts["cuGraphInstantiate"] == CAPTURES
    assert counts["cuGraphExecKernelNodeSetParams"] == 2 * 3
    finish(dev)


def test_only_nodes_whose_addresses_changed_are_changed():
    dev = device()
    steps = (
        launch("add", X, X, cases.TEMPORARY, N),
        launch("scale", cases.TEMPORARY, cases.TEMPORARY, 3, N),
        launch("add", cases.TEMPORARY, Y, OUT, N),
        Copy(place("output", 1), Y, 4 * N),
        Fill(place("output", 2), 7, 4 * N),
    )
    run = Executable(CudaProgram("f", steps, [], 4 * N, [VECTOR, VECTOR], [VECTOR] * 3), dev)
    x = vectors(1)[0]
    bx, kept = dev.put(x, "x"), []
    for turn in range(CAPTURES + 1):
        y = vectors(1, turn + 1)[0]
        by = dev.put(y, "y")
        start = len(dev.fake.calls)
        outs = run([bx, by])
        results = [fetch(dev, out) for out in outs]
        assert (results[0] == 6 * x + y).all() and (results[1] == y).all()
        assert (results[2].view(np.uint8) == 7).all()
        kept += [by, outs]
    counts = dev.fake.counts(start)
    assert counts["cuGraphExecKernelNodeSetParams"] == 1
    assert counts["cuGraphExecMemcpyNodeSetParams"] == counts["cuGraphExecMemsetNodeSetParams"] == 1
    finish(dev)


@pytest.mark.parametrize("version", [OLD, MIDDLE, NEW])
def test_loops(version):
    dev = device(cases.driver(version=version))
    run = Executable(cases.powers(), dev)
    x, y = vectors(2)
    for steps in (0, 1, 5):
        inputs = [dev.put(x, "x"), dev.put(y, "y"), dev.put(np.int32(steps), "steps")]
        (out,) = run(inputs)
        want = x
        for _ in range(steps):
            want = want * y
        assert (fetch(dev, out) == want).all()
    launches = dev.fake.counts()["cuGraphLaunch"]
    assert launches == 3 if version >= MIDDLE else launches > 3
    finish(dev)


def test_a_loop_on_the_device_never_comes_back_to_the_host():
    dev = device()
    run = Executable(cases.powers(), dev)
    inputs = [dev.put(v, "v") for v in (*vectors(2), np.int32(9))]
    run(inputs)
    start = len(dev.fake.calls)
    run(inputs)
    assert dev.fake.counts(start)["cuGraphLaunch"] == 1
    assert not any("Synchronize" in name for name, _ in dev.fake.calls[start:])
    finish(dev)


@pytest.mark.parametrize("version", [OLD, MIDDLE, NEW])
@pytest.mark.parametrize("value", [False, True, -1, 0, 1, 2, 5])
def test_branches(version, value):
    dev = device(cases.driver(version=version))
    by_index = not isinstance(value, bool)
    count = 3 if by_index else 2
    run = Executable(cases.chosen(by_index, count), dev)
    (x,) = vectors(1)
    selector = np.asarray(value, np.int32 if by_index else np.bool_)
    (out,) = run([dev.put(x, "x"), dev.put(selector, "selector")])
    branch = (value if 0 <= value < count else count - 1) if by_index else (0 if value else 1)
    assert (fetch(dev, out) == x * np.float32(10 * (branch + 1))).all()
    finish(dev)


def test_loops_and_branches_inside_of_each_other():
    """Even steps of a loop add, odd ones do nothing: counted by branches that a loop chooses."""
    counter, pred, odd, state, one = (place("arena", k) for k in (0, 256, 512, 1024, 768))
    inner = Conditional(
        odd,
        ((Fill(odd, 0, 1),), (launch("add", state, X, state, N), Fill(odd, 1, 1))),
    )
    loop = While(
        (launch("less", counter, one, pred),),
        pred,
        (inner, Conditional(counter, ((), (), ()), by_index=True), launch("count", counter, 1)),
    )
    steps = (
        Fill(counter, 0, 4), Fill(odd, 0, 1), Fill(state, 0, 4 * N), Fill(one, 0, 4), launch("count", one, 5), loop,
        Copy(OUT, state, 4 * N),
    )  # fmt: skip
    for version in (OLD, MIDDLE, NEW):
        dev = device(cases.driver(version=version))
        run = Executable(CudaProgram("nested", steps, [], 1024 + 4 * N, [VECTOR], [VECTOR]), dev)
        (x,) = vectors(1)
        assert np.allclose(fetch(dev, run([dev.put(x, "x")])[0]), 3 * x)
        finish(dev)


def test_a_loop_with_other_addresses_is_captured_anew():
    """Its body uses an input: conditions belong to one graph, so nothing is taken over."""
    dev = device()
    run = Executable(cases.powers(), dev)
    kept = []
    for turn in range(CAPTURES + 2):
        x, y = vectors(2, turn)
        inputs = [dev.put(x, "x"), dev.put(y, "y"), dev.put(np.int32(2), "steps")]
        (out,) = run(inputs)
        assert np.allclose(fetch(dev, out), x * y * y)
        kept += [inputs, out]
    counts = dev.fake.counts()
    assert counts["cuGraphInstantiate"] == CAPTURES + 2 and counts["cuGraphExecDestroy"] == 2
    finish(dev)


@pytest.mark.parametrize("names", [None, (OUT, X), (OUT, OUT), (X, X), (X, OUT)])
def test_a_loop_whose_addresses_never_come_again_gets_memory_of_its_own(names):
    """Then its graph is built no more: the copies to and from that memory are given the addresses."""
    dev = device()
    program = in_place(*names) if names else cases.powers()
    run = Executable(program, dev)
    kept, built = [], []
    for turn in range(CAPTURES + REBUILDS + 8):
        x, y = vectors(2, turn)
        inputs = [dev.put(x, "x"), dev.put(y, "y"), dev.put(np.int32(turn % 4), "steps")]
        (out,) = run(inputs)
        assert np.allclose(fetch(dev, out), x * y ** np.float32(turn % 4))
        kept += [inputs, out]
        built.append(dev.fake.counts()["cuGraphInstantiate"])
    assert built[-1] == built[-4] == 2 * CAPTURES + REBUILDS - 1
    assert "copies for the loops of" in str(dev.pool.largest(99))
    finish(dev)


def in_place(source, target) -> CudaProgram:
    """x is multiplied where it is: the output has its buffer, and steps may use both names."""
    counter, pred = place("arena", 0), place("arena", 256)
    loop = While(
        (launch("less", counter, place("input", 2), pred),),
        pred,
        (launch("multiply", source, Y, target, N), launch("count", counter, 1)),
    )
    shapes = [VECTOR, VECTOR, Shape("s32", ())]
    return CudaProgram("in_place", (Fill(counter, 0, 4), loop), [], 512, shapes, [VECTOR], {0: 0})


def test_bodies_with_memory_of_their_own_between_python_functions():
    """What an output held before the stretch is kept."""
    dev = device()
    loop = Conditional(Y, ((launch("scale", OUT, OUT, 2, N),), ()))
    steps = (host(lambda x: x + 1, X, OUT), loop)
    run = Executable(CudaProgram("f", steps, [], 0, [VECTOR, Shape("pred", ())], [VECTOR]), dev)
    kept = []
    for turn in range(CAPTURES + REBUILDS + 4):
        (x,) = vectors(1, turn)
        inputs = [dev.put(x, "x"), dev.put(np.bool_(turn % 2), "pred")]
        (out,) = run(inputs)
        assert (fetch(dev, out) == (x + 1) * (2 if turn % 2 else 1)).all()
        kept += [inputs, out]
    assert "copies for the loops of" in str(dev.pool.largest(99))
    finish(dev)


def test_places_are_exchanged():
    dev = device()
    a, b = place("arena", 0), place("arena", 4096)
    steps = (
        Copy(a, X, 4 * N), Copy(b, Y, 4 * N), Exchange(a, b, place("arena", 8192), 4 * N),
        Copy(OUT, a, 4 * N), Copy(place("output", 1), b, 4 * N),
    )  # fmt: skip
    x, y = vectors(2)
    for stepwise in (False, True):
        dev = device(stepwise=stepwise)
        run = Executable(CudaProgram("f", steps, [], 8192 + 4 * N, [VECTOR, VECTOR], [VECTOR, VECTOR]), dev)
        outs = run([dev.put(x, "x"), dev.put(y, "y")])
        assert (fetch(dev, outs[0]) == y).all() and (fetch(dev, outs[1]) == x).all()
        finish(dev)


def test_a_donated_input_is_the_output():
    dev = device()
    program = cases.straight()
    program.donated = {0: 0}
    run = Executable(program, dev)
    x, y = vectors(2)
    bx, by = dev.put(x, "x"), dev.put(y, "y")
    (out,) = run([bx, by])
    assert out is bx and (fetch(dev, out) == cases.straight_result(x, y)).all()
    finish(dev)


def test_python_functions_stand_between_graphs():
    dev = device()
    seen = []

    def double(a):
        seen.append(a.copy())
        return a * 2

    first, second = place("arena", 0), place("arena", 4096)
    steps = (
        launch("add", X, Y, first, N),
        host(double, first, second, name="double"),
        launch("multiply", second, Y, OUT, N),
    )
    run = Executable(CudaProgram("f", steps, [], 8192, [VECTOR, VECTOR], [VECTOR]), dev)
    x, y = vectors(2)
    for _ in range(2):
        (out,) = run([dev.put(x, "x"), dev.put(y, "y")])
        assert (fetch(dev, out) == (x + y) * 2 * y).all()
    assert len(seen) == 2 and (seen[0] == x + y).all()
    finish(dev)


def test_a_python_function_in_a_loop_and_what_it_raises():
    dev = device()
    counter, pred, limit = place("arena", 0), place("arena", 256), place("arena", 512)
    calls = []

    def step(value):
        calls.append(int(value))
        if value == 3:
            raise KeyError("three")
        return value + 1

    scalar = Shape("s32", ())
    loop = While((launch("less", counter, X, pred),), pred, (host(step, counter, counter, scalar),))
    steps = (Fill(counter, 0, 4), Fill(limit, 0, 4), loop, Copy(OUT, counter, 4))
    run = Executable(CudaProgram("f", steps, [], 1024, [scalar], [scalar]), dev)
    assert fetch(dev, run([dev.put(np.int32(3), "n")])[0], scalar) == 3
    with pytest.raises(KeyError, match="three"):
        run([dev.put(np.int32(9), "n")])
    assert fetch(dev, run([dev.put(np.int32(2), "n")])[0], scalar) == 2
    assert calls == [0, 1, 2, 0, 1, 2, 3, 0, 1]
    finish(dev)


def test_a_python_function_may_call_its_own_program():
    dev = device()
    scalar = Shape("s32", ())
    inner = place("arena", 0)
    depth = []

    def again(value):
        depth.append(int(value))
        return value if value >= 2 else fetch(dev, run([dev.put(value + np.int32(1), "n")])[0], scalar)

    steps = (Copy(inner, X, 4), host(again, inner, inner, scalar), Copy(OUT, inner, 4))
    run = Executable(CudaProgram("f", steps, [], 256, [scalar], [scalar]), dev)
    assert fetch(dev, run([dev.put(np.int32(0), "n")])[0], scalar) == 2
    assert depth == [0, 1, 2]
    finish(dev)


def test_a_python_function_may_wait_for_threads_that_use_the_device():
    dev = device()
    straight = Executable(cases.straight(), dev)
    x, y = vectors(2)
    seen = []

    def wait(a):
        def work():
            seen.append(fetch(dev, straight([dev.put(x, "x"), dev.put(y, "y")])[0]))
            if len(seen) < 4:
                seen.append(fetch(dev, run([dev.put(y, "y")])[0]))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
        return a + 1

    first = place("arena", 0)
    steps = (Copy(first, X, 4 * N), host(wait, first, first), launch("add", first, X, OUT, N))
    run = Executable(CudaProgram("f", steps, [], 4096, [VECTOR], [VECTOR]), dev)
    assert np.allclose(fetch(dev, run([dev.put(x, "x")])[0]), 2 * x + 1)
    assert len(seen) >= 4 and all(
        np.allclose(s, cases.straight_result(x, y)) or np.allclose(s, 2 * y + 1) for s in seen
    )
    finish(dev)


def test_what_a_library_enqueues_is_recorded_once_for_each_set_of_addresses():
    dev = device()
    recorded = []

    def library(stream, x, out):
        recorded.append(stream)
        dev.fake.cuMemcpyAsync(out, x, 4 * N, stream)
        dev.fake.cuMemsetD8Async(out, 0, 8, stream)

    steps = (Enqueue(library, (X, cases.TEMPORARY), "copies"), launch("add", cases.TEMPORARY, X, OUT, N))
    run = Executable(CudaProgram("f", steps, [], 4 * N, [VECTOR], [VECTOR]), dev)
    kept = []
    for turn in range(CAPTURES + 2):
        (x,) = vectors(1, turn)
        bx = dev.put(x, "x")
        for _ in range(2):
            (out,) = run([bx])
            want = x.copy()
            want[:2] = 0
            assert (fetch(dev, out) == want + x).all()
        kept += [bx, out]
    counts = dev.fake.counts()
    assert counts["cuGraphInstantiate"] == CAPTURES and counts["cuGraphExecUpdate"] >= 2
    finish(dev)


def test_stepwise_results_are_the_same():
    x, y = vectors(2)
    dev = device(stepwise=True)
    run, powers = Executable(cases.straight(), dev), Executable(cases.powers(), dev)
    assert (fetch(dev, run([dev.put(x, "x"), dev.put(y, "y")])[0]) == cases.straight_result(x, y)).all()
    out = powers([dev.put(x, "x"), dev.put(y, "y"), dev.put(np.int32(2), "steps")])[0]
    assert np.allclose(fetch(dev, out), x * y * y)
    assert "cuGraphLaunch" not in dev.fake.counts()
    finish(dev)
