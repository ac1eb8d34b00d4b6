"""The calls of the CUDA driver that the runtime makes, each with its errors made typed.

`Api(driver)` wraps `cuda.bindings.driver` of cuda-python 13, or anything with the same functions (the tests' fake).
Handles are the driver's own objects and opaque here; addresses are plain integers. Nothing is imported before
`load_api()` is called.

Two calls are made for each replay of a program, so `launch_graph` and `record` do no more than call and test.
"""

from __future__ import annotations

from hloom.ir.records import field, record
from hloom.runtime.cuda.errors import CudaError, CudaNotInstalledError, NoDriverError, typed_error

NOT_READY = 600
# Access is enabled already (another library did), there is no link after all, or there are too many: copies work.
PEERS_AS_THEY_ARE = (704, 217, 711)
LEGACY_STREAM = 1  # the driver's handles of the two default streams, also used by DLPack
PER_THREAD_STREAM = 2


@record(frozen=True)
class FunctionFacts:
    """Of a loaded kernel. registers: 32-bit registers a thread. local_bytes: of a thread, on its stack or spilled.
    shared_bytes: static, of a block. max_threads: of a block, with this many registers."""

    registers: int
    local_bytes: int
    shared_bytes: int
    max_threads: int


@record
class KernelNode:
    """The parameters of a kernel launch. arguments: address of an array of addresses, one for each argument."""

    function: object
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: int
    keep: object = field(default=None, repr=False)  # keeps the memory of `arguments` alive


