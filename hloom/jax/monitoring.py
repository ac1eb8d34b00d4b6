"""Counters of libraries, under `jax.monitoring`'s names: each event goes to the listeners that were registered."""

from __future__ import annotations

_events: list = []
_durations: list = []


def register_event_listener(callback) -> None:
    """callback(event, **metadata) is called for each `record_event`."""
    _events.append(callback)


def register_event_duration_secs_listener(callback) -> None:
    """callback(event, seconds, **metadata) is called for each `record_event_duration_secs`."""
    _durations.append(callback)


def record_event(event: str, **kwargs) -> None:
    """Tells the listeners of an event."""
    for callback in _events:
        callback(event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs) -> None:
    """Tells the listeners how long something took."""
    for callback in _durations:
        callback(event, duration, **kwargs)


def clear_event_listeners() -> None:
    """Forgets all listeners."""
    _events.clear()
    _durations.clear()


__all__ = [
    "clear_event_listeners", "record_event", "record_event_duration_secs", "register_event_duration_secs_listener",
    "register_event_listener",
]  # fmt: skip
__dir__ = __all__.copy
