"""Executables, and calls of them: without Python, but for a call's first frame and for steps that are Python's."""

from __future__ import annotations

from hloom.runtime.pjrt.functions import c_function, error_helper, getter, helper

__all__ = ["FUNCTIONS"]

_FINGERPRINT = {
    "fingerprint": "load(b, EXECUTABLE_FINGERPRINT)",
    "fingerprint_size": "load(b, EXECUTABLE_FINGERPRINT_SIZE)",
}

FUNCTIONS = (
    error_helper("pjrt_error_unloaded", "failed precondition", "hloom: the executable has been deleted"),
    # Gives a reference of an executable back. Python forgets it at the next compilation.
    helper(
        "pjrt_executable_drop",
        "executable",
        """
        if executable == 0 or atomic_add(executable, EXECUTABLE_REFS, -1) != 1:
            return 0
        client = load(executable, EXECUTABLE_CLIENT)
        pjrt_lock(client + 8 * CLIENT_LOCK)
        store(executable, EXECUTABLE_NEXT, load(client, CLIENT_GARBAGE))
        store(client, CLIENT_GARBAGE, executable)
        pjrt_unlock(client + 8 * CLIENT_LOCK)
        return 0
        """,
    ),
    helper(
        "pjrt_take_garbage",
        "client",
        """
        pjrt_lock(client + 8 * CLIENT_LOCK)
        found = load(client, CLIENT_GARBAGE)
        store(client, CLIENT_GARBAGE, 0)
        pjrt_unlock(client + 8 * CLIENT_LOCK)
        return found
        """,
        exported=True,
    ),
    c_function("Executable_Destroy", "return pjrt_executable_drop(load(a, A_EXECUTABLE))"),
    c_function("LoadedExecutable_Destroy", "return pjrt_executable_drop(load(a, A_EXECUTABLE))"),
    c_function(
        "LoadedExecutable_GetExecutable",
        """
        executable = load(a, A_LOADED)
        atomic_add(executable, EXECUTABLE_REFS, 1)
        store(a, A_EXECUTABLE, executable)
        return 0
        """,
    ),
    c_function("LoadedExecutable_Delete", "store(load(a, A_EXECUTABLE), EXECUTABLE_DELETED, 1)\nreturn 0"),
    getter("LoadedExecutable_IsDeleted", is_deleted="load(b, EXECUTABLE_DELETED)"),
    getter("Executable_Name", name="load(b, EXECUTABLE_NAME)", name_size="load(b, EXECUTABLE_NAME_SIZE)"),
    getter("Executable_NumReplicas", num_replicas="load(b, EXECUTABLE_REPLICAS)"),
    getter("Executable_NumPartitions", num_partitions="load(b, EXECUTABLE_PARTITIONS)"),
    getter("Executable_NumOutputs", num_outputs="load(b, EXECUTABLE_OUTPUT_COUNT)"),
    getter("Executable_SizeOfGeneratedCodeInBytes", size="load(b, EXECUTABLE_CODE_BYTES)"),
    getter("Executable_Fingerprint", **_FINGERPRINT),
    getter("LoadedExecutable_Fingerprint", **_FINGERPRINT),
    getter(
        "Executable_OutputElementTypes",
        types="load(b, EXECUTABLE_TYPES)",
        num_types="load(b, EXECUTABLE_OUTPUT_COUNT)",
    ),
    getter(
        "Executable_OutputDimensions",
        num_outputs="load(b, EXECUTABLE_OUTPUT_COUNT)",
        dims="load(b, EXECUTABLE_DIMS)",
        dim_sizes="load(b, EXECUTABLE_DIM_SIZES)",
    ),
    getter(
        "Executable_OutputMemoryKinds",
        num_outputs="load(b, EXECUTABLE_OUTPUT_COUNT)",
        kinds="load(b, EXECUTABLE_KINDS)",
        kind_sizes="load(b, EXECUTABLE_KIND_SIZES)",
    ),
    getter(
        "Executable_GetCompiledMemoryStats",
        code="load(b, EXECUTABLE_CODE_BYTES)",
        arguments="load(b, EXECUTABLE_ARGUMENT_BYTES)",
        outputs="load(b, EXECUTABLE_OUTPUT_BYTES)",
        alias="load(b, EXECUTABLE_ALIAS_BYTES)",
        temporaries="load(b, EXECUTABLE_TEMPORARY_BYTES)",
        host_code="0",
        host_arguments="0",
        host_outputs="0",
        host_alias="0",
        host_temporaries="0",
    ),
    getter(
        "LoadedExecutable_AddressableDevices",
        devices="load(b, EXECUTABLE_DEVICES)",
        num_devices="load(b, EXECUTABLE_DEVICE_COUNT)",
    ),
    # An idle frame of an executable, busy from now on; negative: an error.
    helper(
        "pjrt_frame",
        "executable",
        """
        frame = atomic_load(executable, EXECUTABLE_FRAMES)
        while frame != 0:
            if compare_exchange(load(frame, FRAME_BLOCK), BLOCK_BUSY, 0, 1):
                return frame
            frame = load(frame, FRAME_NEXT)
        python = load(load(executable, EXECUTABLE_CLIENT), CLIENT_PYTHON)
        return call_function(python, ASK_FRAME, executable, 0)
        """,
    ),
    # Puts the addresses of a device's inputs into a frame, from a slot on, and holds their memory. An error or 0.
    helper(
        "pjrt_hold_inputs",
        "executable, frame, inputs, base",
        """
        held = load(frame, FRAME_HELD) + 8 * base
        slots = load(load(frame, FRAME_BLOCK), BLOCK_SLOTS) + 8 * base
        sizes = load(executable, EXECUTABLE_INPUTS)
        count = load(executable, EXECUTABLE_INPUT_COUNT)
        for k in range(count):
            buffer = load(inputs, k)
            storage = pjrt_hold(buffer)
            error = 0
            if storage == 0:
                error = pjrt_error_deleted(0)
            elif load(buffer, BUFFER_EVENT) != 0:
                error = pjrt_error_copy(pjrt_event_wait(load(buffer, BUFFER_EVENT)))
            if error == 0 and load(buffer, BUFFER_BYTES) != load(sizes, k):
                python = load(load(executable, EXECUTABLE_CLIENT), CLIENT_PYTHON)
                error = call_function(python, ASK_MISMATCH, executable, k)
            if error != 0:
                if storage != 0:
                    pjrt_release(storage)
                pjrt_release_all(held, k)
                return error
            store(held, k, storage)
            store(slots, k, load(buffer, BUFFER_ADDRESS))
        return 0
        """,
    ),
    # Gives the memory of all inputs back, and that of this many outputs, counted device by device.
    helper(
        "pjrt_release_frame",
        "executable, frame, outputs",
        """
        inputs = load(executable, EXECUTABLE_INPUT_COUNT)
        each = load(executable, EXECUTABLE_OUTPUT_COUNT)
        for device in range(load(executable, EXECUTABLE_DEVICE_COUNT)):
            held = load(frame, FRAME_HELD) + 8 * device * (inputs + each)
            pjrt_release_all(held, inputs)
            made = max(outputs - device * each, 0)
            if made > each:
                made = each
            pjrt_release_all(held + 8 * inputs, made)
        return 0
        """,
    ),
    # Whether a caller keeps an input that the program could consume.
    helper(
        "pjrt_is_kept",
        "options, number",
        """
        if options == 0:
            return 0
        kept = load(options, OPTIONS_KEPT)
        for k in range(load(options, OPTIONS_KEPT_COUNT)):
            if load(kept, k) == number:
                return 1
        return 0
        """,
    ),
    # Refuses a buffer that a call consumes and is given again: its mark is the call's. Returns an error or 0.
    helper(
        "pjrt_check_donated",
        "executable, arguments",
        """
        count = load(executable, EXECUTABLE_INPUT_COUNT)
        donated = load(executable, EXECUTABLE_DONATED)
        options = load(arguments, EXECUTE_OPTIONS)
        if load(executable, EXECUTABLE_DONATED_COUNT) == 0 or count == 0:
            return 0
        twice = -1
        for device in range(load(executable, EXECUTABLE_DEVICE_COUNT)):
            inputs = load(load(arguments, EXECUTE_ARGUMENT_LISTS), device)
            more = 0
            for k in range(load(executable, EXECUTABLE_DONATED_COUNT)):
                if pjrt_is_kept(options, load(donated, k)) == 0:
                    buffer = load(inputs, load(donated, k))
                    if load(buffer, BUFFER_CALL) == arguments:
                        twice = load(donated, k)
                    store(buffer, BUFFER_CALL, arguments)
                    more -= 1
            for k in range(count):
                if load(load(inputs, k), BUFFER_CALL) == arguments:
                    more += 1
            if more > 0:
                for k in range(count):
                    for j in range(k):
                        if load(inputs, j) == load(inputs, k) and load(load(inputs, k), BUFFER_CALL) == arguments:
                            twice = k
            for k in range(load(executable, EXECUTABLE_DONATED_COUNT)):
                store(load(inputs, load(donated, k)), BUFFER_CALL, 0)
        if twice >= 0:
            python = load(load(executable, EXECUTABLE_CLIENT), CLIENT_PYTHON)
            return call_function(python, ASK_TWICE, executable, twice)
        return 0
        """,
    ),
    # The memory of an output of the device whose slots begin at `base`: new, or that of a consumed input to which only
    # its buffer and this call refer. An input that cannot be consumed is copied, as the program overwrites its input.
    # 0: out of memory.
    helper(
        "pjrt_output",
        "executable, frame, row, options, base",
        """
        size = load(row, OUT_BYTES)
        donor = load(row, OUT_DONOR)
        client = load(executable, EXECUTABLE_CLIENT)
        if donor < 0:
            return pjrt_storage(client, size)
        given = load(load(frame, FRAME_HELD), base + donor)
        slots = load(load(frame, FRAME_BLOCK), BLOCK_SLOTS) + 8 * base
        if (
            load(given, STORAGE_KIND) == OWNED
            and atomic_load(given, STORAGE_REFS) == 2
            and load(given, STORAGE_ADDRESS) == load(slots, donor)
            and pjrt_is_kept(options, donor) == 0
        ):
            atomic_add(given, STORAGE_REFS, 1)
            return given
        storage = pjrt_storage(client, size)
        if storage != 0:
            copy_bytes(load(storage, STORAGE_ADDRESS), load(slots, donor), size)
            store(slots, donor, load(storage, STORAGE_ADDRESS))
        return storage
        """,
    ),
    helper(
        "pjrt_take_outputs",
        "executable, frame, options",
        """
        count = load(executable, EXECUTABLE_OUTPUT_COUNT)
        given = load(executable, EXECUTABLE_INPUT_COUNT)
        for device in range(load(executable, EXECUTABLE_DEVICE_COUNT)):
            base = device * (given + count)
            held = load(frame, FRAME_HELD) + 8 * base
            slots = load(load(frame, FRAME_BLOCK), BLOCK_SLOTS) + 8 * base
            for k in range(count):
                row = load(executable, EXECUTABLE_OUTPUTS) + 8 * OUT_WORDS * k
                storage = pjrt_output(executable, frame, row, options, base)
                if storage == 0:
                    pjrt_release_frame(executable, frame, device * count + k)
                    return pjrt_no_memory(load(executable, EXECUTABLE_CLIENT), load(row, OUT_BYTES))
                store(held, given + k, storage)
                store(slots, given + k, load(storage, STORAGE_ADDRESS))
        return 0
        """,
    ),
    helper(
        "pjrt_start_workers",
        "executable",
        """
        if load(executable, EXECUTABLE_PARALLEL) != 0:
            pool = load(load(executable, EXECUTABLE_STATE), STATE_POOL)
            if load(pool, POOL_STARTED) == 0 and load(pool, POOL_THREADS) > 1:
                python = load(load(executable, EXECUTABLE_CLIENT), CLIENT_PYTHON)
                return call_function(python, ASK_START, executable, 0)
        return 0
        """,
    ),
    # Records the duration of a call: a running mean, in which the last call has weight 1/4.
    helper(
        "pjrt_note_time",
        "executable, frame",
        """
        clock_gettime(CLOCK, frame + 8 * FRAME_END)
        taken = (load(frame, FRAME_END) - load(frame, FRAME_BEGIN)) * 1000000000
        taken += load(frame, FRAME_END_REST) - load(frame, FRAME_BEGIN_REST)
        before = load(executable, EXECUTABLE_NANOSECONDS)
        if before != 0:
            taken = before + (taken - before) // 4
        store(executable, EXECUTABLE_NANOSECONDS, max(taken, 1))
        return 0
        """,
    ),
    # Runs a frame, for which threads have been started. Returns the error of a Python step.
    helper(
        "pjrt_run",
        "executable, frame",
        """
        client = load(executable, EXECUTABLE_CLIENT)
        pool = load(load(executable, EXECUTABLE_STATE), STATE_POOL)
        block = load(frame, FRAME_BLOCK)
        clock_gettime(CLOCK, frame + 8 * FRAME_BEGIN)
        hloom_run(
            pool, load(block, BLOCK_STEPS), load(block, BLOCK_STEP_COUNT), load(block, BLOCK_RELOCATIONS),
            load(block, BLOCK_RELOCATION_COUNT), load(block, BLOCK_ARGS), load(block, BLOCK_SLOTS), 0,
        )
        pjrt_note_time(executable, frame)
        stopped = 0
        if load_byte(load(frame, FRAME_STATE)) == 0:
            stopped = 1
        if load(frame, FRAME_STOP) != 0:
            if load(load(frame, FRAME_STOP), 0) != 0:
                stopped = 1
        for device in range(load(executable, EXECUTABLE_DEVICE_COUNT)):
            if load_byte(load(frame, FRAME_DONE) + 2 * device) == 0:
                stopped = 1
        if stopped != 0:
            return call_function(load(client, CLIENT_PYTHON), ASK_RAISED, executable, frame)
        return 0
        """,
    ),
    # Ends a call: buffers for the outputs, unless there was an error; inputs are released and consumed.
    helper(
        "pjrt_finish",
        "executable, frame, arguments, error",
        """
        inputs = load(executable, EXECUTABLE_INPUT_COUNT)
        outputs = load(executable, EXECUTABLE_OUTPUT_COUNT)
        devices = load(executable, EXECUTABLE_DEVICE_COUNT)
        if error != 0:
            pjrt_release_frame(executable, frame, devices * outputs)
            return error
        pjrt_release_frame(executable, frame, 0)
        for device in range(devices):
            held = load(frame, FRAME_HELD) + 8 * (device * (inputs + outputs) + inputs)
            pjrt_give_out(executable, arguments, held, 0, device)
        return 0
        """,
    ),
    # Buffers for the outputs of a device (its index in the program's list), which wait for an event (0: for none); its
    # inputs are consumed.
    helper(
        "pjrt_give_out",
        "executable, arguments, held, event, number",
        """
        outputs = load(executable, EXECUTABLE_OUTPUT_COUNT)
        options = load(arguments, EXECUTE_OPTIONS)
        given = 0
        if load(executable, EXECUTABLE_INPUT_COUNT) != 0:
            given = load(load(arguments, EXECUTE_ARGUMENT_LISTS), number)
        made = 0
        if outputs != 0:
            made = load(load(arguments, EXECUTE_OUTPUT_LISTS), number)
        device = load(arguments, EXECUTE_EXECUTE_DEVICE)
        if device == 0:
            device = load(load(executable, EXECUTABLE_DEVICES), number)
        memories = load(device, DEVICE_MEMORIES)
        for k in range(outputs):
            row = load(executable, EXECUTABLE_OUTPUTS) + 8 * OUT_WORDS * k
            memory = load(memories, load(row, OUT_MEMORY))
            buffer = pjrt_buffer(
                memory, load(row, OUT_TYPE), load(row, OUT_NDIMS), load(row, OUT_DIMS), load(row, OUT_BYTES),
                load(held, k),
            )
            if event != 0:
                atomic_add(load(held, k), STORAGE_REFS, 1)
                store(buffer, BUFFER_EVENT, event)
            store(made, k, buffer)
        donated = load(executable, EXECUTABLE_DONATED)
        for k in range(load(executable, EXECUTABLE_DONATED_COUNT)):
            consumed = load(donated, k)
            if pjrt_is_kept(options, consumed) == 0:
                pjrt_delete(load(given, consumed))
        return 0
        """,
    ),
    helper(
        "pjrt_take_inputs",
        "executable, frame, arguments",
        """
        count = load(executable, EXECUTABLE_INPUT_COUNT)
        if count == 0:
            return 0
        lists = load(arguments, EXECUTE_ARGUMENT_LISTS)
        slots = count + load(executable, EXECUTABLE_OUTPUT_COUNT)
        for device in range(load(executable, EXECUTABLE_DEVICE_COUNT)):
            error = pjrt_hold_inputs(executable, frame, load(lists, device), device * slots)
            if error != 0:
                for other in range(device):
                    pjrt_release_all(load(frame, FRAME_HELD) + 8 * other * slots, count)
                return error
        return 0
        """,
    ),
    c_function(
        "LoadedExecutable_Execute",
        """
        executable = load(a, A_EXECUTABLE)
        client = load(executable, EXECUTABLE_CLIENT)
        if load(executable, EXECUTABLE_DELETED) != 0:
            return pjrt_error_unloaded(0)
        devices = load(executable, EXECUTABLE_DEVICE_COUNT)
        if load(a, A_NUM_DEVICES) != devices or load(a, A_NUM_ARGS) != load(executable, EXECUTABLE_INPUT_COUNT):
            return call_function(load(client, CLIENT_PYTHON), ASK_MISMATCH, executable, -load(a, A_NUM_ARGS) - 1)
        error = pjrt_check_donated(executable, a)
        if error != 0:
            return error
        lists = load(a, A_ARGUMENT_LISTS)
        if pjrt_is_queued(executable, client, lists, load(a, A_NUM_ARGS)) != 0:
            return pjrt_enqueue(executable, client, a, lists)
        frame = pjrt_frame(executable)
        if frame < 0:
            return -frame
        pjrt_start_workers(executable)
        block = load(frame, FRAME_BLOCK)
        error = pjrt_take_inputs(executable, frame, a)
        if error == 0:
            error = pjrt_take_outputs(executable, frame, load(a, A_OPTIONS))
            if error == 0:
                error = pjrt_run(executable, frame)
                error = pjrt_finish(executable, frame, a, error)
        atomic_store(block, BLOCK_BUSY, 0)
        if error == 0 and load(a, A_COMPLETE_EVENTS) != 0:
            for device in range(devices):
                store(load(a, A_COMPLETE_EVENTS), device, load(client, CLIENT_READY))
        return error
        """,
    ),
)  # fmt: skip
