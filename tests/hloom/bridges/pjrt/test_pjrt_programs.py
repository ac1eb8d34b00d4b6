"""Programs of jax on hloom: the same values as on jax's CPU, and all that a device does beside computing."""

from __future__ import annotations

PROBES = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
k = jax.random.key(0)
probes = dict(
    random=lambda: jax.random.normal(k, (3,)),
    randint=lambda: jax.random.randint(k, (3,), 0, 9),
    split=lambda: jax.random.key_data(jax.random.split(k)),
    scan=lambda: lax.scan(lambda c, x: (c + x, c * x), jnp.float32(0), jnp.arange(5, dtype=jnp.float32))[1],
    while_=lambda: lax.while_loop(lambda c: c < 10, lambda c: c + 1, 0),
    cond=lambda: lax.cond(True, lambda x: x + 1, lambda x: x, 2.),
    sort=lambda: jnp.sort(jnp.array([3., 1, 2])),
    argsort=lambda: jnp.argsort(jnp.array([3., 1, 2])),
    topk=lambda: lax.top_k(jnp.array([3., 1, 2]), 2)[0],
    cumsum=lambda: jnp.cumsum(jnp.arange(4.)),
    gather=lambda: jnp.arange(9.).reshape(3, 3)[jnp.array([0, 2])],
    scatter=lambda: jnp.zeros(4).at[jnp.array([1, 1])].add(1.),
    conv=lambda: lax.conv(jnp.ones((1, 1, 4, 4)), jnp.ones((1, 1, 2, 2)), (1, 1), 'SAME'),
    fft=lambda: jnp.abs(jnp.fft.fft(jnp.arange(8.))),
    cholesky=lambda: jnp.linalg.cholesky(jnp.eye(3) * 2),
    qr=lambda: jnp.abs(jnp.linalg.qr(jnp.eye(3))[1]),
    svd=lambda: jnp.linalg.svd(jnp.eye(3) * 2)[1],
    eigh=lambda: jnp.linalg.eigh(jnp.eye(3))[0],
    solve=lambda: jnp.linalg.solve(jnp.eye(3) * 2, jnp.ones(3)),
    triangular=lambda: jax.scipy.linalg.solve_triangular(jnp.eye(3), jnp.ones(3)),
    eig=lambda: jnp.linalg.eigvals(jnp.eye(3)),
    schur=lambda: jax.scipy.linalg.schur(jnp.array([[1., 2], [3, 4]]))[0],
    lu=lambda: jax.scipy.linalg.lu(jnp.array([[1., 2], [3, 4]]))[2],
    ormqr=lambda: jax.lax.linalg.ormqr(jnp.tril(jnp.ones((3, 3))), jnp.ones(3), jnp.ones((3, 2))),
    erfinv=lambda: jax.scipy.special.erfinv(jnp.array([.1])),
    gammaln=lambda: jax.scipy.special.gammaln(jnp.array([2.5])),
    vmap=lambda: jax.vmap(lambda a: a @ a)(jnp.ones((2, 3, 3))),
    jvp=lambda: jax.jvp(jnp.sin, (1.,), (1.,))[1],
    hessian=lambda: jax.hessian(lambda x: jnp.sum(x**3))(jnp.arange(3.)),
    bf16=lambda: (jnp.ones(3, jnp.bfloat16) * 2).astype(jnp.float32),
    complex_=lambda: jnp.abs(jnp.array([1 + 2j])),
    bool_=lambda: jnp.array([True]) & True,
    callback=lambda: jax.pure_callback(lambda x: np.sin(x), jax.ShapeDtypeStruct((2,), np.float32), jnp.ones(2)),
    bits=lambda: jax.random.bits(k, (2,)),
    einsum=lambda: jnp.einsum('ij,jk->ik', jnp.ones((2, 3)), jnp.ones((3, 2))),
    donate=lambda: jax.jit(lambda x: x + 1, donate_argnums=0)(jnp.ones(3)),
    linspace=lambda: jnp.linspace(0, 1, 5),
    interp=lambda: jnp.interp(jnp.array([.5]), jnp.array([0., 1]), jnp.array([0., 2])),
)
device, cpu = jax.devices('hloom')[0], jax.devices('cpu')[0]
for name, probe in probes.items():
    with jax.default_device(device):
        found = probe()
        assert found.devices() == {device}, name
    with jax.default_device(cpu):
        wanted = np.asarray(probe())
    np.testing.assert_allclose(np.asarray(found), wanted, 1e-4, 1e-5, err_msg=name)
