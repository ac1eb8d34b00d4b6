"""cublasLt by ctypes: products as the library reads them, by numbers; and the real header and library where the wheel
nvidia-cublas is installed, which need no GPU for this."""

from __future__ import annotations

import ctypes
import itertools
import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import cuda_cases as cases
import numpy as np
import pytest
from fake_cublas_lt import FakeCublasLt

from hloom.backends.cuda.algorithms import column_major
from hloom.compiler.targets.cuda.libraries.matmul import LibraryProduct
from hloom.runtime.cuda.discovery import available
from hloom.runtime.cuda.errors import CudaLibraryError
from hloom.runtime.cuda.libraries import cublas_lt
from hloom.runtime.cuda.libraries.cublas_lt import CublasLt, Matmul, Matrix
from hloom.runtime.cuda.libraries.load import LibraryMissing, load_library

RANDOM = np.random.default_rng(1)


def orders(roles: str):
    """Arrays by the order of their indexes, from the outermost; an index may be missing."""
    return [o for count in (2, 3) for o in itertools.permutations(roles, count) if "p" in o]


def strides_of(order, extents: dict[str, int], roles: str) -> tuple[int, ...]:
    dims = [extents[role] for role in order]
    strides = {role: int(np.prod(dims[k + 1 :])) for k, role in enumerate(order)}
    return tuple(strides.get(role, 0) for role in roles)


def has_lines(order, extents: dict[str, int]) -> bool:
    return order[-1] != "b" or 1 in [extents[role] for role in order if role != "b"] or len(order) == 2


@pytest.mark.parametrize("extents", [(3, 4, 5, 6), (1, 4, 5, 6), (3, 1, 5, 6), (3, 4, 1, 6), (3, 4, 5, 1)], ids=str)
def test_every_order_of_the_indexes(extents):
    """lhs and rhs with their indexes in any order, or without a batch, row or column, which are of extent 1 then."""
    sizes = dict(zip("bijp", extents, strict=True))
    device = cases.device().open()
    library = CublasLt(FakeCublasLt(device.fake))
    device.on_close(library.close)
    checked = 0
    for left, right in itertools.product(orders("bip"), orders("bpj")):
        inside = dict(sizes)
        for role, order in (("i", left), ("j", right)):
            if role not in order:
                inside[role] = 1
        if "b" not in left and "b" not in right:
            inside["b"] = 1
        if not (has_lines(left, inside) and has_lines(right, inside)):
            continue
        x, y = (RANDOM.normal(size=[inside[r] for r in order]).astype(np.float32) for order in (left, right))
        there = "".join(role for role in "bij" if role in left or role in right)
        wanted = np.einsum(f"{''.join(left)},{''.join(right)}->{there}", x, y)
        b, i, j, p = (inside[role] for role in "bijp")
        product = LibraryProduct(
            (b, i, j, p), "f32", "f32", "f32", strides_of(left, inside, "bip"), strides_of(right, inside, "bpj"),
            "in0", "in1", "out0",
        )  # fmt: skip
        matmul = column_major(product)
        (way, *_) = library.algorithms(matmul, 1)
        lhs, rhs, out = device.put(x, "x"), device.put(y, "y"), device.pool.take(4 * b * i * j, "out")
        for buffer in (lhs, rhs):
            device.use(buffer)
        library.call(matmul, way).enqueue(device.main, rhs.address, lhs.address, out.address, out.address, 0)
        found = device.get(out, np.empty((b, i, j), np.float32)).result()
        np.testing.assert_allclose(found, wanted.reshape(b, i, j), rtol=1e-5, atol=1e-5)
        checked += 1
    assert checked > 15 and library._library.violations == []
    del lhs, rhs, out, buffer
    cases.finish(device)
    assert library._library.leaks() == []


# --- the real header and library ---


@pytest.fixture(scope="module")
def real():
    try:
        return load_library("cublasLt")
    except LibraryMissing as missing:
        pytest.skip(f'{missing}: pip install "hloom[cuda-libraries]"')


@pytest.fixture(scope="module")
def headers(real) -> Path:
    folder = Path(real._name).parent.parent / "include"
    if not (folder / "cublasLt.h").exists():
        pytest.skip(f"no cublasLt.h in {folder}")
    return folder


def test_numbers_are_those_of_the_header(headers):
    text = (headers / "cublasLt.h").read_text() + (headers / "cublas_api.h").read_text()
    numbers = {name: int(value, 0) for name, value in re.findall(r"^\s*(CUBLAS\w+)\s*=\s*(-?\w+),", text, re.MULTILINE)
               if re.fullmatch(r"-?(0x)?[0-9a-fA-F]+", value)}  # fmt: skip
    lt = cublas_lt
    assert (lt.ALLOC_FAILED, lt.NOT_SUPPORTED) == (
        numbers["CUBLAS_STATUS_ALLOC_FAILED"], numbers["CUBLAS_STATUS_NOT_SUPPORTED"]
    )  # fmt: skip
    assert lt.TRANSPOSED == numbers["CUBLAS_OP_T"]
    for name, kind in (("f32", "32F"), ("tf32", "32F_FAST_TF32"), ("f64", "64F")):
        assert lt.COMPUTE_TYPES[name] == numbers[f"CUBLAS_COMPUTE_{kind}"]
    for name in ("TRANSA", "TRANSB", "EPILOGUE", "BIAS_POINTER"):
        assert getattr(lt, f"DESC_{name}") == numbers[f"CUBLASLT_MATMUL_DESC_{name}"]
    for name in ("BATCH_COUNT", "STRIDED_BATCH_OFFSET"):
        assert getattr(lt, f"LAYOUT_{name}") == numbers[f"CUBLASLT_MATRIX_LAYOUT_{name}"]
    for name in ("MAX_WORKSPACE_BYTES", "REDUCTION_SCHEME_MASK"):
        assert getattr(lt, f"PREF_{name}") == numbers[f"CUBLASLT_MATMUL_PREF_{name}"]
    alignments = tuple(numbers[f"CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_{k}_BYTES"] for k in "ABCD")
    assert alignments == lt.PREF_MIN_ALIGNMENTS
    assert numbers["CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE"] == lt.REDUCTION_SCHEMES
    default, relu, bias = (numbers[f"CUBLASLT_EPILOGUE_{k}"] for k in ("DEFAULT", "RELU", "BIAS"))
    assert list(lt.EPILOGUES.values()) == [default, relu, bias, relu | bias]


