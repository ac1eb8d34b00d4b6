"""Calls of programs for several devices: parts of arguments become whole arrays, whole results parts.

A program runs once, on whole arrays. Parts that lie in one memory, in their order, as those of results do, are read
where they are.
"""

from __future__ import annotations

from hloom.runtime.pjrt.functions import helper

__all__ = ["FUNCTIONS"]

FUNCTIONS = (
    # Copies the part of a device into the whole array (joins: 1), or out of it.
    helper(
        "pjrt_copy_part",
        "row, device, whole, part, joins",
        """
        size = load(row, SPREAD_RUN_BYTES)
        rank = load(row, SPREAD_RANK)
        dims = load(row, SPREAD_DIMS)
        steps = load(row, SPREAD_STEPS)
        begin = whole + load(load(row, SPREAD_BEGIN), device)
        for run in range(load(row, SPREAD_RUNS)):
            at = begin
            left = run
            for j in range(rank):
                k = rank - 1 - j
                at += left % load(dims, k) * load(steps, k)
                left = left // load(dims, k)
            if joins != 0:
                copy_bytes(at, part + run * size, size)
            else:
                copy_bytes(part + run * size, at, size)
        return 0
        """,
    ),
    # Whether the parts lie in one memory, each where it belongs in the whole array.
    helper(
        "pjrt_lies_whole",
        "row, lists, number, devices",
        """
        if load(row, SPREAD_DENSE) == 0:
            return 0
        begin = load(row, SPREAD_BEGIN)
        first = load(load(lists, 0), number)
        for device in range(1, devices):
            buffer = load(load(lists, device), number)
            if load(buffer, BUFFER_ORIGIN) != load(first, BUFFER_ORIGIN):
                return 0
            if load(buffer, BUFFER_ADDRESS) - load(begin, device) != load(first, BUFFER_ADDRESS) - load(begin, 0):
                return 0
        return 1
        """,
    ),
    # Waits for an argument on all devices and looks at its size. Returns an error or 0.
    helper(
        "pjrt_check_parts",
        "executable, row, lists, number, size",
        """
        for device in range(load(executable, EXECUTABLE_DEVICE_COUNT)):
            buffer = load(load(lists, device), number)
            if load(buffer, BUFFER_DELETED) != 0:
                return pjrt_error_deleted(0)
            if load(buffer, BUFFER_EVENT) != 0:
                error = pjrt_event_wait(load(buffer, BUFFER_EVENT))
                if error != 0:
                    return pjrt_error_copy(error)
            if load(buffer, BUFFER_BYTES) != size:
                python = load(load(executable, EXECUTABLE_CLIENT), CLIENT_PYTHON)
                return call_function(python, ASK_MISMATCH, executable, number)
        return 0
        """,
    ),
    # The memory of a whole argument, which the caller holds, and its address in a slot; 0: a part is deleted, or out of
    # memory.
    helper(
        "pjrt_join",
        "executable, row, lists, number, size, slot",
        """
        devices = load(executable, EXECUTABLE_DEVICE_COUNT)
        first = load(load(lists, 0), number)
        if load(row, SPREAD_WHOLE) != 0 or pjrt_lies_whole(row, lists, number, devices) != 0:
            store(slot, 0, load(first, BUFFER_ADDRESS) - load(load(row, SPREAD_BEGIN), 0))
            return pjrt_hold(first)
        storage = pjrt_storage(load(executable, EXECUTABLE_CLIENT), size)
        if storage == 0:
            return 0
        whole = load(storage, STORAGE_ADDRESS)
        for device in range(devices):
            if load(load(row, SPREAD_FIRST), device) != 0:
                buffer = load(load(lists, device), number)
                part = pjrt_hold(buffer)
                if part == 0:
                    pjrt_release(storage)
                    return 0
                pjrt_copy_part(row, device, whole, load(buffer, BUFFER_ADDRESS), 1)
                pjrt_release(part)
        store(slot, 0, whole)
        return storage
        """,
    ),
    # As `pjrt_hold_inputs`, for a program for several devices.
    helper(
        "pjrt_join_inputs",
        "executable, frame, lists",
        """
        held = load(frame, FRAME_HELD)
        alone = load(frame, FRAME_ALONE)
        slots = load(load(frame, FRAME_BLOCK), BLOCK_SLOTS)
        sizes = load(executable, EXECUTABLE_INPUTS)
        for k in range(load(executable, EXECUTABLE_INPUT_COUNT)):
            row = load(executable, EXECUTABLE_SPREAD) + 8 * SPREAD_WORDS * k
            error = pjrt_check_parts(executable, row, lists, k, load(row, SPREAD_BYTES))
            storage = 0
            if error == 0:
                storage = pjrt_join(executable, row, lists, k, load(sizes, k), slots + 8 * k)
                if storage == 0:
                    error = pjrt_no_memory(load(executable, EXECUTABLE_CLIENT), load(sizes, k))
            if error != 0:
                pjrt_release_all(held, k)
                return error
            store(held, k, storage)
            refs = 1
            for device in range(load(executable, EXECUTABLE_DEVICE_COUNT)):
                if load(load(load(lists, device), k), BUFFER_STORAGE) == storage:
                    refs += 1
            store(alone, k, refs)
        return 0
        """,
    ),
    # The buffer of a device of a result: of the whole memory, of a view of it, or of a copy. 0: out of memory.
    helper(
        "pjrt_part",
        "executable, out, row, device, storage",
        """
        place = load(load(executable, EXECUTABLE_DEVICES), device)
        memory = load(load(place, DEVICE_MEMORIES), load(out, OUT_MEMORY))
        begin = load(load(row, SPREAD_BEGIN), device)
        part = storage
        if load(row, SPREAD_DENSE) == 0:
            part = pjrt_storage(load(executable, EXECUTABLE_CLIENT), load(row, SPREAD_BYTES))
            if part == 0:
                return 0
            pjrt_copy_part(row, device, load(storage, STORAGE_ADDRESS), load(part, STORAGE_ADDRESS), 0)
            begin = 0
        else:
            atomic_add(storage, STORAGE_REFS, 1)
        buffer = pjrt_buffer(
            memory, load(out, OUT_TYPE), load(out, OUT_NDIMS), load(row, SPREAD_LOCAL), load(row, SPREAD_BYTES), part
        )
        store(buffer, BUFFER_ADDRESS, load(part, STORAGE_ADDRESS) + begin)
        return buffer
        """,
    ),
    # Buffers for the results of all devices. Returns an error or 0.
    helper(
        "pjrt_hand_out",
        "executable, held, lists",
        """
        inputs = load(executable, EXECUTABLE_INPUT_COUNT)
        devices = load(executable, EXECUTABLE_DEVICE_COUNT)
        for k in range(load(executable, EXECUTABLE_OUTPUT_COUNT)):
            out = load(executable, EXECUTABLE_OUTPUTS) + 8 * OUT_WORDS * k
            row = load(executable, EXECUTABLE_SPREAD) + 8 * SPREAD_WORDS * (inputs + k)
            for device in range(devices):
                buffer = pjrt_part(executable, out, row, device, load(held, k))
                if buffer == 0:
                    for other in range(devices):
                        made = k
                        if other < device:
                            made += 1
                        for j in range(made):
                            pjrt_discard(load(load(lists, other), j))
                    return pjrt_no_memory(load(executable, EXECUTABLE_CLIENT), load(row, SPREAD_BYTES))
                store(load(lists, device), k, buffer)
        return 0
        """,
    ),
    # As `pjrt_finish`, for a program for several devices.
    helper(
        "pjrt_finish_spread",
        "executable, frame, arguments, error",
        """
        inputs = load(executable, EXECUTABLE_INPUT_COUNT)
        outputs = load(executable, EXECUTABLE_OUTPUT_COUNT)
        held = load(frame, FRAME_HELD)
        pjrt_release_all(held, inputs)
        if error == 0:
            error = pjrt_hand_out(executable, held + 8 * inputs, load(arguments, EXECUTE_OUTPUT_LISTS))
        pjrt_release_all(held + 8 * inputs, outputs)
        if error != 0:
            return error
        donated = load(executable, EXECUTABLE_DONATED)
        for k in range(load(executable, EXECUTABLE_DONATED_COUNT)):
            number = load(donated, k)
            if pjrt_is_kept(load(arguments, EXECUTE_OPTIONS), number) == 0:
                for device in range(load(executable, EXECUTABLE_DEVICE_COUNT)):
                    pjrt_delete(load(load(load(arguments, EXECUTE_ARGUMENT_LISTS), device), number))
        return 0
        """,
    ),
)
