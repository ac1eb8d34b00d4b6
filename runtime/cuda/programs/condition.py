"""The kernel that hands a value in memory to a conditional node of a graph.

A condition is set by `cudaGraphSetConditional`, which the driver itself provides: it stays undefined in the machine
code and is found when that is loaded, with CUDA's device library linked in or without. The kernels around it are
written here in PTX and assembled by nvJitLink, once for each architecture in a process (some 50 ms, 6 KB).
"""

from __future__ import annotations

from functools import cache

from hloom.runtime.cuda.errors import CudaModuleError, CudaNotInstalledError

# handle, address of a byte: 1 where it is not 0. handle, address, count: the s32 there, the last where it names none.
_PTX = """.version 8.0
.target sm_80
.address_size 64
.extern .func cudaGraphSetConditional (.param .b64 handle, .param .b32 value);

.visible .entry set_pred (.param .u64 handle, .param .u64 place)
{
    .reg .b64 %d<3>;
    .reg .b32 %r<3>;
    .reg .pred %p;
    ld.param.u64 %d1, [handle];
    ld.param.u64 %d2, [place];
    ld.global.u8 %r1, [%d2];
    setp.ne.u32 %p, %r1, 0;
    selp.u32 %r2, 1, 0, %p;
    {
    .param .b64 a;
    .param .b32 b;
    st.param.b64 [a], %d1;
    st.param.b32 [b], %r2;
    call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}

.visible .entry set_index (.param .u64 handle, .param .u64 place, .param .u64 count)
{
    .reg .b64 %d<4>;
    .reg .b32 %r<4>;
    ld.param.u64 %d1, [handle];
    ld.param.u64 %d2, [place];
    ld.param.u64 %d3, [count];
    ld.global.u32 %r1, [%d2];
    cvt.u32.u64 %r2, %d3;
    sub.u32 %r2, %r2, 1;
    min.u32 %r3, %r1, %r2;
    {
    .param .b64 a;
    .param .b32 b;
    st.param.b64 [a], %d1;
    st.param.b32 [b], %r3;
    call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}
"""


@cache
def condition_cubin(arch: str) -> bytes:
    """Machine code with the kernels `set_pred` and `set_index`. arch: 'sm_90'.

    Raises CudaNotInstalledError without nvJitLink, CudaModuleError where it does not know the architecture.
    """
    try:
        from cuda.bindings import nvjitlink  # saves start-up time: NVIDIA's bindings
    except ImportError as error:
        raise CudaNotInstalledError(
            f"loops and branches of a graph were prepared for {arch}",
            f"nvJitLink is not installed ({error})",
            'pip install "hloom[cuda]"',
        ) from error
    text, handle = _PTX.encode(), None
    try:
        handle = nvjitlink.create(1, [f"-arch={arch}"])
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, text, len(text), "condition")
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
    except nvjitlink.nvJitLinkError as error:
        log = bytearray(max(1, nvjitlink.get_error_log_size(handle)) if handle else 1)
        if handle:
            nvjitlink.get_error_log(handle, log)
        raise CudaModuleError(
            f"the kernel that sets conditions was assembled for {arch}",
            f"{error} {bytes(log).decode(errors='replace').strip(chr(0))}".strip(),
            "update nvidia-nvjitlink",
        ) from error
    finally:
        if handle:
            nvjitlink.destroy(handle)
    return bytes(cubin)