HANDLES = (
    "cublasLtHandle_t", "cublasLtMatmulDesc_t", "cublasLtMatrixLayout_t", "cublasLtMatmulPreference_t", "cudaStream_t"
)  # fmt: skip


def test_parameters_are_those_of_the_header(headers):
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", (headers / "cublasLt.h").read_text(), flags=re.DOTALL)
    numbers = {"size_t": ctypes.c_size_t, "uint64_t": ctypes.c_uint64, "int64_t": ctypes.c_int64}
    checked = 0
    for name, (result, parameters) in cublas_lt.SIGNATURES.items():
        returned, listed = re.search(rf"([\w\s*]+?)\s*(?:CUBLASWINAPI)?\s+{name}\(([^)]*)\)\s*;", text).groups()
        words = [word.strip() for word in listed.split(",") if word.strip() != "void"]
        assert len(words) == len(parameters), name
        for word, kind in zip(words, parameters, strict=True):
            kind_there = word.removeprefix("const ").split()[0].rstrip("*")
            if "*" in word or "[]" in word or kind_there in HANDLES:
                assert ctypes.sizeof(kind) == 8 and kind not in numbers.values(), (name, word)
            else:
                assert kind is numbers.get(kind_there, ctypes.c_int), (name, word)
            checked += 1
        assert ("size_t" in returned) == (result is ctypes.c_size_t) and ("char" in returned) == (
            result is ctypes.c_char_p
        )
    assert checked > 50


def test_records_and_types_are_those_of_the_header(headers, tmp_path):
    """Compiled against it: sizes and places of fields, and numbers of dtypes."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    needed = ("cuda_runtime_api.h", "crt/host_defines.h")
    runtime = next((p for p in _include_folders(headers) if all((p / name).exists() for name in needed)), None)
    if compiler is None or runtime is None:
        pytest.skip("a C compiler and the headers of the CUDA runtime are needed")
    values = [
        "sizeof(cublasLtMatmulAlgo_t)", "sizeof(cublasLtMatmulHeuristicResult_t)",
        "offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize)", "offsetof(cublasLtMatmulHeuristicResult_t, state)",
        "CUDA_R_32F", "CUDA_R_64F", "CUDA_R_16F", "CUDA_R_16BF",
    ]  # fmt: skip
    prints = "".join(f'printf("%d\\n", (int)({value}));' for value in values)
    (tmp_path / "sizes.c").write_text(
        f"#include <stddef.h>\n#include <stdio.h>\n#include <cublasLt.h>\nint main() {{ {prints} return 0; }}\n"
    )
    command = [compiler, "-I", headers, "-I", runtime, tmp_path / "sizes.c", "-o", tmp_path / "sizes"]
    subprocess.run([str(word) for word in command], check=True)
    found = [int(line) for line in subprocess.run([tmp_path / "sizes"], capture_output=True, check=True).stdout.split()]
    result = cublas_lt.HeuristicResult
    sizes = [ctypes.sizeof(cublas_lt.AlgorithmData), ctypes.sizeof(result)]
    assert found[:4] == [*sizes, result.workspace_bytes.offset, result.state.offset]
    assert found[4:] == [cublas_lt.DATA_TYPES[name] for name in ("f32", "f64", "f16", "bf16")]


def _include_folders(headers: Path) -> list[Path]:
    installed = [headers, Path("/usr/local/cuda/include")]
    try:
        import nvidia
    except ImportError:
        return installed
    return installed + [path for root in nvidia.__path__ for path in Path(root).glob("*/include")]


def test_the_real_library_takes_our_descriptors(real):
    library = CublasLt(real)
    assert int(library.version.split(".")[0]) >= 12
    matmul = Matmul(
        4, Matrix("bf16", 8, 16, 8, 128), Matrix("bf16", 24, 16, 24, 384), Matrix("f32", 8, 24, 8, 192), False, True,
        "f32", 0.5, 1.0, True, True,
    )  # fmt: skip
    with ExitStack() as made:
        operation, layouts = library._descriptors(matmul, made)
        assert operation and all(layouts) and len(set(layouts)) == 3
        read = real.cublasLtMatrixLayoutGetAttribute
        read.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        ld, step = ctypes.c_int64(), ctypes.c_int64()
        assert read(layouts[1], 4, ctypes.byref(ld), 8, None) == 0
        assert read(layouts[1], cublas_lt.LAYOUT_STRIDED_BATCH_OFFSET, ctypes.byref(step), 8, None) == 0
        assert (ld.value, step.value) == (24, 384)
        with pytest.raises(CudaLibraryError, match="CUBLAS_STATUS_INVALID_VALUE"):
            library._set("MatmulDesc", operation, cublas_lt.DESC_EPILOGUE, ctypes.c_uint64(1))  # of 4 bytes


def test_the_real_library_without_a_gpu(real):
    if available() is None:
        pytest.skip("there is a GPU")
    with pytest.raises(CudaLibraryError, match="CUBLAS_STATUS_NOT_INITIALIZED"):
        CublasLt(real).open()