print(len(probes), 'probes')
"""

TRAINING = """
import jax, jax.numpy as jnp, numpy as np
def loss(p, x, y):
    return -jnp.mean(jnp.sum(y * jax.nn.log_softmax(jnp.tanh(x @ p[0]) @ p[1]), 1))
@jax.jit
def step(p, x, y):
    value, g = jax.value_and_grad(loss)(p, x, y)
    return jax.tree.map(lambda a, b: a - 0.1 * b, p, g), value
r = np.random.default_rng(0)
x = r.standard_normal((64, 40)).astype(np.float32)
y = np.eye(10, dtype=np.float32)[r.integers(0, 10, 64)]
start = [r.standard_normal(s).astype(np.float32) * .05 for s in ((40, 128), (128, 10))]
found = {}
for platform in ('hloom', 'cpu'):
    with jax.default_device(jax.devices(platform)[0]):
        p, values = start, []
        for _ in range(20):
            p, value = step(p, x, y)
            values.append(float(value))
        found[platform] = values
np.testing.assert_allclose(found['hloom'], found['cpu'], 1e-5)
assert found['hloom'][-1] < found['hloom'][0]
"""


def test_probes_have_the_values_of_jax_on_cpus(run_jax):
    assert run_jax(PROBES) == "38 probes\n"


def test_a_training_step_has_the_losses_of_jax_on_cpus(run_jax):
    run_jax(TRAINING)


def test_the_device_is_found_and_is_nobodys_default_unasked(run_jax):
    program = """
    import jax
    print(jax.default_backend(), jax.devices('hloom'), jax.devices('hloom')[0].device_kind)
    """
    assert run_jax(program, JAX_PLATFORMS="cpu,hloom") == "cpu [hloom:0] hloom cpu\n"
    assert run_jax(program, JAX_PLATFORMS="hloom") == "hloom [hloom:0] hloom cpu\n"
    unasked = "import sys, jax; jax.devices(); print(jax.default_backend(), 'hloom.bridges.pjrt.plugin' in sys.modules)"
    assert run_jax(unasked, JAX_PLATFORMS="cpu") == "cpu False\n"


def test_donation_threads_errors_transfers_and_statistics(run_jax):
    run_jax("""
    import gc, threading, resource
    import jax, jax.numpy as jnp, numpy as np
    device = jax.devices()[0]
    f = jax.jit(lambda x: x * 2 + 1)

    # Donation: the memory is the result's; what somebody else sees stays as it is.
    x = jnp.arange(1 << 16, dtype=jnp.float32)
    where = x.unsafe_buffer_pointer()
    y = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted() and y.unsafe_buffer_pointer() == where and float(y[3]) == 4
    view = np.asarray(y)
    z = jax.jit(lambda x: x + 1, donate_argnums=0)(y)
    assert view[3] == 4 and float(z[3]) == 5 and z.unsafe_buffer_pointer() != where
    try:
        x + 1
    except RuntimeError as error:
        assert 'deleted' in str(error)
    else:
        raise AssertionError('a deleted array was read')

    # Transfers: NumPy's memory is read in place, results are seen in place, strides are resolved.
    a = np.arange(1 << 16, dtype=np.float32).reshape(256, 256)
    assert jax.device_put(a, may_alias=True).unsafe_buffer_pointer() % 16 == 0
    assert np.asarray(z).ctypes.data == z.unsafe_buffer_pointer()
    for b in (a.T, a[::-1], a[::2, ::3], a[3:3], a[1]):
        np.testing.assert_array_equal(np.asarray(jax.device_put(b)), b)
    c = a.copy()
    d = jnp.array(c)
    c[:] = 0
    np.testing.assert_array_equal(np.asarray(d), a)
    for dtype in ('bool', 'int8', 'int16', 'int32', 'uint8', 'uint16', 'uint32', 'float16', 'bfloat16', 'float32',
                  'float8_e4m3fn', 'float8_e5m2', 'int4', 'uint4'):
        v = jnp.asarray(np.ones(3), dtype=dtype)
        assert v.dtype == dtype and np.all(np.asarray(v * v).astype(np.float32) == 1), dtype
    assert (jnp.asarray([1j]) * 1j)[0] == -1
    with jax.enable_x64(True):
        assert jnp.arange(3.).dtype == np.float64 and f(jnp.arange(3))[2] == 5 and jnp.asarray(1j).dtype == 'complex128'

    # DLPack shares the memory, also of an array that is deleted meanwhile.
    e = jnp.arange(5000.)
    lent = np.from_dlpack(e)
    assert lent.ctypes.data == e.unsafe_buffer_pointer()
    e.delete()
    assert lent[4999] == 4999
    back = jnp.from_dlpack(np.arange(3, dtype=np.float32))
    assert back.devices() == {device} and back[2] == 2

    # Memory kinds are names; results have the one that the program says.
    kinds = {m.kind: m for m in device.addressable_memories()}
    assert set(kinds) == {'device', 'pinned_host', 'unpinned_host'} and device.default_memory().kind == 'device'
    there = jax.sharding.SingleDeviceSharding(device, memory_kind='pinned_host')
    offloaded = jax.device_put(a, there)
    assert offloaded.sharding.memory_kind == 'pinned_host' and offloaded[1, 1] == 257
    assert jax.jit(lambda x: x + 1, out_shardings=there)(a).sharding.memory_kind == 'pinned_host'

    # Several threads at once.
    wrong = []
    def work(number):
        v = jnp.full((1 << 14,), number, jnp.float32)
        for _ in range(200):
            if float(f(v)[-1]) != 2 * number + 1:
                wrong.append(number)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not wrong

    # Errors are exceptions, and calls go on after them.
    for _ in range(3):
        try:
            jax.block_until_ready(jax.jit(lambda x: jax.pure_callback(lambda v: 1 / 0, x, x))(jnp.float32(1)))
        except jax.errors.JaxRuntimeError as error:
            assert 'ZeroDivisionError' in str(error), error
        else:
            raise AssertionError('the error of a callback was lost')
    try:
        jnp.zeros(1 << 45, jnp.int8)
    except jax.errors.JaxRuntimeError as error:
        assert 'RESOURCE_EXHAUSTED' in str(error), error
        assert '<string>:' in str(error), error  # the line of this program, not one of jax's
    else:
        raise AssertionError('more memory than there is')
    assert float(f(jnp.float32(1))) == 3
    for options, text in (
        ({'no_such_key': True}, "No such compile option: 'no_such_key'"),
        ({'xla_no_such_key': True}, "No such compile option: 'xla_no_such_key'"),
        ({'xla_embed_ir_in_executable': 'some'}, "'some' is not a valid bool value"),
    ):
        try:
            f.lower(jnp.float32(1)).compile(compiler_options=options)
        except jax.errors.JaxRuntimeError as error:
            assert text in str(error), error
        else:
            raise AssertionError(f'{options} was ignored')
    assert float(f.lower(jnp.float32(1)).compile(compiler_options={'xla_embed_ir_in_executable': True})(1.)) == 3

    # Memory.
    stats = device.memory_stats()
    assert stats['bytes_in_use'] > 0 and stats['peak_bytes_in_use'] >= stats['bytes_in_use']
    compiled = jax.jit(lambda x: x @ x).lower(jnp.ones((8, 8))).compile()
    assert compiled.cost_analysis()['flops'] == 1024
    def total(x): return jnp.sin(x @ x).sum()
    both = (device, jax.devices('cpu')[0])
    lowered, on_cpu = (jax.jit(total).lower(jax.device_put(np.ones((8, 8), np.float32), d)) for d in both)
    before = lowered.cost_analysis()  # XLA's count
    assert before == on_cpu.cost_analysis() and before['transcendentals'] == 64, before
    after = lowered.compile().cost_analysis()
    assert after['flops'] == 1024 + 64 and after['transcendentals'] == 64 and after['bytes accessed'] > 0, after
    assert compiled.memory_analysis().argument_size_in_bytes == 256
    assert compiled.as_text().startswith('HloModule') and compiled.output_formats.layout.major_to_minor == (0, 1)
    v = jnp.ones(16)
    for _ in range(2000): f(v)
    gc.collect()
    used, size = device.memory_stats()['bytes_in_use'], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100_000): f(v)
    gc.collect()
    assert device.memory_stats()['bytes_in_use'] == used
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - size < 4096  # KiB
    """)


def test_callbacks_and_prints_in_the_order_of_the_program(run_jax):
    assert (
        run_jax("""
    import jax, jax.numpy as jnp, numpy as np
    from jax.experimental import io_callback
    @jax.jit
    def f(x):
        jax.debug.print('x {}', x, ordered=True)
        def body(k, v):
            jax.debug.print('v {}', v, ordered=True)
            return io_callback(lambda a: a * 2, jax.ShapeDtypeStruct((), np.float32), v, ordered=True)
        return jax.lax.fori_loop(0, 2, body, x)
    print(f(jnp.float32(1)))
    from jax.experimental import serialize_executable
    h = jax.jit(lambda x: jax.pure_callback(np.sin, x, x)).lower(jnp.float32(1)).compile()
    try:
        serialize_executable.serialize(h)
    except Exception as error:
        assert 'Python functions' in str(error), error
    else:
        raise AssertionError('a program of this process was serialized')
    g = jax.vmap(lambda x: jax.pure_callback(np.sin, x, x, vmap_method='sequential'))
    np.testing.assert_allclose(g(jnp.arange(3.)), np.sin(np.arange(3.)), 1e-6)
    """)
        == "x 1.0\nv 1.0\nv 2.0\n4.0\n"
    )


def test_the_persistent_cache_keeps_executables(run_jax, tmp_path):
    program = """
    import jax, jax.numpy as jnp
    hits = []
    jax.monitoring.register_event_listener(lambda name, **_: hits.append(name) if name.endswith('cache_hits') else None)
    print(float(jax.jit(lambda x: jnp.tanh(x) * 3 + 0.25)(jnp.float32(0))), bool(hits))
    """
    settings = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    assert run_jax(program, **settings) == "0.25 False\n"
    assert any(tmp_path.iterdir())
    assert run_jax(program, **settings) == "0.25 True\n"


def test_several_devices_run_programs_for_one_each(run_jax):
    program = """
    import jax, jax.numpy as jnp, numpy as np
    first, second = jax.devices()
    x = jax.device_put(np.arange(4.), second)
    y = jax.jit(lambda x: x * 2)(x)
    assert y.devices() == {second} and y[3] == 6
    assert jax.device_put(y, first).devices() == {first}
    assert np.array_equal(jax.pmap(lambda x: x + 1)(np.arange(2.)), [1, 2])
    try:
        jax.pmap(lambda x: x + 1)(np.arange(3.))
    except ValueError as error:
        assert 'evenly divide' in str(error), error
    else:
        raise AssertionError('a program for three devices ran')
    """
    run_jax(program, HLOOM_NUM_CPU_DEVICES="2")


def test_branches_and_exports_for_cpus_are_for_hloom(run_jax):
    run_jax("""
    import jax, jax.numpy as jnp, numpy as np
    from jax import export
    x = np.arange(3., dtype=np.float32)
    def f(x, **branches):
        return jax.lax.platform_dependent(x, **branches)
    one = dict(cpu=lambda x: x + 1, cuda=lambda x: x + 2)
    others = dict(one, default=lambda x: x + 3)
    assert jax.jit(lambda x: f(x, **one))(x)[0] == 1
    assert f(jnp.asarray(x), **others)[0] == 1
    assert jax.jit(lambda x: f(x, hloom=lambda x: x + 4, **others))(x)[0] == 4
    assert jax.jit(jax.vmap(jax.grad(lambda x: f(x, cpu=jnp.sin, cuda=jnp.cos))))(x)[0] == 1
    for platforms in (['cpu'], ['cuda', 'cpu'], ['hloom'], ['cpu', 'hloom']):
        made = export.export(jax.jit(lambda x: f(x, **others)), platforms=platforms)(x)
        assert jax.jit(made.call)(x)[0] == 1, platforms
    made = export.export(jax.jit(jnp.sin), platforms=['cuda'])(x)
    try:
        jax.jit(made.call)(x)
    except ValueError as error:
        assert 'exported for platforms' in str(error), error
    else:
        raise AssertionError('a program for GPUs ran')
    """)


def test_programs_for_tensorflow_are_for_its_devices(run_jax):
    """jax2tf, and by it `model.export` of Keras: TensorFlow refuses a program for a platform that it has not."""
    run_jax("""
    import jax, jax.numpy as jnp
    from jax import export
    from jax._src.export import _export
    x, f = jnp.ones(3), jax.jit(jnp.sin)
    def written(**options):  # as jax2tf does it
        return _export._export_internal(f, _device_assignment_for_internal_jax2tf_use_only=[None], **options)(x)
    assert written().platforms == ('cpu',)
    assert written(platforms=('cuda',)).platforms == ('cuda',)
    assert export.export(f)(x).platforms == ('hloom',)
    """)


def test_calls_of_lapack_are_ops(run_jax):
    """In programs of jax they are custom calls of its handlers, which a loop would call through Python."""
    run_jax("""
    import jax, jax.numpy as jnp, numpy as np
    from jax import lax
    from hloom.bridges.pjrt import ffi
    a = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    a = a @ a.T + 4 * np.eye(4, dtype=np.float32)
    def step(x, _):
        factor = jnp.linalg.cholesky(a + x @ x.T * 1e-3)
        return lax.linalg.triangular_solve(factor, x, left_side=True, lower=True), jnp.linalg.det(factor)
    with jax.default_device(jax.devices('cpu')[0]):
        expected = jax.jit(lambda x: lax.scan(step, x, length=30))(a)
    def called(self, *arrays):
        raise AssertionError(f'the handler of {self.name} was called')
    ffi._Call.__call__ = called
    for got, want in zip(jax.jit(lambda x: lax.scan(step, x, length=30))(a), expected):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    """)


def test_a_solver_of_scipy_behind_a_callback(run_jax):
    run_jax("""
    import jax.numpy as jnp, numpy as np
    from jax.experimental import sparse
    a = np.eye(4, dtype=np.float32) * 2
    m = sparse.BCSR.fromdense(a)
    from jax.experimental.sparse.linalg import spsolve
    np.testing.assert_allclose(spsolve(m.data, m.indices, m.indptr, jnp.ones(4)), np.full(4, 0.5))
    """)


def test_programs_as_text_bytecode_and_artifacts(run_jax):
    """Each is parsed once, by what its first bytes say: the error of a damaged one is that of its own format."""
    out = run_jax("""
    import io
    import jax
    from jax.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo
    from hloom.bridges.pjrt.decoding import decoded

    text = str(jax.jit(lambda x: x + 1).lower(1.0).compiler_ir())
    with mlir.make_ir_context():
        module, bytecode = ir.Module.parse(text), io.BytesIO()
        module.operation.write_bytecode(bytecode)
        artifact = stablehlo.serialize_portable_artifact_str(text, "1.0.0")
    for code in (text.encode(), bytecode.getvalue(), artifact):
        print("stablehlo.add" in decoded(code), end=" ")
    for code in (b"no module", artifact[: len(artifact) // 2]):
        try:
            decoded(code)
        except Exception as error:
            print(error.__context__ is None, end=" ")
    """)
    assert out.split() == ["True"] * 5, out


PROFILE = """
import jax, jax.numpy as jnp, numpy as np, hloom as hl
def f(x, unused, y):
    return jnp.tanh(x['a'] @ x['b']).sum() + y
args = {'a': np.ones((64, 64)), 'b': jnp.ones((64, 64))}, 2, 3.
parts = hl.profiler.profile(jax.jit(f).lower(*args).compile(), args)
assert any(part.instruction.opcode == 'dot' and part.instruction.source.line == 4 for part in parts), parts
for program, given, wanted in (
    (jax.jit(f).lower(*args).compile(), args[1:], 'arguments of the shapes'),
    (jax.jit(f).lower(*jax.device_put(args, jax.devices('cpu')[0])).compile(), args, "compiled for 'cpu'"),
):
    try:
        hl.profiler.profile(program, given)
    except hl.errors.ArgumentError as error:
        assert wanted in str(error), error
    else:
        raise AssertionError('a wrong program was profiled')
"""


def test_profiles_have_the_lines_of_jax_programs(run_jax):
    run_jax(PROFILE)


def test_denormal_constants(run_jax):
    """jaxlib compiles in threads that take denormal numbers for zero."""
    run_jax("""
        import jax, jax.numpy as jnp, numpy as np
        jax.config.update('jax_enable_x64', True)
        for dtype, tiny in ((np.float32, 1e-40), (np.float64, 1e-310), (np.complex64, 1e-40 - 2e-40j)):
            x, tiny = np.array([1, 2, -3], dtype), dtype(tiny)
            np.testing.assert_array_equal(jax.jit(lambda: tiny)(), tiny)
            np.testing.assert_array_equal(jax.jit(lambda x: x + tiny)(x * 0), x * 0 + tiny)
            np.testing.assert_array_equal(jax.jit(lambda x: x.at[-1].set(tiny))(x), np.array([*x[:2], tiny]))
            np.testing.assert_array_equal(jax.jit(lambda: jnp.asarray(x * tiny) * dtype(2))(), x * tiny * dtype(2))
    """)


def test_calls_leave_nothing_to_the_garbage_collector(run_jax):
    run_jax("""
        import gc, jax, jax.numpy as jnp
        def once():
            def f(x):
                return x + 1
            assert float(jax.jit(f)(jnp.arange(6.0).reshape(2, 3)[1, 2])) == 6.0
        once()
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        once()
        gc.collect()
        found = [one for one in gc.garbage if isinstance(one, type) and one.__module__.startswith('hloom')]
        assert not found, found
    """)
