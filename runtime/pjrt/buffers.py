"""Buffers: values on a device, and transfers."""

from __future__ import annotations

from hloom.runtime.pjrt.functions import c_function, error_helper, getter, helper

__all__ = ["FUNCTIONS"]

FUNCTIONS = (
    error_helper(
        "pjrt_error_deleted",
        "invalid argument",
        "hloom: the buffer has been deleted or donated; use the array that the call returned",
    ),
    error_helper("pjrt_error_lent", "failed precondition", "hloom: the buffer has no external reference to release"),
    error_helper("pjrt_error_range", "out of range", "hloom: the requested bytes are outside the buffer"),
    helper(
        "pjrt_no_memory",
        "client, size",
        "return call_function(load(client, CLIENT_PYTHON), ASK_NO_MEMORY, client, size)",
    ),
    # A buffer over a storage, of which it takes a reference over.
    helper(
        "pjrt_buffer",
        "memory, kind, ndims, dims, size, storage",
        """
        buffer = malloc(8 * (BUFFER_DIMS + 2 * ndims))
        store(buffer, BUFFER_CLIENT, load(memory, MEMORY_CLIENT))
        store(buffer, BUFFER_DEVICE, load(memory, MEMORY_DEVICE))
        store(buffer, BUFFER_MEMORY, memory)
        store(buffer, BUFFER_TYPE, kind)
        store(buffer, BUFFER_NDIMS, ndims)
        store(buffer, BUFFER_BYTES, size)
        store(buffer, BUFFER_STORAGE, storage)
        store(buffer, BUFFER_ORIGIN, storage)
        store(buffer, BUFFER_ADDRESS, load(storage, STORAGE_ADDRESS))
        store(buffer, BUFFER_EXTERNAL, 0)
        store(buffer, BUFFER_LOCK, 0)
        store(buffer, BUFFER_EVENT, 0)
        store(buffer, BUFFER_DELETED, 0)
        store(buffer, BUFFER_CALL, 0)
        for k in range(ndims):
            store(buffer, BUFFER_DIMS + k, load(dims, k))
            store(buffer, BUFFER_DIMS + ndims + k, ndims - 1 - k)
        return buffer
        """,
    ),
    # The storage of a buffer with a reference more; 0 of a deleted one.
    helper(
        "pjrt_hold",
        "buffer",
        """
        pjrt_lock(buffer + 8 * BUFFER_LOCK)
        storage = load(buffer, BUFFER_STORAGE)
        if storage != 0:
            atomic_add(storage, STORAGE_REFS, 1)
        pjrt_unlock(buffer + 8 * BUFFER_LOCK)
        return storage
        """,
    ),
    helper(
        "pjrt_delete",
        "buffer",
        """
        pjrt_lock(buffer + 8 * BUFFER_LOCK)
        storage = load(buffer, BUFFER_STORAGE)
        store(buffer, BUFFER_STORAGE, 0)
        store(buffer, BUFFER_DELETED, 1)
        pjrt_unlock(buffer + 8 * BUFFER_LOCK)
        if storage != 0:
            pjrt_release(storage)
        return 0
        """,
    ),
    getter("Buffer_ElementType", type="load(b, BUFFER_TYPE)"),
    getter("Buffer_Dimensions", dims="b + 8 * BUFFER_DIMS", num_dims="load(b, BUFFER_NDIMS)"),
    getter("Buffer_UnpaddedDimensions", dims="b + 8 * BUFFER_DIMS", num_dims="load(b, BUFFER_NDIMS)"),
    getter("Buffer_DynamicDimensionIndices", indices="b", num_indices="0"),
    getter("Buffer_OnDeviceSizeInBytes", size="load(b, BUFFER_BYTES)"),
    getter("Buffer_Device", device="load(b, BUFFER_DEVICE)"),
    getter("Buffer_Memory", memory="load(b, BUFFER_MEMORY)"),
    getter("Buffer_IsDeleted", is_deleted="load(b, BUFFER_DELETED)"),
    getter("Buffer_IsOnCpu", is_on_cpu="1"),
    getter(
        "Buffer_GetMemoryLayout",
        layout_size="8 * (LAYOUT_LAYOUT_TYPE + 1)", layout_extensions="0", tiled_size="56", tiled_extensions="0",
        minor_to_major="b + 8 * (BUFFER_DIMS + load(b, BUFFER_NDIMS))", minor_to_major_size="load(b, BUFFER_NDIMS)",
        tile_dims="0", tile_dim_sizes="0", num_tiles="0", layout_type="TILED",
    ),
    c_function("Buffer_Delete", "return pjrt_delete(load(a, A_BUFFER))"),
    helper(
        "pjrt_discard",
        "buffer",
        """
        if buffer == 0:
            return 0
        pjrt_delete(buffer)
        pjrt_event_drop(load(buffer, BUFFER_EVENT))
        free(buffer)
        return 0
        """,
    ),
    c_function("Buffer_Destroy", "return pjrt_discard(load(a, A_BUFFER))"),
    c_function(
        "Buffer_ReadyEvent",
        """
        buffer = load(a, A_BUFFER)
        if load(buffer, BUFFER_DELETED) != 0:
            return pjrt_error_deleted(0)
        event = load(buffer, BUFFER_EVENT)
        if event == 0:
            event = load(load(buffer, BUFFER_CLIENT), CLIENT_READY)
        else:
            atomic_add(event, EVENT_REFS, 1)
        store(a, A_EVENT, event)
        return 0
        """,
    ),
    *(
        c_function(
            name,
            """
            buffer = load(a, A_BUFFER)
            if load(buffer, BUFFER_DELETED) != 0:
                return pjrt_error_deleted(0)
            if load(buffer, BUFFER_EVENT) != 0:
                error = pjrt_event_wait(load(buffer, BUFFER_EVENT))
                if error != 0:
                    return pjrt_error_copy(error)
            store(a, A_POINTER, load(buffer, BUFFER_ADDRESS))
            return 0
            """,
        )
        for name in ("Buffer_UnsafePointer", "Buffer_OpaqueDeviceMemoryDataPointer")
    ),
    # External references to the memory hold its storage, which a donation then does not reuse.
    c_function(
        "Buffer_IncreaseExternalReferenceCount",
        """
        buffer = load(a, A_BUFFER)
        if load(buffer, BUFFER_EVENT) != 0:
            error = pjrt_event_wait(load(buffer, BUFFER_EVENT))
            if error != 0:
                return pjrt_error_copy(error)
        if pjrt_hold(buffer) == 0:
            return pjrt_error_deleted(0)
        atomic_add(buffer, BUFFER_EXTERNAL, 1)
        return 0
        """,
    ),
    c_function(
        "Buffer_DecreaseExternalReferenceCount",
        """
        buffer = load(a, A_BUFFER)
        if atomic_add(buffer, BUFFER_EXTERNAL, -1) <= 0:
            atomic_add(buffer, BUFFER_EXTERNAL, 1)
            return pjrt_error_lent(0)
        return pjrt_release(load(buffer, BUFFER_ORIGIN))
        """,
    ),
    # Values do not change, so a copy shares the memory; a donation of either then copies.
    helper(
        "pjrt_share",
        "buffer, memory, result",
        """
        storage = pjrt_hold(buffer)
        if storage == 0:
            return pjrt_error_deleted(0)
        event = load(buffer, BUFFER_EVENT)
        made = pjrt_buffer(
            memory, load(buffer, BUFFER_TYPE), load(buffer, BUFFER_NDIMS), buffer + 8 * BUFFER_DIMS,
            load(buffer, BUFFER_BYTES), storage,
        )
        if event != 0:
            atomic_add(event, EVENT_REFS, 1)
            store(made, BUFFER_EVENT, event)
        store(result, 0, made)
        return 0
        """,
    ),
    c_function(
        "Buffer_CopyToDevice",
        "return pjrt_share(load(a, A_BUFFER), load(load(a, A_DEVICE), DEVICE_MEMORY), a + 8 * A_COPY)",
    ),
    c_function("Buffer_CopyToMemory", "return pjrt_share(load(a, A_BUFFER), load(a, A_MEMORY), a + 8 * A_COPY)"),
    c_function(
        "Buffer_CopyRawToHost",
        """
        buffer = load(a, A_BUFFER)
        size = load(a, A_SIZE)
        start = load(a, A_OFFSET)
        if start < 0 or size < 0 or start + size > load(buffer, BUFFER_BYTES):
            return pjrt_error_range(0)
        storage = pjrt_hold(buffer)
        if storage == 0:
            return pjrt_error_deleted(0)
        if load(buffer, BUFFER_EVENT) != 0:
            error = pjrt_event_wait(load(buffer, BUFFER_EVENT))
            if error != 0:
                pjrt_release(storage)
                return pjrt_error_copy(error)
        copy_bytes(load(a, A_TARGET), load(buffer, BUFFER_ADDRESS) + start, size)
        pjrt_release(storage)
        store(a, A_EVENT, load(load(buffer, BUFFER_CLIENT), CLIENT_READY))
        return 0
        """,
    ),
    # 1 where a layout is the buffers' own: dense, the last dimension contiguous.
    helper(
        "pjrt_is_dense",
        "layout, ndims",
        """
        if layout == 0:
            return 1
        if load(layout, LAYOUT_LAYOUT_TYPE) & 0xffffffff != TILED or load(layout, LAYOUT_NUM_TILES) != 0:
            return 0
        if load(layout, LAYOUT_MINOR_TO_MAJOR_SIZE) != ndims:
            return 0
        order = load(layout, LAYOUT_MINOR_TO_MAJOR)
        for k in range(ndims):
            if load(order, k) != ndims - 1 - k:
                return 0
        return 1
        """,
    ),
    c_function(
        "Buffer_ToHostBuffer",
        """
        buffer = load(a, A_BUFFER)
        size = load(buffer, BUFFER_BYTES)
        target = load(a, A_TARGET)
        if target == 0:
            store(a, A_TARGET_SIZE, size)
            return 0
        if load(a, A_TARGET_SIZE) < size:
            return pjrt_error_range(0)
        storage = pjrt_hold(buffer)
        if storage == 0:
            return pjrt_error_deleted(0)
        error = 0
        if load(buffer, BUFFER_EVENT) != 0:
            error = pjrt_error_copy(pjrt_event_wait(load(buffer, BUFFER_EVENT)))
        client = load(buffer, BUFFER_CLIENT)
        if error == 0:
            if pjrt_is_dense(load(a, A_HOST_LAYOUT), load(buffer, BUFFER_NDIMS)) != 0:
                copy_bytes(target, load(buffer, BUFFER_ADDRESS), size)
            else:
                error = call_function(load(client, CLIENT_PYTHON), ASK_TO_HOST, a, 0)
        pjrt_release(storage)
        store(a, A_EVENT, load(client, CLIENT_READY))
        return error
        """,
    ),
    # 1 where the strides of an array are those of a dense one.
    helper(
        "pjrt_strides_are_dense",
        "dims, ndims, strides, count, size",
        """
        if count == 0:
            return 1
        expected = size
        for j in range(ndims):
            k = ndims - 1 - j
            if load(dims, k) != 1 and load(strides, k) != expected:
                return 0
            expected *= load(dims, k)
        return 1
        """,
    ),
    helper(
        "pjrt_memory_of",
        "client, device, memory",
        """
        if memory != 0:
            return memory
        if device != 0:
            return load(device, DEVICE_MEMORY)
        return load(load(client, CLIENT_MEMORIES), 0)
        """,
    ),
    # Bytes of an element; 0 for a type that hloom lacks.
    helper(
        "pjrt_element_bytes",
        "client, kind",
        """
        if kind < 32:
            return load(load(client, CLIENT_TYPE_SIZES), kind)
        return 0
        """,
    ),
    helper(
        "pjrt_elements",
        "ndims, dims",
        """
        count = 1
        for k in range(ndims):
            count *= load(dims, k)
        return count
        """,
    ),
    c_function(
        "Client_BufferFromHostBuffer",
        """
        client = load(a, A_CLIENT)
        kind = load(a, A_TYPE) & 0xffffffff
        ndims = load(a, A_NUM_DIMS)
        dims = load(a, A_DIMS)
        size = pjrt_element_bytes(client, kind)
        if size == 0:
            return call_function(load(client, CLIENT_PYTHON), ASK_FROM_HOST, a, 0)
        total = size * pjrt_elements(ndims, dims)
        memory = pjrt_memory_of(client, load(a, A_DEVICE), load(a, A_MEMORY))
        data = load(a, A_DATA)
        semantics = load(a, A_SEMANTICS) & 0xffffffff
        dense = pjrt_strides_are_dense(dims, ndims, load(a, A_BYTE_STRIDES), load(a, A_NUM_BYTE_STRIDES), size)
        done = load(client, CLIENT_READY)
        # Memory that another owns is taken as it is where that pays and kernels can read it.
        if semantics >= IMMUTABLE_ZERO_COPY and dense != 0 and total >= 4096 and data & 15 == 0:
            done = pjrt_event(2)
            storage = pjrt_foreign(client, data, total, LENT, done, 0)
        else:
            storage = pjrt_storage(client, total)
            if storage == 0:
                return pjrt_no_memory(client, total)
            if dense != 0:
                copy_bytes(load(storage, STORAGE_ADDRESS), data, total)
            else:
                error = call_function(
                    load(client, CLIENT_PYTHON), ASK_FROM_HOST, a, load(storage, STORAGE_ADDRESS)
                )
                if error != 0:
                    pjrt_release(storage)
                    return error
        store(a, A_BUFFER, pjrt_buffer(memory, kind, ndims, dims, total, storage))
        store(a, A_DONE_WITH_HOST_BUFFER, done)
        return 0
        """,
    ),
    c_function(
        "Client_CreateViewOfDeviceBuffer",
        """
        client = load(a, A_CLIENT)
        kind = load(a, A_ELEMENT_TYPE) & 0xffffffff
        ndims = load(a, A_NUM_DIMS)
        dims = load(a, A_DIMS)
        size = pjrt_element_bytes(client, kind)
        if size == 0 or pjrt_is_dense(load(a, A_LAYOUT), ndims) == 0:
            return call_function(load(client, CLIENT_PYTHON), ASK_FROM_HOST, 0, kind)
        size *= pjrt_elements(ndims, dims)
        storage = pjrt_foreign(
            client, load(a, A_DEVICE_BUFFER), size, VIEWED, load(a, A_ON_DELETE), load(a, A_ON_DELETE_ARG)
        )
        memory = pjrt_memory_of(client, load(a, A_DEVICE), load(a, A_MEMORY))
        store(a, A_BUFFER, pjrt_buffer(memory, kind, ndims, dims, size, storage))
        return 0
        """,
    ),
    c_function(
        "Client_CreateUninitializedBuffer",
        """
        client = load(a, A_CLIENT)
        kind = load(a, A_SHAPE_ELEMENT_TYPE) & 0xffffffff
        ndims = load(a, A_SHAPE_NUM_DIMS)
        dims = load(a, A_SHAPE_DIMS)
        size = pjrt_element_bytes(client, kind)
        if size == 0 or pjrt_is_dense(load(a, A_SHAPE_LAYOUT), ndims) == 0:
            return call_function(load(client, CLIENT_PYTHON), ASK_FROM_HOST, 0, kind)
        size *= pjrt_elements(ndims, dims)
        storage = pjrt_storage(client, size)
        if storage == 0:
            return pjrt_no_memory(client, size)
        memory = pjrt_memory_of(client, load(a, A_DEVICE), load(a, A_MEMORY))
        store(a, A_BUFFER, pjrt_buffer(memory, kind, ndims, dims, size, storage))
        return 0
        """,
    ),
)  # fmt: skip
