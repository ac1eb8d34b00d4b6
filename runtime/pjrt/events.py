"""Errors and events."""

from __future__ import annotations

from hloom.runtime.pjrt.functions import c_function, helper

__all__ = ["FUNCTIONS"]

FUNCTIONS = (
    helper("pjrt_free", "block", "free(block)\nreturn 0", exported=True),
    helper("pjrt_nothing", "block", "return 0", exported=True),
    helper(
        "pjrt_error",
        "code, text, size",
        """
        e = malloc(8 * ERROR_TEXT + size + 8)
        store(e, ERROR_CODE, code)
        store(e, ERROR_SIZE, size)
        copy_bytes(e + 8 * ERROR_TEXT, text, size)
        return e
        """,
    ),
    helper(
        "pjrt_error_copy",
        "error",
        """
        if error == 0:
            return 0
        return pjrt_error(load(error, ERROR_CODE), error + 8 * ERROR_TEXT, load(error, ERROR_SIZE))
        """,
    ),
    c_function("Error_Destroy", "free(load(a, A_ERROR))\nreturn 0"),
    c_function(
        "Error_Message",
        """
        e = load(a, A_ERROR)
        store(a, A_MESSAGE, e + 8 * ERROR_TEXT)
        store(a, A_MESSAGE_SIZE, load(e, ERROR_SIZE))
        return 0
        """,
    ),
    c_function("Error_GetCode", "store(a, A_CODE, load(load(a, A_ERROR), ERROR_CODE))\nreturn 0"),
    helper(
        "pjrt_event",
        "refs",
        """
        event = calloc(EVENT_WORDS, 8)
        store(event, EVENT_REFS, refs)
        return event
        """,
        exported=True,
    ),
    helper(
        "pjrt_event_drop",
        "event",
        """
        if event == 0 or atomic_load(event, EVENT_REFS) < 0:
            return 0
        if atomic_add(event, EVENT_REFS, -1) == 1:
            free(load(event, EVENT_ERROR))
            free(event)
        return 0
        """,
        exported=True,
    ),
    # Sets an event, which takes ownership of the error. The caller gives up its reference.
    helper(
        "pjrt_event_set",
        "event, error",
        """
        pthread_mutex_lock(event + 8 * EVENT_MUTEX)
        if load(event, EVENT_STATE) != 0:
            pthread_mutex_unlock(event + 8 * EVENT_MUTEX)
            free(error)
            return pjrt_event_drop(event)
        store(event, EVENT_ERROR, error)
        atomic_store(event, EVENT_STATE, 1)
        node = load(event, EVENT_CALLBACKS)
        store(event, EVENT_CALLBACKS, 0)
        pthread_cond_broadcast(event + 8 * EVENT_CONDITION)
        pthread_mutex_unlock(event + 8 * EVENT_MUTEX)
        while node != 0:
            following = load(node, NODE_NEXT)
            call_function(load(node, NODE_CALLBACK), pjrt_error_copy(error), load(node, NODE_ARGUMENT), 0)
            free(node)
            node = following
        return pjrt_event_drop(event)
        """,
        exported=True,
    ),
    helper(
        "pjrt_event_wait",
        "event",
        """
        if atomic_load(event, EVENT_STATE) == 0:
            pthread_mutex_lock(event + 8 * EVENT_MUTEX)
            while atomic_load(event, EVENT_STATE) == 0:
                pthread_cond_wait(event + 8 * EVENT_CONDITION, event + 8 * EVENT_MUTEX)
            pthread_mutex_unlock(event + 8 * EVENT_MUTEX)
        return load(event, EVENT_ERROR)
        """,
    ),
    c_function("Event_Destroy", "return pjrt_event_drop(load(a, A_EVENT))"),
    c_function("Event_IsReady", "store(a, A_IS_READY, atomic_load(load(a, A_EVENT), EVENT_STATE))\nreturn 0"),
    c_function("Event_Error", "return pjrt_error_copy(load(load(a, A_EVENT), EVENT_ERROR))"),
    c_function("Event_Await", "return pjrt_error_copy(pjrt_event_wait(load(a, A_EVENT)))"),
    c_function(
        "Event_OnReady",
        """
        event = load(a, A_EVENT)
        if atomic_load(event, EVENT_STATE) == 0:
            pthread_mutex_lock(event + 8 * EVENT_MUTEX)
            if atomic_load(event, EVENT_STATE) == 0:
                node = malloc(8 * NODE_WORDS)
                store(node, NODE_CALLBACK, load(a, A_CALLBACK))
                store(node, NODE_ARGUMENT, load(a, A_USER_ARG))
                store(node, NODE_NEXT, load(event, EVENT_CALLBACKS))
                store(event, EVENT_CALLBACKS, node)
                pthread_mutex_unlock(event + 8 * EVENT_MUTEX)
                return 0
            pthread_mutex_unlock(event + 8 * EVENT_MUTEX)
        call_function(load(a, A_CALLBACK), pjrt_error_copy(load(event, EVENT_ERROR)), load(a, A_USER_ARG), 0)
        return 0
        """,
    ),
    # One reference is the caller's, one of who sets it: the same, but they may end in any order.
    c_function("Event_Create", "store(a, A_EVENT, pjrt_event(2))\nreturn 0"),
    c_function(
        "Event_Set",
        """
        error = 0
        code = load(a, A_ERROR_CODE) & 0xffffffff
        if code != 0:
            error = pjrt_error(code, load(a, A_ERROR_MESSAGE), load(a, A_ERROR_MESSAGE_SIZE))
        return pjrt_event_set(load(a, A_EVENT), error)
        """,
    ),
)
