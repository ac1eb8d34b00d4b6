"""The models that a server was started with, as MLServer's repository: those that clients may reload."""

from __future__ import annotations

from collections.abc import Callable

from mlserver.errors import ModelNotFound
from mlserver.registry import MultiModelRegistry
from mlserver.repository import ModelRepository
from mlserver.settings import ModelSettings

__all__ = ["Started", "readiness"]


class Started(ModelRepository):
    """The models of the command line, and no others: the file system is not searched."""

    def __init__(self, root: str, models: list[ModelSettings]):
        self._models = models

    async def list(self) -> list[ModelSettings]:
        """All of them, loaded or not."""
        return list(self._models)

    async def find(self, name: str) -> list[ModelSettings]:  # type: ignore[valid-type]
        """The versions of a model. Raises ModelNotFound."""
        found = [model for model in self._models if model.name == name]
        if not found:
            raise ModelNotFound(name)
        return found


def readiness(registry: MultiModelRegistry, models: list[ModelSettings]) -> Callable:
    """The server's answer to readiness requests: whether all of its models are loaded."""

    async def ready() -> bool:
        for settings in models:
            try:
                version = settings.parameters.version if settings.parameters else None
                if not (await registry.get_model(settings.name, version)).ready:
                    return False
            except ModelNotFound:
                return False
        return True

    return ready
