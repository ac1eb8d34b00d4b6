/* A libcuda.so.1 without a GPU, for tests of the way through cuda-python: its records, handles and pointers are those
 * of the real driver's header, so what arrives here is what would arrive there.
 *
 * Everything happens at once, in memory of the host. "Machine code" begins with "cubin" (or is an ELF file); kernels
 * are the functions of the table below. What the runtime should never pass is answered CUDA_ERROR_INVALID_VALUE. Order
 * and lifetimes are not watched: the fake driver of the other tests does that.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DONE return CUDA_SUCCESS
#define CHECK(condition) \
    if (!(condition)) return CUDA_ERROR_INVALID_VALUE

static const CUcontext CONTEXT = (CUcontext)0x777;
static const CUmemoryPool POOL = (CUmemoryPool)0x888;
static const CUmodule MODULE = (CUmodule)0x999;
#define MEMORY (1ul << 30)

/* --- kernels --- */

typedef unsigned long long word;
typedef struct { unsigned value; } condition;
typedef struct { const char *name; int count; void (*run)(word *); } kernel;

static void add(word *w) {
    for (long i = 0; i < (long)w[3]; i++) ((float *)w[2])[i] = ((float *)w[0])[i] + ((float *)w[1])[i];
}
static void multiply(word *w) {
    for (long i = 0; i < (long)w[3]; i++) ((float *)w[2])[i] = ((float *)w[0])[i] * ((float *)w[1])[i];
}
static void scale(word *w) {
    for (long i = 0; i < (long)w[3]; i++) ((float *)w[1])[i] = ((float *)w[0])[i] * (float)(long)w[2];
}
static void count(word *w) { *(int *)w[0] += (int)w[1]; }
static void less(word *w) { *(char *)w[2] = *(int *)w[0] < *(int *)w[1]; }
static void set_pred(word *w) { ((condition *)w[0])->value = *(char *)w[1] != 0; }
static void set_index(word *w) {
    unsigned index = *(unsigned *)w[1], count = (unsigned)w[2];
    ((condition *)w[0])->value = index < count ? index : count - 1;
}

static kernel KERNELS[] = {
    {"add", 4, add}, {"multiply", 4, multiply}, {"scale", 4, scale}, {"count", 2, count}, {"less", 3, less},
    {"set_pred", 2, set_pred}, {"set_index", 3, set_index}, {0},
};

/* --- graphs --- */

typedef struct node {
    enum { KERNEL, COPY, FILL, CHOICE, CHILD } kind;
    kernel *kernel;
    word words[8];
    word target, source;
    size_t bytes;
    int value;
    condition *condition;
    CUgraphConditionalNodeType type;
    unsigned size;
    CUgraph bodies[8];
    CUgraph child;
    struct node *next;
} node;

struct CUgraph_st { node *first, *last; };
struct CUgraphExec_st { CUgraph graph; };
struct CUstream_st { CUgraph recording; };

static node *append(CUgraph graph, int kind) {
    node *made = calloc(1, sizeof *made);
    made->kind = kind;
    if (graph->last) graph->last->next = made;
    else graph->first = made;
    graph->last = made;
    return made;
}

/* The runtime builds chains: a node follows the last one, or is the first. */
static int follows(CUgraph graph, const CUgraphNode *after, size_t count) {
    return graph->last ? count == 1 && after[0] == (CUgraphNode)graph->last : count == 0;
}

static void run(CUgraph graph) {
    for (node *n = graph->first; n; n = n->next) switch (n->kind) {
        case KERNEL: n->kernel->run(n->words); break;
        case COPY: memmove((void *)n->target, (void *)n->source, n->bytes); break;
        case FILL: memset((void *)n->target, n->value, n->bytes); break;
        case CHILD: run(n->child); break;
        case CHOICE:
            if (n->type == CU_GRAPH_COND_TYPE_WHILE) while (n->condition->value) run(n->bodies[0]);
            else {
                unsigned chosen = n->type == CU_GRAPH_COND_TYPE_IF ? !n->condition->value : n->condition->value;
                if (chosen < n->size) run(n->bodies[chosen]);
            }
        }
}

static CUresult set_kernel(node *n, const CUDA_KERNEL_NODE_PARAMS *p) {
    unsigned threads = p->blockDimX * p->blockDimY * p->blockDimZ;
    CHECK(p->func && !p->extra && p->gridDimX && p->gridDimY && p->gridDimZ && threads && threads <= 1024);
    n->kernel = (kernel *)p->func;
    for (int i = 0; i < n->kernel->count; i++) n->words[i] = *(word *)p->kernelParams[i];
    DONE;
}

static CUresult set_copy(node *n, const CUDA_MEMCPY3D *p, CUcontext context) {
    CHECK(context == CONTEXT && p->Height == 1 && p->Depth == 1 && p->WidthInBytes && !p->srcXInBytes && !p->dstY);
    CHECK(p->srcMemoryType == CU_MEMORYTYPE_DEVICE && p->dstMemoryType == CU_MEMORYTYPE_DEVICE);
    n->target = p->dstDevice, n->source = p->srcDevice, n->bytes = p->WidthInBytes;
    DONE;
}

