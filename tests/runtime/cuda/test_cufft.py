"""cuFFT by ctypes against the real headers and libraries, where the wheels nvidia-cufft and nvidia-cublas are
installed; none of it needs a GPU."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

from hloom.runtime.cuda.discovery import available
from hloom.runtime.cuda.errors import CudaLibraryError
from hloom.runtime.cuda.libraries import cufft
from hloom.runtime.cuda.libraries.cufft import CuFft, Transform
from hloom.runtime.cuda.libraries.load import LibraryMissing, load_library


@pytest.fixture(scope="module")
def real():
    try:
        return load_library("cufft"), load_library("cublas")
    except LibraryMissing as missing:
        pytest.skip(f'{missing}: pip install "hloom[cuda-libraries]"')


@pytest.fixture(scope="module")
def headers(real) -> dict[str, str]:
    """Their texts, by the library, without comments."""
    texts = {}
    for library, name, header in zip(real, cufft.SIGNATURES, ("cufft.h", "cublas_api.h"), strict=True):
        file = Path(library._name).parent.parent / "include" / header
        if not file.exists():
            pytest.skip(f"no {file}")
        texts[name] = re.sub(r"/\*.*?\*/|//[^\n]*", "", file.read_text(), flags=re.DOTALL)
    return texts


def test_numbers_are_those_of_the_headers(headers):
    numbers = {
        name: int(value, 0)
        for name, value in re.findall(r"\b(CU(?:FFT|BLAS)\w+)\s*=?\s+(-?\w+)", "\n".join(headers.values()))
        if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)", value)
    }
    for number, function in cufft.TYPES.values():
        assert number == numbers[f"CUFFT_{function.removeprefix('cufftExec')}"]
    assert cufft.DIRECTIONS["FFT"] == (numbers["CUFFT_FORWARD"],)
    assert cufft.DIRECTIONS["IFFT"] == (numbers["CUFFT_INVERSE"],)
    assert {name: number for number, name in cufft.STATUS.items()} == {
        name: numbers[name] for name in cufft.STATUS.values()
    }
    assert cufft.ALLOC_FAILED == {
        "cufft": numbers["CUFFT_ALLOC_FAILED"], "cublas": numbers["CUBLAS_STATUS_ALLOC_FAILED"]
    }  # fmt: skip
    assert set(cufft.NOT_TAKEN) <= set(cufft.STATUS.values())


NUMBERS = {
    "int": ctypes.c_int, "int64_t": ctypes.c_int64, "long long int": ctypes.c_longlong, "size_t": ctypes.c_size_t,
    "float": ctypes.c_float, "double": ctypes.c_double, "cufftHandle": ctypes.c_int, "cufftType": ctypes.c_int,
    "libraryPropertyType": ctypes.c_int,
}  # fmt: skip
HANDLES = ("cublasHandle_t", "cudaStream_t")


def test_parameters_are_those_of_the_headers(headers, real):
    checked = 0
    for (library, functions), loaded in zip(cufft.SIGNATURES.items(), real, strict=True):
        for name, parameters in functions.items():
            (listed,) = re.findall(rf"\b{name}\s*\(([^)]*)\)\s*;", headers[library])
            words = [" ".join(word.split()).removeprefix("const ") for word in listed.split(",")]
            assert len(words) == len(parameters), name
            for word, kind in zip(words, parameters, strict=True):
                there = re.sub(r"\s*\*?\s*\w+$", "", word)
                if "*" not in word:
                    assert kind is (ctypes.c_void_p if there in HANDLES else NUMBERS[there]), (name, word)
                elif kind is not ctypes.c_void_p:  # an address on the device is one without a type
                    of = ctypes.c_void_p if there in HANDLES else NUMBERS[there]
                    assert kind is ctypes.POINTER(of), (name, word)
                checked += 1
            assert getattr(loaded, name)
    assert checked > 40


def test_the_version_of_the_real_library(real):
    assert CuFft(*real, None).version.startswith("12.")


def test_the_real_library_without_a_gpu(real):
    if available() is None:
        pytest.skip("there is a GPU")
    with pytest.raises(CudaLibraryError, match="a plan of FFT complex64 of 4 x 6, 3 of them was made"):
        CuFft(*real, None).work_bytes(Transform("FFT", (4, 6), 3, "f32"))
