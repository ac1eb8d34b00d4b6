"""Waiting for effects, under the name that libraries import it by from JAX's insides."""


def wait_for_tokens() -> None:
    """Nothing: effects have happened when a call returns."""


__all__ = ["wait_for_tokens"]
