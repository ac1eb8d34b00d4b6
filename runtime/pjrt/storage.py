"""Memory of values: counted, and recycled by size, because fresh pages cost more than the arithmetic.

Sizes are in classes of 8 steps for each power of two. A client keeps idle memory up to its limit.
"""

from __future__ import annotations

from hloom.runtime.pjrt.functions import helper

__all__ = ["FUNCTIONS"]

FUNCTIONS = (
    helper(
        "pjrt_lock",
        "word",
        """
        spins = 0
        while not compare_exchange(word, 0, 0, 1):
            spins += 1
            if spins > 100:
                sched_yield()
            else:
                pause()
        return 0
        """,
    ),
    helper("pjrt_unlock", "word", "atomic_store(word, 0, 0)\nreturn 0"),
    helper(
        "pjrt_purge",
        "client",
        """
        pjrt_lock(client + 8 * CLIENT_LOCK)
        found = 0
        for number in range(CLIENT_BINS, CLIENT_WORDS):
            block = load(client, number)
            store(client, number, 0)
            while block != 0:
                following = load(block, STORAGE_NEXT)
                store(block, STORAGE_NEXT, found)
                found = block
                block = following
        store(client, CLIENT_IDLE, 0)
        pjrt_unlock(client + 8 * CLIENT_LOCK)
        while found != 0:
            following = load(found, STORAGE_NEXT)
            free(found)
            found = following
        return 0
        """,
        exported=True,
    ),
    helper(
        "pjrt_block",
        "size",
        """
        if size < 4194304:
            return aligned_alloc(64, size)
        block = aligned_alloc(2097152, size)
        if block != 0:
            madvise(block, size, 14)
        return block
        """,
    ),
    # Memory for `size` bytes, with one reference; 0 where there is none.
    helper(
        "pjrt_storage",
        "client, size",
        """
        if size < 0 or size >= 1 << 46:
            return 0
        last = size + 8 * STORAGE_WORDS - 1
        shift = 6
        while last >> shift >= 8:
            shift += 1
        step = last >> shift
        capacity = (step + 1) << shift
        number = CLIENT_BINS + 8 * shift + step
        pjrt_lock(client + 8 * CLIENT_LOCK)
        storage = load(client, number)
        if storage != 0:
            store(client, number, load(storage, STORAGE_NEXT))
            store(client, CLIENT_IDLE, load(client, CLIENT_IDLE) - capacity)
        used = load(client, CLIENT_IN_USE) + capacity
        store(client, CLIENT_IN_USE, used)
        store(client, CLIENT_PEAK, max(used, load(client, CLIENT_PEAK)))
        store(client, CLIENT_LARGEST, max(capacity, load(client, CLIENT_LARGEST)))
        store(client, CLIENT_ALLOCATIONS, load(client, CLIENT_ALLOCATIONS) + 1)
        pjrt_unlock(client + 8 * CLIENT_LOCK)
        if storage == 0:
            storage = pjrt_block(capacity)
            if storage == 0:
                pjrt_purge(client)
                storage = pjrt_block(capacity)
            if storage == 0:
                pjrt_lock(client + 8 * CLIENT_LOCK)
                store(client, CLIENT_IN_USE, load(client, CLIENT_IN_USE) - capacity)
                pjrt_unlock(client + 8 * CLIENT_LOCK)
                return 0
            store(storage, STORAGE_ADDRESS, storage + 8 * STORAGE_WORDS)
            store(storage, STORAGE_CAPACITY, capacity)
            store(storage, STORAGE_KIND, OWNED)
            store(storage, STORAGE_FIRST, number)
            store(storage, STORAGE_CLIENT, client)
            store(storage, STORAGE_QUEUED, 0)
        atomic_store(storage, STORAGE_REFS, 1)
        return storage
        """,
    ),
    # Memory owned elsewhere. kind LENT: the event `first` is set when it is no longer used; VIEWED: a call.
    helper(
        "pjrt_foreign",
        "client, address, size, kind, first, second",
        """
        storage = malloc(8 * STORAGE_WORDS)
        store(storage, STORAGE_ADDRESS, address)
        store(storage, STORAGE_CAPACITY, size)
        store(storage, STORAGE_KIND, kind)
        store(storage, STORAGE_FIRST, first)
        store(storage, STORAGE_SECOND, second)
        store(storage, STORAGE_CLIENT, client)
        store(storage, STORAGE_QUEUED, 0)
        atomic_store(storage, STORAGE_REFS, 1)
        return storage
        """,
    ),
    helper(
        "pjrt_release",
        "storage",
        """
        if atomic_add(storage, STORAGE_REFS, -1) != 1:
            return 0
        kind = load(storage, STORAGE_KIND)
        if kind == OWNED:
            client = load(storage, STORAGE_CLIENT)
            capacity = load(storage, STORAGE_CAPACITY)
            pjrt_lock(client + 8 * CLIENT_LOCK)
            store(client, CLIENT_IN_USE, load(client, CLIENT_IN_USE) - capacity)
            idle = load(client, CLIENT_IDLE) + capacity
            kept = idle <= load(client, CLIENT_LIMIT)
            if kept:
                store(client, CLIENT_IDLE, idle)
                number = load(storage, STORAGE_FIRST)
                store(storage, STORAGE_NEXT, load(client, number))
                store(client, number, storage)
            pjrt_unlock(client + 8 * CLIENT_LOCK)
            if not kept:
                free(storage)
            return 0
        if kind == LENT:
            pjrt_event_set(load(storage, STORAGE_FIRST), 0)
        elif load(storage, STORAGE_FIRST) != 0:
            call_function(
                load(storage, STORAGE_FIRST), load(storage, STORAGE_ADDRESS), load(storage, STORAGE_SECOND), 0
            )
        free(storage)
        return 0
        """,
        exported=True,
    ),
    helper(
        "pjrt_release_all",
        "storages, count",
        """
        for k in range(count):
            pjrt_release(load(storages, k))
        return 0
        """,
    ),
)