static CUresult set_fill(node *n, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context) {
    CHECK(context == CONTEXT && p->elementSize == 1 && p->height == 1 && p->width);
    n->target = p->dst, n->value = (int)p->value, n->bytes = p->width;
    DONE;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned flags) { *graph = calloc(1, sizeof **graph); DONE; }
CUresult cuGraphDestroy(CUgraph graph) { DONE; }

CUresult cuGraphAddKernelNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS *parameters) {
    node try;
    CUresult refused = set_kernel(&try, parameters);
    if (refused) return refused;
    CHECK(follows(graph, after, count));
    node *n = append(graph, KERNEL);
    *made = (CUgraphNode)n;
    return set_kernel(n, parameters);
}
CUresult cuGraphAddMemcpyNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                              const CUDA_MEMCPY3D *parameters, CUcontext context) {
    CHECK(follows(graph, after, count));
    node *n = append(graph, COPY);
    *made = (CUgraphNode)n;
    return set_copy(n, parameters, context);
}
CUresult cuGraphAddMemsetNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS *parameters, CUcontext context) {
    CHECK(follows(graph, after, count));
    node *n = append(graph, FILL);
    *made = (CUgraphNode)n;
    return set_fill(n, parameters, context);
}
CUresult cuGraphAddChildGraphNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, size_t count,
                                  CUgraph child) {
    CHECK(follows(graph, after, count) && child);
    node *n = append(graph, CHILD);
    n->child = child;
    *made = (CUgraphNode)n;
    DONE;
}
CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph, CUcontext context,
                                        unsigned value, unsigned flags) {
    CHECK(context == CONTEXT && !flags);
    *handle = (CUgraphConditionalHandle)calloc(1, sizeof(condition));
    DONE;
}
CUresult cuGraphAddNode(CUgraphNode *made, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges,
                        size_t count, CUgraphNodeParams *parameters) {
    CUDA_CONDITIONAL_NODE_PARAMS *p = &parameters->conditional;
    CHECK(!edges && parameters->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && p->ctx == CONTEXT && p->handle);
    CHECK(follows(graph, after, count) && p->size <= 8 && p->size >= 1);
    node *n = append(graph, CHOICE);
    n->condition = (condition *)p->handle, n->type = p->type, n->size = p->size;
    for (unsigned i = 0; i < p->size; i++) cuGraphCreate(&n->bodies[i], 0);
    p->phGraph_out = n->bodies; /* memory of the driver's, as with the real one */
    *made = (CUgraphNode)n;
    DONE;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags) {
    *made = malloc(sizeof **made);
    (*made)->graph = graph;
    DONE;
}
CUresult cuGraphExecDestroy(CUgraphExec executable) { free(executable); DONE; }
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) { CHECK(stream); run(executable->graph); DONE; }
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec executable, CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS *p) {
    return set_kernel((node *)n, p);
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode n, const CUDA_MEMCPY3D *p, CUcontext c) {
    return set_copy((node *)n, p, c);
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec executable, CUgraphNode n, const CUDA_MEMSET_NODE_PARAMS *p,
                                        CUcontext c) {
    return set_fill((node *)n, p, c);
}
CUresult cuGraphExecUpdate(CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo *result) {
    memset(result, 0, sizeof *result);
    executable->graph = graph;
    DONE;
}

/* --- streams and events --- */

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    CHECK(flags == CU_STREAM_NON_BLOCKING);
    *stream = calloc(1, sizeof **stream);
    DONE;
}
CUresult cuStreamDestroy(CUstream stream) { free(stream); DONE; }
CUresult cuStreamSynchronize(CUstream stream) { CHECK(stream); DONE; }
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) { CHECK(stream && event && !flags); DONE; }
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
    CHECK(mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && !stream->recording);
    return cuGraphCreate(&stream->recording, 0);
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    *graph = stream->recording, stream->recording = 0;
    DONE;
}
CUresult cuEventCreate(CUevent *event, unsigned flags) { *event = malloc(8); DONE; }
CUresult cuEventDestroy(CUevent event) { free(event); DONE; }
CUresult cuEventRecord(CUevent event, CUstream stream) { CHECK(event && stream); DONE; }
CUresult cuEventQuery(CUevent event) { CHECK(event); DONE; }
CUresult cuEventSynchronize(CUevent event) { CHECK(event); DONE; }
CUresult cuEventElapsedTime(float *milliseconds, CUevent first, CUevent last) { *milliseconds = 1.5; DONE; }

