"""`hl.jit(f, target="cuda:sm_90")`: compiled with no GPU, open to look into, and honest when it is called."""

import numpy as np
import pytest

import hloom as hl
import hloom.numpy as hnp
from hloom.compiler.targets.cuda.codegen import compile as cuda_compile
from hloom.compiler.targets.cuda.codegen import cubins
from hloom.compiler.targets.cuda.codegen.compile import CudaNotInstalledError
from hloom.errors import ArgumentError, AttributeValueError, HloomError, UnsupportedError
from hloom.runtime.cuda.discovery import available
from hloom.runtime.cuda.errors import CudaUnavailableError

needs_cuda = pytest.mark.skipif(
    not cuda_compile.available(), reason='compiling needs the extra: pip install "hloom[cuda]"'
)
X, Y = np.ones((40, 70), np.float32), np.ones((40, 70), np.float32)


def layer(x, y):
    return hnp.tanh(x + y), hl.nn.softmax(x, axis=-1)


@pytest.fixture(scope="module")
def compiled():
    return hl.jit(layer, target="cuda:sm_90").lower(X, Y).compile()


@needs_cuda
def test_text_ptx_and_source(compiled):
    assert "HloModule" in compiled.as_text() and "fusion" in compiled.as_text()
    assert compiled.source().count("def ") == 2 and "cuda.threadIdx.x" in compiled.source()
    assert "blocks of 256 threads" in compiled.source()
    ptx = compiled.ptx()
    assert ptx.count(".visible .entry") == 2 and ".target sm_90" in ptx and "v4" in ptx and "shfl.sync.bfly" in ptx


@needs_cuda
def test_machine_instructions_or_how_to_get_them(compiled):
    if cubins._nvdisasm() is None:
        with pytest.raises(CudaNotInstalledError, match="pip install nvidia-cuda-nvdisasm"):
            compiled.sass()
    else:
        assert "SHFL.BFLY" in compiled.sass() and "LDG.E.128" in compiled.sass()


@needs_cuda
def test_costs_by_kernel(compiled):
    costs = compiled.cost_analysis()
    assert costs["kernels"] == 2 and costs["flops"] > X.size
    assert len(costs["by kernel"]) == 2
    for facts in costs["by kernel"].values():
        assert 8 <= facts["registers"] <= 64 and facts["spills"] == facts["shared bytes"] == 0
        assert facts["threads"] in (128, 256) and facts["launches"] == 1 and 0.5 <= facts["occupancy"] <= 1
    assert compiled.memory_analysis()["argument bytes"] == X.nbytes + Y.nbytes
    assert {"trace", "passes", "plan", "kernels"} <= compiled.timings().keys()


@needs_cuda
def test_a_second_compilation_finds_its_cubins(compiled):
    assert hl.jit(lambda a, b: layer(a, b), target="cuda:sm_90").lower(X, Y).compile().kernels_compiled == 0


@needs_cuda
@pytest.mark.skipif(available() is None, reason="there is a GPU")
def test_without_a_gpu_a_call_says_so():
    function = hl.jit(layer, target="cuda:sm_90")
    with pytest.raises(CudaUnavailableError) as error:
        function(X, Y)
    assert "repair" in str(error.value) and error.value.source.function == "test_without_a_gpu_a_call_says_so"
    assert hl.jit(layer)(X, Y)[0].shape == X.shape, "the process goes on"


@pytest.mark.parametrize("target", ["cuda:sm_91", "cuda", "gpu:sm_90", "sm_90", 90])
def test_a_target_that_is_none(target):
    with pytest.raises(AttributeValueError, match="cuda:sm_90|sm_90"):
        hl.jit(layer, target=target)


def test_a_target_and_a_device_at_once():
    with pytest.raises(ArgumentError, match="leave out one of them"):
        hl.jit(layer, target="cuda:sm_90", device="cpu:0")


@needs_cuda
def test_tf32_is_the_users_choice():
    square = np.ones((128, 128), np.float32)
    function = hl.jit(lambda x, y: x @ y, target="cuda:sm_90")
    ptx = lambda: function.lower(square, square).compile().ptx()  # noqa: E731
    assert "mma.sync" not in ptx()
    with hl.config(cuda_tf32=True):
        assert "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in ptx()
    assert "mma.sync" not in ptx()


def test_the_cpu_has_no_ptx():
    compiled = hl.jit(lambda x: x + 1).lower(X).compile()
    for show in (compiled.ptx, compiled.sass):
        with pytest.raises(UnsupportedError, match="target='cuda:sm_90'"):
            show()


def test_without_the_extra_the_error_names_it(monkeypatch, tmp_path):
    import sys

    monkeypatch.setitem(sys.modules, "cuda.bindings.nvjitlink", None)
    monkeypatch.setattr(cubins, "cubin_key", lambda source, arch: f"none-{id(source)}")
    with pytest.raises(CudaNotInstalledError, match=r"hloom\[cuda\]"):
        hl.jit(layer, target="cuda:sm_90").lower(X, Y).compile()


def test_an_unknown_architecture_names_the_users_line():
    with pytest.raises(HloomError, match="sm_20") as error:
        hl.jit(lambda x: x + 1, target="cuda:sm_20").lower(np.ones(3, np.float32)).compile()
    assert error.value.source.file == __file__