class Api:
    """The driver's functions. Every method raises a CudaError that names the request, unless its docstring says
    otherwise."""

    def __init__(self, driver):
        self.driver = driver
        self._graph_launch = driver.cuGraphLaunch
        self._event_record = driver.cuEventRecord

    # --- errors ---

    def failure(self, code, asked: str, source: str = "") -> CudaError:
        """The typed error for a code that a call returned."""
        number = int(code)
        name, text = getattr(code, "name", f"CUDA_ERROR_{number}"), "no description"
        try:
            status, message = self.driver.cuGetErrorString(code)
            if not status:
                text = message.decode() if isinstance(message, bytes) else str(message)
        except Exception:  # the description is optional: the error's name identifies the failure
            pass
        return typed_error(number, name, text, asked, source)

    def _do(self, result: tuple, asked: str, source: str = ""):
        """The results of a call besides its status code: nothing, one value or a tuple."""
        if result[0]:
            raise self.failure(result[0], asked, source)
        return None if len(result) == 1 else result[1] if len(result) == 2 else result[1:]

    # --- the driver and its devices ---

    def start(self) -> int:
        """Initializes the driver; its CUDA version as 13000 for 13.0. Raises NoDriverError."""
        try:
            status = self.driver.cuInit(0)
        except CudaError:
            raise
        except RuntimeError as error:  # cuda.pathfinder: there is no libcuda
            raise NoDriverError(
                "the CUDA driver was asked for",
                f"its library does not load ({str(error).splitlines()[0]})",
                "install the NVIDIA driver, or run the container with GPUs (--gpus all)",
            ) from error
        if status[0] and int(status[0]) != 100:  # 100: no device, also visible from the count
            failed = self.failure(status[0], "the CUDA driver was started")
            raise NoDriverError(failed.asked, failed.found, failed.repair, "", failed.code, failed.name)
        return int(self._do(self.driver.cuDriverGetVersion(), "the driver's version was asked for"))

    def device_count(self) -> int:
        status, *count = self.driver.cuDeviceGetCount()
        if int(status) == 100:
            return 0
        return int(self._do((status, *count), "the number of GPUs was asked for"))

    def device(self, ordinal: int):
        return self._do(self.driver.cuDeviceGet(ordinal), f"GPU {ordinal} was asked for")

    def device_name(self, device) -> str:
        name = self._do(self.driver.cuDeviceGetName(128, device), "a GPU's name was asked for")
        return bytes(name).split(b"\0")[0].decode()

    def device_memory(self, device) -> int:
        return int(self._do(self.driver.cuDeviceTotalMem(device), "a GPU's memory was asked for"))

    def attribute(self, device, name: str) -> int:
        """name: of a CU_DEVICE_ATTRIBUTE_ without that prefix."""
        kind = getattr(self.driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._do(self.driver.cuDeviceGetAttribute(kind, device), f"a GPU's {name} was asked for"))

    def retain_context(self, device):
        """The primary context, which other libraries of this process use too."""
        return self._do(self.driver.cuDevicePrimaryCtxRetain(device), "a GPU's context was made")

    def release_context(self, device) -> None:
        self._do(self.driver.cuDevicePrimaryCtxRelease(device), "a GPU's context was given back")

    def set_current(self, context) -> None:
        """For this thread."""
        self._do(self.driver.cuCtxSetCurrent(context), "a GPU's context was chosen")

    def synchronize_context(self, asked: str) -> None:
        self._do(self.driver.cuCtxSynchronize(), asked)

    def free_memory(self) -> tuple[int, int]:
        """(free, total) bytes of the current device."""
        free, total = self._do(self.driver.cuMemGetInfo(), "a GPU's free memory was asked for")
        return int(free), int(total)

    # --- streams and events ---

    def create_stream(self):
        """A stream that does not wait for the legacy default stream, nor that for it."""
        flags = self.driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        return self._do(self.driver.cuStreamCreate(flags), "a stream was made")

    def destroy_stream(self, stream) -> None:
        self._do(self.driver.cuStreamDestroy(stream), "a stream was destroyed")

    def stream_of(self, number: int):
        """The stream of a handle that another library gave as a number."""
        return self.driver.CUstream(number)

    def synchronize_stream(self, stream, asked: str) -> None:
        self._do(self.driver.cuStreamSynchronize(stream), asked)

    def wait_event(self, stream, event) -> None:
        """Work enqueued on the stream from now on starts after the event."""
        self._do(self.driver.cuStreamWaitEvent(stream, event, 0), "a stream was made to wait for an event")

    def create_event(self, timing: bool = False):
        flags = self.driver.CUevent_flags
        flag = flags.CU_EVENT_DEFAULT if timing else flags.CU_EVENT_DISABLE_TIMING
        return self._do(self.driver.cuEventCreate(flag), "an event was made")

    def destroy_event(self, event) -> None:
        self._do(self.driver.cuEventDestroy(event), "an event was destroyed")

    def record(self, event, stream) -> None:
        (status,) = self._event_record(event, stream)
        if status:
            raise self.failure(status, "an event was recorded")

    def query_event(self, event, asked: str) -> bool:
        """Whether it has happened."""
        (status,) = self.driver.cuEventQuery(event)
        if int(status) == NOT_READY:
            return False
        self._do((status,), asked)
        return True

    def synchronize_event(self, event, asked: str) -> None:
        self._do(self.driver.cuEventSynchronize(event), asked)

    def milliseconds(self, first, second) -> float:
        """Between two events that were made with timing and have happened."""
        return float(self._do(self.driver.cuEventElapsedTime(first, second), "the time between events was asked for"))

    # --- memory ---

    def create_pool(self, ordinal: int, keep_bytes: int):
        """A pool that returns memory beyond `keep_bytes` to the system at every stream synchronization."""
        driver = self.driver
        properties = driver.CUmemPoolProps()
        properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.handleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
        properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = ordinal
        pool = self._do(driver.cuMemPoolCreate(properties), f"a memory pool was made on GPU {ordinal}")
        try:
            threshold = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
            value = driver.cuuint64_t(keep_bytes)
            self._do(driver.cuMemPoolSetAttribute(pool, threshold, value), "a memory pool's limit was set")
        except BaseException:
            driver.cuMemPoolDestroy(pool)
            raise
        return pool

    def destroy_pool(self, pool) -> None:
        self._do(self.driver.cuMemPoolDestroy(pool), "a memory pool was destroyed")

    def pool_bytes(self, pool) -> tuple[int, int]:
        """(bytes that the pool has taken from the device, bytes of these in use)."""
        kinds = self.driver.CUmemPool_attribute
        asked = "a memory pool's size was asked for"
        reserved = self._do(self.driver.cuMemPoolGetAttribute(pool, kinds.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), asked)
        used = self._do(self.driver.cuMemPoolGetAttribute(pool, kinds.CU_MEMPOOL_ATTR_USED_MEM_CURRENT), asked)
        return int(reserved), int(used)

    def trim_pool(self, pool, keep_bytes: int) -> None:
        self._do(self.driver.cuMemPoolTrimTo(pool, keep_bytes), "a memory pool was trimmed")

    def allocate(self, nbytes: int, pool, stream, asked: str) -> int:
        """Address of device memory that may be used by work enqueued on the stream from now on."""
        return int(self._do(self.driver.cuMemAllocFromPoolAsync(nbytes, pool, stream), asked))

    def free(self, address: int, stream) -> None:
        """Once everything that is now on the stream is done."""
        self._do(self.driver.cuMemFreeAsync(address, stream), "device memory was freed")

    def allocate_pinned(self, nbytes: int) -> int:
        """Address of host memory that copies reach without a detour."""
        return int(self._do(self.driver.cuMemHostAlloc(nbytes, 0), f"{nbytes:,} bytes of pinned memory were asked for"))

    def free_pinned(self, address: int) -> None:
        self._do(self.driver.cuMemFreeHost(address), "pinned memory was freed")

    def copy(self, target: int, source: int, nbytes: int, stream, asked: str, where: str = "") -> None:
        """Enqueues a copy between any two addresses in device or pinned memory."""
        self._do(self.driver.cuMemcpyAsync(target, source, nbytes, stream), asked, where)

    def fill(self, address: int, byte: int, nbytes: int, stream, where: str = "") -> None:
        asked = f"{nbytes:,} bytes were filled"
        self._do(self.driver.cuMemsetD8Async(address, byte, nbytes, stream), asked, where)

    # --- between GPUs ---

    def can_access_peer(self, device, other) -> bool:
        """Whether a GPU can reach the memory of another."""
        asked = "whether a GPU can reach another's memory was asked for"
        return bool(self._do(self.driver.cuDeviceCanAccessPeer(device, other), asked))

    def share_pool(self, pool, ordinal: int) -> None:
        """Lets another GPU reach a pool's memory."""
        driver = self.driver
        access = driver.CUmemAccessDesc()
        access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = ordinal
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self._do(driver.cuMemPoolSetAccess(pool, [access], 1), f"a memory pool was opened to GPU {ordinal}")

    def enable_peer_access(self, context) -> None:
        """Lets the current context reach another's memory that is in no pool, unless it does already."""
        (status,) = self.driver.cuCtxEnablePeerAccess(context, 0)
        if int(status) not in PEERS_AS_THEY_ARE:
            self._do((status,), "a GPU was given access to another's memory")

    def copy_peer(
        self, target: int, target_context, source: int, source_context, nbytes: int, stream, asked: str
    ) -> None:
        """From one GPU to another, enqueued."""
        status = self.driver.cuMemcpyPeerAsync(target, target_context, source, source_context, nbytes, stream)
        self._do(status, asked)

    # --- machine code ---

    def load_module(self, cubin: bytes, what: str):
        return self._do(self.driver.cuModuleLoadData(cubin), f"the machine code of {what} was loaded")

    def unload_module(self, module) -> None:
        self._do(self.driver.cuModuleUnload(module), "machine code was unloaded")

    def function(self, module, name: str):
        asked = f"the kernel {name} was looked up in its machine code"
        return self._do(self.driver.cuModuleGetFunction(module, name.encode()), asked)

    def function_facts(self, function) -> FunctionFacts:
        kinds = self.driver.CUfunction_attribute
        names = ("NUM_REGS", "LOCAL_SIZE_BYTES", "SHARED_SIZE_BYTES", "MAX_THREADS_PER_BLOCK")
        asked = "a kernel's registers were asked for"
        values = [
            self._do(self.driver.cuFuncGetAttribute(getattr(kinds, f"CU_FUNC_ATTRIBUTE_{n}"), function), asked)
            for n in names
        ]
        return FunctionFacts(*(int(v) for v in values))

    def allow_shared(self, function, nbytes: int, name: str) -> None:
        """Allows launches of a kernel with this much dynamic shared memory; more than 48 KiB requires this opt-in."""
        kind = self.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        asked = f"{nbytes:,} bytes of shared memory were asked for by the kernel {name}"
        self._do(self.driver.cuFuncSetAttribute(function, kind, nbytes), asked)

    def launch(self, node: KernelNode, stream, asked: str, where: str) -> None:
        status = self.driver.cuLaunchKernel(
            node.function, *node.grid, *node.block, node.shared, stream, node.arguments, 0
        )
        self._do(status, asked, where)

    # --- graphs ---

    def create_graph(self):
        return self._do(self.driver.cuGraphCreate(0), "a graph was made")

    def destroy_graph(self, graph) -> None:
        self._do(self.driver.cuGraphDestroy(graph), "a graph was destroyed")

    def kernel_parameters(self, node: KernelNode):
        """The driver's record of a kernel node; to be handed to `add_kernel` and `change_kernel`."""
        record = self.driver.CUDA_KERNEL_NODE_PARAMS()
        record.func = node.function
        record.gridDimX, record.gridDimY, record.gridDimZ = node.grid
        record.blockDimX, record.blockDimY, record.blockDimZ = node.block
        record.sharedMemBytes = node.shared
        record.kernelParams = node.arguments
        return record

    def add_kernel(self, graph, after: list, record, asked: str, where: str):
        return self._do(self.driver.cuGraphAddKernelNode(graph, after, len(after), record), asked, where)

    def change_kernel(self, executable, node, record) -> tuple:
        """For later launches of the executable graph; those enqueued keep their arguments. Returns the driver's status
        unchecked: programs have many kernels, and an error message is composed only on failure."""
        return self.driver.cuGraphExecKernelNodeSetParams(executable, node, record)

    def copy_parameters(self, target: int, source: int, nbytes: int):
        """The driver's parameters for a copy node between addresses in device memory."""
        driver = self.driver
        record = driver.CUDA_MEMCPY3D()
        record.srcMemoryType = record.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        record.srcDevice, record.dstDevice = driver.CUdeviceptr(source), driver.CUdeviceptr(target)
        record.WidthInBytes, record.Height, record.Depth = nbytes, 1, 1
        return record

    def add_copy(self, graph, after: list, record, context, where: str):
        status = self.driver.cuGraphAddMemcpyNode(graph, after, len(after), record, context)
        return self._do(status, "a copy was added to a graph", where)

    def update_copy(self, executable, node, record, context, where: str) -> None:
        status = self.driver.cuGraphExecMemcpyNodeSetParams(executable, node, record, context)
        self._do(status, "a copy in a graph was changed", where)

    def fill_parameters(self, address: int, byte: int, nbytes: int):
        record = self.driver.CUDA_MEMSET_NODE_PARAMS()
        record.dst = self.driver.CUdeviceptr(address)
        record.value, record.elementSize, record.width, record.height = byte, 1, nbytes, 1
        return record

    def add_fill(self, graph, after: list, record, context, where: str):
        status = self.driver.cuGraphAddMemsetNode(graph, after, len(after), record, context)
        return self._do(status, "a fill was added to a graph", where)

    def update_fill(self, executable, node, record, context, where: str) -> None:
        status = self.driver.cuGraphExecMemsetNodeSetParams(executable, node, record, context)
        self._do(status, "a fill in a graph was changed", where)

    def create_condition(self, graph, context):
        """The handle of a condition that a kernel of this graph sets and a conditional node of it reads."""
        status = self.driver.cuGraphConditionalHandleCreate(graph, context, 0, 0)
        return self._do(status, "a condition was made in a graph")

    def add_conditional(self, graph, after: list, handle, kind: str, count: int, context, where: str):
        """(node, the `count` graphs of its bodies, empty). kind: 'WHILE', 'IF' or 'SWITCH'."""
        driver = self.driver
        record = driver.CUgraphNodeParams()
        record.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        record.conditional.handle = handle
        record.conditional.type = getattr(driver.CUgraphConditionalNodeType, f"CU_GRAPH_COND_TYPE_{kind}")
        record.conditional.size = count
        record.conditional.ctx = context
        status = driver.cuGraphAddNode(graph, after, None, len(after), record)
        node = self._do(status, f"a node {kind.lower()} was added to a graph", where)
        return node, list(record.conditional.phGraph_out)[:count]

    def capture(self, stream, enqueue, what: str, where: str):
        """Captures the work that `enqueue()` puts on the stream into a new graph instead of running it."""
        driver = self.driver
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._do(driver.cuStreamBeginCapture(stream, mode), f"the work of {what} was captured", where)
        try:
            enqueue()
        except BaseException:
            status, *graph = driver.cuStreamEndCapture(stream)
            if not status and graph and graph[0]:
                driver.cuGraphDestroy(graph[0])
            raise
        return self._do(driver.cuStreamEndCapture(stream), f"the work of {what} was captured", where)

    def add_child(self, graph, after: list, child, where: str):
        """A copy of the graph `child` as a node."""
        status = self.driver.cuGraphAddChildGraphNode(graph, after, len(after), child)
        return self._do(status, "a recorded stretch was added to a graph", where)

    def instantiate(self, graph, what: str):
        return self._do(self.driver.cuGraphInstantiate(graph, 0), f"the graph of {what} was prepared")

    def update_graph(self, executable, graph) -> bool:
        """Updates an executable graph with the arguments of a graph of the same topology. False if the driver
        refuses; the executable must then not be launched again."""
        status, *_ = self.driver.cuGraphExecUpdate(executable, graph)
        if int(status) == 910:
            return False
        self._do((status,), "the arguments of a graph were changed")
        return True

    def destroy_executable(self, executable) -> None:
        self._do(self.driver.cuGraphExecDestroy(executable), "a prepared graph was destroyed")

    def launch_graph(self, executable, stream, what: str) -> None:
        (status,) = self._graph_launch(executable, stream)
        if status:
            raise self.failure(status, f"the program {what} was enqueued")


def load_api() -> Api:
    """Over cuda-python. Raises CudaNotInstalledError; a missing driver shows at `start`."""
    try:
        from cuda.bindings import driver  # saves start-up time: NVIDIA's bindings
    except ImportError as error:
        raise CudaNotInstalledError(
            "the CUDA driver was asked for",
            f"cuda-python is not installed ({error})",
            'pip install "hloom[cuda]"',
        ) from error
    return Api(driver)
