"""Handlers of XLA's FFI, compiled against the headers that come with jaxlib."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

jaxlib = pytest.importorskip("jaxlib")

HANDLERS = r"""
#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;
ffi::Error Scale(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y, ffi::ResultBuffer<ffi::S32> dims, float factor,
                 int64_t plus, std::string_view name, bool flag, ffi::Span<const int64_t> list, ffi::Dictionary more) {
  if (name != "scale" || !flag || list.size() != 3 || list[2] != 7) return ffi::Error::InvalidArgument("attributes");
  auto inner = more.get<int64_t>("inner");
  if (!inner.has_value() || inner.value() != 4) return ffi::Error::InvalidArgument("dictionary");
  if (factor < 0) return ffi::Error(ffi::ErrorCode::kOutOfRange, "factor is negative");
  for (size_t k = 0; k < x.element_count(); ++k) y->typed_data()[k] = x.typed_data()[k] * factor + plus;
  for (size_t k = 0; k < x.dimensions().size(); ++k) dims->typed_data()[k] = x.dimensions()[k];
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(ScaleHandler, Scale, ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>()
  .Ret<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::S32>>().Attr<float>("factor").Attr<int64_t>("plus")
  .Attr<std::string_view>("name").Attr<bool>("flag").Attr<ffi::Span<const int64_t>>("list")
  .Attr<ffi::Dictionary>("more"));
ffi::Error Increment(ffi::AnyBuffer x, ffi::Result<ffi::AnyBuffer> y) {
  if (x.untyped_data() != y->untyped_data()) return ffi::Error::Internal("not in place");
  auto* data = reinterpret_cast<float*>(y->untyped_data());
  for (size_t k = 0; k < y->element_count(); ++k) data[k] += k;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(IncrementHandler, Increment,
                              ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());
"""

PROGRAM = """
import ctypes, jax, jax.numpy as jnp, numpy as np
library = ctypes.CDLL({library!r})
jax.ffi.register_ffi_target('scale', jax.ffi.pycapsule(library.ScaleHandler), platform='cpu')
jax.ffi.register_ffi_target('increment', jax.ffi.pycapsule(library.IncrementHandler), platform='hloom')
x = jnp.arange(6, dtype=jnp.float32).reshape(2, 3)
def scale(x, factor=2., **options):
    results = jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct((2,), jnp.int32)
    call = jax.ffi.ffi_call('scale', results, vmap_method='sequential', **options)
    return call(x, factor=np.float32(factor), plus=3, name='scale', flag=True, list=np.array([5, 6, 7], np.int64),
                more=dict(inner=np.int64(4)))
y, dims = jax.jit(lambda x: scale(x * 2))(x)
assert y.devices() == {{jax.devices('hloom')[0]}}
np.testing.assert_array_equal(y, np.arange(6).reshape(2, 3) * 4 + 3)
assert dims.tolist() == [2, 3]
turned = jax.jit(lambda x: scale(x, input_layouts=[(0, 1)], output_layouts=[(0, 1), (0,)])[0])(x)
np.testing.assert_array_equal(turned, np.arange(6).reshape(2, 3) * 2 + 3)
a, b = jax.jit(lambda x: (scale(x, 1.)[0], scale(x, 10.)[0]))(x)
assert a[1, 2] == 8 and b[1, 2] == 53
many = jax.vmap(lambda x: scale(x)[0])(jnp.stack([x, x + 1]))
np.testing.assert_array_equal(many[1], np.arange(1, 7).reshape(2, 3) * 2 + 3)
try:
    jax.block_until_ready(jax.jit(lambda x: scale(x, -1.))(x))
except jax.errors.JaxRuntimeError as error:
    assert 'OUT_OF_RANGE: factor is negative' in str(error), error
else:
    raise AssertionError('the error of a handler was lost')
increment = jax.ffi.ffi_call('increment', jax.ShapeDtypeStruct(x.shape, x.dtype), input_output_aliases={{0: 0}})
np.testing.assert_array_equal(jax.jit(increment)(x), np.arange(6).reshape(2, 3) * 2)
np.testing.assert_array_equal(x, np.arange(6).reshape(2, 3))
try:
    jax.jit(lambda x: jax.ffi.ffi_call('unknown', jax.ShapeDtypeStruct(x.shape, x.dtype))(x))(x)
except jax.errors.JaxRuntimeError as error:
    assert "'unknown'" in str(error), error
else:
    raise AssertionError('a handler that nobody registered')
"""


def test_handlers(run_jax, tmp_path):
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    source, library = tmp_path / "handlers.cc", tmp_path / "handlers.so"
    source.write_text(HANDLERS)
    include = Path(jaxlib.__file__).parent / "include"
    command = [compiler, "-std=c++17", "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(library)]
    subprocess.run(command, check=True, timeout=300)
    run_jax(PROGRAM.format(library=str(library)))


def test_a_call_of_lapack_with_an_effect_is_a_call(run_jax):
    """Such a call compiles whatever its operands are, stays in the program, and its handler judges them."""
    run_jax("""
        import jax, jax.numpy as jnp, numpy as np
        call = lambda *shapes, **more: jax.ffi.ffi_call('lapack_spotrf_ffi', shapes, has_side_effect=True, **more)
        a = np.array([[4, 2], [2, 5]], np.float32)
        shapes = jax.ShapeDtypeStruct(a.shape, a.dtype), jax.ShapeDtypeStruct((), jnp.int32)
        columns = dict(input_layouts=[(1, 0)], output_layouts=[(1, 0), ()])
        factor, info = jax.jit(lambda a: call(*shapes, **columns)(a, uplo=np.uint8(ord('L'))))(a)
        np.testing.assert_allclose(np.tril(factor), np.linalg.cholesky(a), rtol=1e-6)
        assert info == 0
        wrong = jax.jit(lambda: call()()).lower().compile()
        assert 'lapack_spotrf_ffi' in wrong.as_text()
        try:
            jax.block_until_ready(wrong())
            jax.effects_barrier()
        except jax.errors.JaxRuntimeError as error:
            assert 'INVALID_ARGUMENT' in str(error), error
        else:
            raise AssertionError('operands that the handler does not take')
    """)
