"""Calls that return before their results are ready: a thread runs them one after the other, in call order.

Programs that take long run there, and those whose arguments are not ready yet; a short program is over sooner than the
thread would wake. The thread never calls Python, so that waiting for it while holding the GIL cannot deadlock: programs
with Python functions run in the calling thread.
"""

from __future__ import annotations

from hloom.runtime.pjrt.functions import helper

__all__ = ["FUNCTIONS"]

FUNCTIONS = (
    # Whether a call goes to the thread.
    helper(
        "pjrt_is_queued",
        "executable, client, lists, count",
        """
        if load(client, CLIENT_QUEUES) == 0 or load(executable, EXECUTABLE_RUNS_PYTHON) != 0:
            return 0
        if load(executable, EXECUTABLE_NANOSECONDS) >= QUEUED_NANOSECONDS:
            return 1
        if count != 0:
            for device in range(load(executable, EXECUTABLE_DEVICE_COUNT)):
                inputs = load(lists, device)
                for k in range(count):
                    event = load(load(inputs, k), BUFFER_EVENT)
                    if event != 0 and atomic_load(event, EVENT_STATE) == 0:
                        return 1
        return 0
        """,
    ),
    # Obtains what a job needs from Python, before it is queued. Returns an error or 0.
    helper(
        "pjrt_prepare",
        "executable, client, lists, count",
        """
        python = load(client, CLIENT_PYTHON)
        if count != 0:
            for device in range(load(executable, EXECUTABLE_DEVICE_COUNT)):
                inputs = load(lists, device)
                for k in range(count):
                    if load(load(inputs, k), BUFFER_BYTES) != load(load(executable, EXECUTABLE_INPUTS), k):
                        return call_function(python, ASK_MISMATCH, executable, k)
        if atomic_load(client, CLIENT_WORKER) == 0:
            error = call_function(python, ASK_WORKER, 0, 0)
            if error != 0:
                return error
        pjrt_start_workers(executable)
        if atomic_load(executable, EXECUTABLE_OWN_FRAME) == 0:
            frame = call_function(python, ASK_FRAME, executable, 0)
            if frame < 0:
                return -frame
            if not compare_exchange(executable, EXECUTABLE_OWN_FRAME, 0, frame):
                atomic_store(load(frame, FRAME_BLOCK), BLOCK_BUSY, 0)
        return 0
        """,
    ),
    # Gives up the inputs of a job on this many devices, their events, and this many storages of each device.
    helper(
        "pjrt_release_job",
        "job, executable, devices, kept",
        """
        count = load(executable, EXECUTABLE_INPUT_COUNT)
        each = count + load(executable, EXECUTABLE_OUTPUT_COUNT)
        addresses = job + 8 * (JOB_HELD + load(executable, EXECUTABLE_DEVICE_COUNT) * each)
        for device in range(devices):
            pjrt_release_all(job + 8 * (JOB_HELD + device * each), kept)
            for k in range(count):
                pjrt_event_drop(load(addresses, 2 * (device * count + k) + 1))
        return 0
        """,
    ),
    # Holds the memory of a device's inputs, and their events. Returns an error or 0.
    helper(
        "pjrt_job_inputs",
        "held, addresses, inputs, count",
        """
        for k in range(count):
            buffer = load(inputs, k)
            storage = pjrt_hold(buffer)
            if storage == 0:
                for j in range(k):
                    pjrt_release(load(held, j))
                    pjrt_event_drop(load(addresses, 2 * j + 1))
                return pjrt_error_deleted(0)
            event = load(buffer, BUFFER_EVENT)
            if event != 0:
                atomic_add(event, EVENT_REFS, 1)
            store(held, k, storage)
            store(addresses, 2 * k, load(buffer, BUFFER_ADDRESS))
            store(addresses, 2 * k + 1, event)
        return 0
        """,
    ),
    # The memory of a device's outputs, as in `pjrt_output`. References of earlier jobs do not prevent an input from
    # being consumed, as those jobs end before this one begins. Returns -1, or the size of the failed allocation.
    helper(
        "pjrt_job_outputs",
        "executable, held, addresses, options",
        """
        client = load(executable, EXECUTABLE_CLIENT)
        count = load(executable, EXECUTABLE_INPUT_COUNT)
        outputs = load(executable, EXECUTABLE_OUTPUT_COUNT)
        for k in range(outputs):
            row = load(executable, EXECUTABLE_OUTPUTS) + 8 * OUT_WORDS * k
            donor = load(row, OUT_DONOR)
            storage = 0
            if donor >= 0:
                given = load(held, donor)
                if (
                    load(given, STORAGE_KIND) == OWNED
                    and atomic_load(given, STORAGE_REFS) == atomic_load(given, STORAGE_QUEUED) + 2
                    and load(given, STORAGE_ADDRESS) == load(addresses, 2 * donor)
                    and pjrt_is_kept(options, donor) == 0
                ):
                    storage = given
                    atomic_add(storage, STORAGE_REFS, 1)
            if storage == 0:
                storage = pjrt_storage(client, load(row, OUT_BYTES))
            if storage == 0:
                pjrt_release_all(held + 8 * count, k)
                return load(row, OUT_BYTES)
            store(held, count + k, storage)
        return -1
        """,
    ),
    # Puts a call into the queue; the buffers of its results wait for an event. Returns an error or 0.
    helper(
        "pjrt_enqueue",
        "executable, client, arguments, lists",
        """
        count = load(executable, EXECUTABLE_INPUT_COUNT)
        outputs = load(executable, EXECUTABLE_OUTPUT_COUNT)
        devices = load(executable, EXECUTABLE_DEVICE_COUNT)
        options = load(arguments, EXECUTE_OPTIONS)
        each = count + outputs
        error = pjrt_prepare(executable, client, lists, count)
        if error != 0:
            return error
        job = malloc(8 * (JOB_HELD + devices * (each + 2 * count)))
        held = job + 8 * JOB_HELD
        pjrt_lock(client + 8 * CLIENT_ORDER)
        lacking = -1
        ready = 0
        for device in range(devices):
            if error == 0 and lacking < 0:
                own = held + 8 * device * each
                addresses = held + 8 * (devices * each + 2 * device * count)
                inputs = 0
                if count != 0:
                    inputs = load(lists, device)
                error = pjrt_job_inputs(own, addresses, inputs, count)
                if error == 0:
                    lacking = pjrt_job_outputs(executable, own, addresses, options)
                    if lacking < 0:
                        ready += 1
                    else:
                        pjrt_release_all(own, count)
                        for k in range(count):
                            pjrt_event_drop(load(addresses, 2 * k + 1))
        if error != 0 or lacking >= 0:
            pjrt_release_job(job, executable, ready, each)
            pjrt_unlock(client + 8 * CLIENT_ORDER)
            free(job)
            if error == 0:
                error = pjrt_no_memory(client, lacking)
            return error
        for k in range(devices * each):
            atomic_add(load(held, k), STORAGE_QUEUED, 1)
        completed = load(arguments, EXECUTE_COMPLETE_EVENTS)
        refs = devices * outputs + 1
        if completed != 0:
            refs += devices
        event = pjrt_event(refs)
        atomic_add(executable, EXECUTABLE_REFS, 1)
        store(job, JOB_EXECUTABLE, executable)
        store(job, JOB_EVENT, event)
        for device in range(devices):
            pjrt_give_out(executable, arguments, held + 8 * (device * each + count), event, device)
            if completed != 0:
                store(completed, device, event)
        store(job, JOB_NEXT, 0)
        pthread_mutex_lock(client + 8 * CLIENT_MUTEX)
        last = load(client, CLIENT_LAST)
        if last == 0:
            store(client, CLIENT_FIRST, job)
        else:
            store(last, JOB_NEXT, job)
        store(client, CLIENT_LAST, job)
        waiting = load(client, CLIENT_WAITING) + 1
        store(client, CLIENT_WAITING, waiting)
        pthread_cond_broadcast(client + 8 * CLIENT_CONDITION)
        pjrt_unlock(client + 8 * CLIENT_ORDER)
        while load(client, CLIENT_WAITING) > MOST_WAITING:
            pthread_cond_wait(client + 8 * CLIENT_CONDITION, client + 8 * CLIENT_MUTEX)
        pthread_mutex_unlock(client + 8 * CLIENT_MUTEX)
        return 0
        """,
    ),
    # Waits for the arguments of a job, and runs it. Returns the error of an argument, or 0.
    helper(
        "pjrt_run_job",
        "job, executable, count, outputs",
        """
        devices = load(executable, EXECUTABLE_DEVICE_COUNT)
        each = count + outputs
        events = job + 8 * (JOB_HELD + devices * each)
        for k in range(devices * count):
            event = load(events, 2 * k + 1)
            if event != 0:
                error = pjrt_event_wait(event)
                if error != 0:
                    return pjrt_error_copy(error)
        frame = load(executable, EXECUTABLE_OWN_FRAME)
        for device in range(devices):
            held = job + 8 * (JOB_HELD + device * each)
            addresses = events + 16 * device * count
            slots = load(load(frame, FRAME_BLOCK), BLOCK_SLOTS) + 8 * device * each
            for k in range(count):
                store(slots, k, load(addresses, 2 * k))
            for k in range(outputs):
                row = load(executable, EXECUTABLE_OUTPUTS) + 8 * OUT_WORDS * k
                donor = load(row, OUT_DONOR)
                target = load(load(held, count + k), STORAGE_ADDRESS)
                if donor >= 0 and load(addresses, 2 * donor) != target:
                    copy_bytes(target, load(slots, donor), load(row, OUT_BYTES))
                    store(slots, donor, target)
                store(slots, count + k, target)
        return pjrt_run(executable, frame)
        """,
    ),
    helper(
        "pjrt_end_job",
        "client, job, error",
        """
        executable = load(job, JOB_EXECUTABLE)
        each = load(executable, EXECUTABLE_INPUT_COUNT) + load(executable, EXECUTABLE_OUTPUT_COUNT)
        devices = load(executable, EXECUTABLE_DEVICE_COUNT)
        for k in range(devices * each):
            atomic_add(load(job, JOB_HELD + k), STORAGE_QUEUED, -1)
        pjrt_release_job(job, executable, devices, each)
        pjrt_event_set(load(job, JOB_EVENT), error)
        pjrt_executable_drop(executable)
        free(job)
        pthread_mutex_lock(client + 8 * CLIENT_MUTEX)
        store(client, CLIENT_WAITING, load(client, CLIENT_WAITING) - 1)
        pthread_cond_broadcast(client + 8 * CLIENT_CONDITION)
        pthread_mutex_unlock(client + 8 * CLIENT_MUTEX)
        return 0
        """,
    ),
    # The thread's main function.
    helper(
        "pjrt_work",
        "client",
        """
        while atomic_load(client, CLIENT_WORKER) >= 0:
            pthread_mutex_lock(client + 8 * CLIENT_MUTEX)
            while load(client, CLIENT_FIRST) == 0:
                pthread_cond_wait(client + 8 * CLIENT_CONDITION, client + 8 * CLIENT_MUTEX)
            job = load(client, CLIENT_FIRST)
            store(client, CLIENT_FIRST, load(job, JOB_NEXT))
            if load(job, JOB_NEXT) == 0:
                store(client, CLIENT_LAST, 0)
            pthread_mutex_unlock(client + 8 * CLIENT_MUTEX)
            executable = load(job, JOB_EXECUTABLE)
            inputs = load(executable, EXECUTABLE_INPUT_COUNT)
            outputs = load(executable, EXECUTABLE_OUTPUT_COUNT)
            pjrt_end_job(client, job, pjrt_run_job(job, executable, inputs, outputs))
        return 0
        """,
        exported=True,
    ),
    # Waits until the queue is empty.
    helper(
        "pjrt_drain",
        "client",
        """
        pthread_mutex_lock(client + 8 * CLIENT_MUTEX)
        while load(client, CLIENT_WAITING) > 0:
            pthread_cond_wait(client + 8 * CLIENT_CONDITION, client + 8 * CLIENT_MUTEX)
        pthread_mutex_unlock(client + 8 * CLIENT_MUTEX)
        return 0
        """,
        exported=True,
    ),
)
