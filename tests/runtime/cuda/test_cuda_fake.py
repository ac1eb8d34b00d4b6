"""The fake driver: it catches what it is for, and it looks like the real one where that is installed."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest
from cuda_cases import device, finish
from fake_cuda import FakeDriver
from fake_cuda_model import ENUMS, RECORDS, CUgraphNodeParams, CUmemPoolProps, FakeKernel, Violation, writes

from hloom.runtime.cuda.api import KernelNode
from hloom.runtime.cuda.programs.condition import condition_cubin
from hloom.runtime.cuda.programs.graph import pack


def open_device():
    dev = device().open()
    return dev, dev.api, dev.fake


def block(dev, stream=None, nbytes: int = 4096) -> int:
    return dev.api.allocate(nbytes, dev.pool_handle, stream or dev.main, "a test asked")


def test_a_use_before_the_event_is_waited_for():
    dev, api, fake = open_device()
    memory = block(dev)
    event = dev.record(dev.main)
    with pytest.raises(Violation, match="may still be writing"):
        api.fill(memory, 1, 100, dev.uploads)
    api.wait_event(dev.uploads, event.handle)
    api.fill(memory, 1, 100, dev.uploads)
    with pytest.raises(Violation, match="may still be writing"):
        api.copy(memory + 512, memory, 100, dev.main, "a test copies")
    api.copy(memory + 512, memory + 1024, 100, dev.main, "a test copies")  # other bytes: no harm


def test_an_event_covers_what_was_there_when_it_was_recorded():
    dev, api, fake = open_device()
    memory = block(dev)
    event = dev.record(dev.main)
    api.fill(memory, 1, 100, dev.main)
    api.wait_event(dev.uploads, event.handle)
    with pytest.raises(Violation):
        api.fill(memory, 2, 100, dev.uploads)


def test_waiting_by_the_host_orders_too():
    dev, api, fake = open_device()
    memory = block(dev)
    api.synchronize_stream(dev.main, "a test waits")
    api.fill(memory, 2, 100, dev.uploads)
    event = dev.record(dev.uploads)
    api.synchronize_event(event.handle, "a test waits")
    api.free(memory, dev.main)


def test_two_reads_need_no_order_and_a_write_after_them_does():
    dev, api, fake = open_device()
    memory, other, third = block(dev), block(dev), block(dev)
    api.synchronize_stream(dev.main, "a test waits")
    api.copy(other, memory, 100, dev.uploads, "a test copies")
    api.copy(third, memory, 100, dev.downloads, "a test copies")
    with pytest.raises(Violation, match="may still be reading"):
        api.fill(memory, 2, 100, dev.main)


def test_use_after_free_double_free_and_a_free_in_the_middle():
    dev, api, fake = open_device()
    memory = block(dev)
    with pytest.raises(Violation, match="no allocation"):
        api.free(memory + 512, dev.main)
    api.free(memory, dev.main)
    with pytest.raises(Violation, match="use after free"):
        api.fill(memory, 2, 100, dev.main)
    with pytest.raises(Violation, match="use after free"):
        api.free(memory, dev.main)
    assert len(fake.violations) == 3


def test_accesses_outside_of_a_block():
    dev, api, fake = open_device()
    memory = block(dev)
    with pytest.raises(Violation, match="end outside"):
        api.fill(memory, 2, 5000, dev.main)
    with pytest.raises(Violation, match="never allocated"):
        api.fill(12345, 2, 1, dev.main)


def test_pinned_memory_that_is_written_too_early_shows_in_the_result():
    dev, api, fake = open_device()
    memory, pinned = block(dev), api.allocate_pinned(4)
    host = np.ctypeslib.as_array((ctypes.c_uint8 * 4).from_address(pinned))
    host[:] = 1
    api.copy(memory, pinned, 4, dev.main, "a test copies")
    host[:] = 2  # too early: the copy has not happened
    api.copy(memory + 512, pinned, 4, dev.main, "a test copies")
    with pytest.raises(Violation, match="may still be"):
        api.free_pinned(pinned)
    api.synchronize_stream(dev.main, "a test waits")
    assert fake.view(memory, 4).tolist() == [2, 2, 2, 2]


def test_a_graph_launched_while_it_is_changed_and_nodes_without_order():
    dev, api, fake = open_device()
    memory = block(dev)
    graph = api.create_graph()
    for _ in range(2):
        api.add_fill(graph, [], api.fill_parameters(memory, 1, 64), dev.context, "")
    with pytest.raises(Violation, match="nothing orders"):
        api.instantiate(graph, "a test")
    graph = api.create_graph()
    node = api.add_fill(graph, [], api.fill_parameters(memory, 1, 64), dev.context, "")
    executable = api.instantiate(graph, "a test")
    fake.thing(executable, object).changing = True
    with pytest.raises(Violation, match="while it was changed"):
        api.launch_graph(executable, dev.main, "a test")
    fake.thing(executable, object).changing = False
    api.launch_graph(executable, dev.main, "a test")
    api.update_fill(executable, node, api.fill_parameters(memory, 9, 64), dev.context, "")
    api.synchronize_stream(dev.main, "a test waits")
    assert fake.view(memory, 1)[0] == 1  # enqueued before the change
    api.launch_graph(executable, dev.main, "a test")
    api.synchronize_stream(dev.main, "a test waits")
    assert fake.view(memory, 1)[0] == 9
    api.destroy_executable(executable)
    with pytest.raises(Violation, match="destroyed before"):
        api.launch_graph(executable, dev.main, "a test")


def test_leaks_are_listed():
    dev = device()
    assert dev.fake.leaks() == []
    dev.open()
    kept = dev.pool.take(5000, "kept")
    dev.api.create_graph()
    leaks = " ".join(dev.fake.leaks())
    assert all(word in leaks for word in ("Stream", "Graph", "device memory of 5120", "a context"))
    del kept


def test_a_kernel_that_is_launched_directly_gets_its_arguments():
    dev, api, fake = open_device()
    memory = block(dev)
    fake.kernels["probe"] = FakeKernel(
        "probe", "pii", lambda fake, p, a, b: fake.view(p, 16, np.int64).__setitem__(slice(None), (a, b)),
        lambda p, a, b: [writes(p, 16)],
    )  # fmt: skip
    function = api.function(api.load_module(b"cubin probe", "a test"), "probe")
    arguments, kept = pack((memory, -3, 1 << 40), lambda ref: 0)
    api.launch(KernelNode(function, (1, 1, 1), (32, 1, 1), 0, arguments, kept), dev.main, "a test", "")
    api.synchronize_stream(dev.main, "a test waits")
    assert fake.view(memory, 16, np.int64).tolist() == [-3, 1 << 40]


def test_nothing_is_wrong_with_a_device_that_does_nothing():
    finish(device().open())


# --- the real one ---


@pytest.fixture(scope="module")
def real():
    return pytest.importorskip("cuda.bindings.driver", reason='needs the extra: pip install "hloom[cuda]"')


def test_names_and_numbers_are_the_real_ones(real):
    for enum in ENUMS:
        for member in enum:
            assert int(getattr(getattr(real, enum.__name__), member.name)) == member, member
    for kind in (*RECORDS, CUmemPoolProps, CUgraphNodeParams):
        fields = getattr(kind, "__slots__", None) or vars(kind()).keys()
        assert set(fields) <= set(dir(getattr(real, kind.__name__))), kind


def test_functions_take_as_many_arguments_as_the_real_ones(real):
    checked = 0
    for name in dir(FakeDriver):
        if not name.startswith("cu"):
            continue
        function = getattr(FakeDriver, name)
        signature = getattr(real, name).__doc__.split("\n")[0]
        inside = re.sub(r"\[[^\]]*\]", "", signature[signature.index("(") + 1 : signature.rindex(")")])
        want = len([part for part in inside.split(",") if part.strip()])
        assert function.__wrapped__.__code__.co_argcount - 1 == want, signature
        checked += 1
    assert checked > 50


def test_the_real_records_take_what_the_runtime_writes(real):
    from hloom.runtime.cuda.api import Api

    api = Api(real)
    block = pack((1, 2), lambda ref: 0)
    record = api.kernel_parameters(KernelNode(real.CUfunction(77), (1, 2, 3), (4, 5, 6), 7, *block))
    assert int(record.func) == 77 and record.kernelParams == block[0] and record.gridDimZ == 3
    copy = api.copy_parameters(0x1000, 0x2000, 1 << 33)
    assert int(copy.dstDevice) == 0x1000 and int(copy.srcDevice) == 0x2000 and copy.WidthInBytes == 1 << 33
    fill = api.fill_parameters(0x3000, 255, 1 << 33)
    assert int(fill.dst) == 0x3000 and (fill.value, fill.width, fill.elementSize) == (255, 1 << 33, 1)
    assert int(api.stream_of(1)) == 1


def test_the_real_driver_is_missing_here_or_answers(real):
    """Without a driver the error says so; with one, what is found is used."""
    from hloom.runtime.cuda.discovery import available, gpus
    from hloom.runtime.cuda.errors import CudaUnavailableError

    error = available()
    if error is None:
        assert gpus()
    else:
        assert isinstance(error, CudaUnavailableError) and error.repair


def test_the_kernels_that_set_conditions_are_assembled():
    pytest.importorskip("cuda.bindings.nvjitlink", reason='needs the extra: pip install "hloom[cuda]"')
    from hloom.runtime.cuda.errors import CudaModuleError

    for arch in ("sm_80", "sm_90"):
        cubin = condition_cubin(arch)
        assert cubin[:4] == b"\x7fELF" and len(cubin) < 20_000
        assert all(name in cubin for name in (b"set_pred", b"set_index", b"cudaGraphSetConditional"))
    with pytest.raises(CudaModuleError, match="UNRECOGNIZED_ARCH"):
        condition_cubin("sm_999")