/* --- memory --- */

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *p) {
    CHECK(p->allocType == CU_MEM_ALLOCATION_TYPE_PINNED && p->handleTypes == CU_MEM_HANDLE_TYPE_NONE);
    CHECK(p->location.type == CU_MEM_LOCATION_TYPE_DEVICE && p->location.id == 0);
    *pool = POOL;
    DONE;
}
CUresult cuMemPoolDestroy(CUmemoryPool pool) { CHECK(pool == POOL); DONE; }
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    CHECK(attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && *(cuuint64_t *)value == MEMORY / 8);
    DONE;
}
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    *(cuuint64_t *)value = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? 3000 : 2000;
    DONE;
}
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes) { CHECK(pool == POOL); DONE; }
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream) {
    CHECK(pool == POOL && stream && bytes);
    if (bytes > MEMORY) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = (CUdeviceptr)malloc(bytes);
    DONE;
}
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) { free((void *)address); DONE; }
CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags) { *address = malloc(bytes); DONE; }
CUresult cuMemFreeHost(void *address) { free(address); DONE; }
CUresult cuMemGetInfo(size_t *free_bytes, size_t *total) { *free_bytes = MEMORY / 2, *total = MEMORY; DONE; }
CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
    if (stream->recording) {
        node *n = append(stream->recording, COPY);
        n->target = target, n->source = source, n->bytes = bytes;
    } else memmove((void *)target, (void *)source, bytes);
    DONE;
}
CUresult cuMemcpyPeerAsync(CUdeviceptr target, CUcontext target_context, CUdeviceptr source, CUcontext source_context,
                           size_t bytes, CUstream stream) {
    CHECK(target_context == CONTEXT && source_context == CONTEXT && stream);
    memmove((void *)target, (void *)source, bytes);
    DONE;
}
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice other) {
    CHECK(!device && other == 1);
    *can = 1;
    DONE;
}
CUresult cuCtxEnablePeerAccess(CUcontext context, unsigned flags) {
    CHECK(context == CONTEXT && !flags);
    return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count) {
    CHECK(pool == POOL && count == 1 && access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK(access->location.type == CU_MEM_LOCATION_TYPE_DEVICE && access->location.id == 1);
    DONE;
}
CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t bytes, CUstream stream) {
    if (stream->recording) {
        node *n = append(stream->recording, FILL);
        n->target = target, n->value = value, n->bytes = bytes;
    } else memset((void *)target, value, bytes);
    DONE;
}

/* --- machine code --- */

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    if (memcmp(image, "cubin", 5) && memcmp(image, "\177ELF", 4)) return CUDA_ERROR_INVALID_IMAGE;
    *module = MODULE;
    DONE;
}
CUresult cuModuleUnload(CUmodule module) { CHECK(module == MODULE); DONE; }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    for (kernel *k = KERNELS; k->name; k++)
        if (!strcmp(k->name, name)) {
            *function = (CUfunction)k;
            DONE;
        }
    return CUDA_ERROR_NOT_FOUND;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    *value = 0;
    if (attribute == CU_FUNC_ATTRIBUTE_NUM_REGS) *value = 40;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) *value = 1024;
    DONE;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    CHECK(attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    DONE;
}
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void **parameters, void **extra) {
    CUDA_KERNEL_NODE_PARAMS p = {.func = function, .gridDimX = gx, .gridDimY = gy, .gridDimZ = gz, .blockDimX = bx,
                                 .blockDimY = by, .blockDimZ = bz, .kernelParams = parameters, .extra = extra};
    node n;
    CUresult refused = set_kernel(&n, &p);
    if (!refused) n.kernel->run(n.words);
    return refused;
}

/* --- the driver and its devices --- */

CUresult cuInit(unsigned flags) { DONE; }
CUresult cuDriverGetVersion(int *version) { *version = 13000; DONE; }
CUresult cuGetErrorString(CUresult error, const char **text) { *text = "words of the stub"; DONE; }
CUresult cuDeviceGetCount(int *count) { *count = 1; DONE; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { CHECK(!ordinal); *device = 0; DONE; }
CUresult cuDeviceGetName(char *name, int length, CUdevice device) { snprintf(name, length, "Stub"); DONE; }
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) { *bytes = MEMORY; DONE; }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
        default: *value = 232448;
    }
    DONE;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) { *context = CONTEXT; DONE; }
CUresult cuDevicePrimaryCtxRelease(CUdevice device) { DONE; }
CUresult cuCtxSetCurrent(CUcontext context) { CHECK(context == CONTEXT); DONE; }
CUresult cuCtxSynchronize(void) { DONE; }

/* cuda-python asks for every function by its name without the version that the header's macros give it. */
#undef cuGetProcAddress
CUresult cuGetProcAddress_v2(const char *name, void **found, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    static const char *suffixes[] = {"_v4", "_v3", "_v2", "", "WithFlags"};
    void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    char full[256];
    *found = 0;
    for (int i = 0; i < 5 && !*found; i++) {
        snprintf(full, sizeof full, "%s%s", name, suffixes[i]);
        *found = dlsym(self, full);
    }
    if (status) *status = *found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
