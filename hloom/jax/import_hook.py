"""`import jax` finds hloom: `hl.as_jax()`, and JAX's modules whose home here has another name.

`MODULES` says where such a module lives. `hloom.X` and `jax.X` both lead there, as attributes and as imports.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys

from hloom.config import config

MODULES = {
    "ad": "hloom.transforms.cotangents",
    "ad_checkpoint": "hloom.transforms.remat",
    "core": "hloom.jax.core",
    "custom_batching": "hloom.jax.custom_batching",
    "custom_derivatives": "hloom.jax.custom_derivatives",
    "debug": "hloom.tracing.debug",
    "dlpack": "hloom.jax.dlpack",
    "dtypes": "hloom.jax.dtypes",
    "experimental": "hloom.jax.experimental",
    "flatten_util": "hloom.jax.flatten_util",
    "lib": "hloom.jax.lib",
    "monitoring": "hloom.jax.monitoring",
    "ref": "hloom.tracing.refs",
    "stages": "hloom.jax.stages",
    "test_util": "hloom.jax.test_util",
    "tree_util": "hloom.jax.tree_util",
    "version": "hloom.jax.version",
}


def home(name: str) -> str:
    """The module of hloom that is imported for `hloom.X` or `jax.X`."""
    package, _, rest = name.partition(".")
    rest = rest.removeprefix("_src.") if rest != "_src" else ""
    first, dot, others = rest.partition(".")
    found = MODULES.get(first)
    return f"{found}{dot}{others}" if found else f"hloom.{rest}".removesuffix(".")


_AS_JAX = ("narrow_numpy", "clamp_indexes", "callback_arrays")  # settings in which JAX's rules differ from hloom's own


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds hloom's module for the name of JAX's, while `sys.modules["jax"]` is hloom. Nothing is loaded twice.

    The first such import chooses the settings of `as_jax`.
    """

    settled = False

    def find_spec(self, fullname, path=None, target=None):
        package, _, rest = fullname.partition(".")
        if package == "hloom":
            if rest.partition(".")[0] not in MODULES:
                return None
            ours = home(fullname)
            return importlib.machinery.ModuleSpec(fullname, self, origin=ours) if self._is_module(ours) else None
        if package != "jax" or not rest or sys.modules.get("jax") is not sys.modules.get("hloom"):
            return None
        ours = home(fullname)
        if not self._is_module(ours) and self._attribute(ours) is None:
            return None
        if not self.settled:
            self.settled = True
            for name in _AS_JAX:
                setattr(config, name, True)
        return importlib.machinery.ModuleSpec(fullname, self, origin=ours)

    @staticmethod
    def _is_module(ours: str) -> bool:
        try:
            return importlib.util.find_spec(ours) is not None
        except ModuleNotFoundError:
            return False

    @staticmethod
    def _attribute(ours: str):
        """What stands under a name that is no module here, such as a distribution of `scipy.stats`; or None."""
        parent, _, name = ours.rpartition(".")
        try:
            return getattr(importlib.import_module(parent), name, None) if parent else None
        except ModuleNotFoundError:
            return None

    def create_module(self, spec):
        if self._is_module(spec.origin):
            module = importlib.import_module(spec.origin)
            module.__dict__.setdefault("_own_spec", module.__spec__)
            return module
        attribute = self._attribute(spec.origin)
        holder = type(sys)(spec.name, attribute.__doc__)
        holder.__dict__.update({n: getattr(attribute, n) for n in dir(attribute) if not n.startswith("_")})
        holder.__dict__["_own_spec"] = spec
        return holder

    def exec_module(self, module) -> None:
        module.__spec__ = module.__dict__["_own_spec"]  # the import system had put JAX's name there


class _Installed(contextlib.AbstractContextManager):
    """What `as_jax` returns: as a context manager it puts back what was there before."""

    def __init__(self, before: dict):
        self._before, self._settings = before, {name: getattr(config, name) for name in _AS_JAX}

    def __exit__(self, *exception) -> None:
        for name in [n for n in sys.modules if n == "jax" or n.startswith("jax.")]:
            del sys.modules[name]
        sys.modules.update(self._before)
        for name, value in self._settings.items():
            setattr(config, name, value)


def as_jax() -> _Installed:
    """From now on `import jax` and imports of its submodules return hloom's. An imported JAX is set aside.

    As in JAX without 64 bits, NumPy's arrays of 64 bits are then taken over as 32 bits (`hl.config.narrow_numpy`)
    unless enable_x64 is set, integers outside of an axis name its first or last element (`hl.config.clamp_indexes`),
    and callbacks get arrays of hloom's (`hl.config.callback_arrays`). `with hl.as_jax():` does so for a while.

        import hloom
        hloom.as_jax()
        import jax.numpy as jnp  # hloom.numpy
    """
    names = [n for n in sys.modules if n == "jax" or n.startswith("jax.")]
    before = {name: sys.modules.pop(name) for name in names}
    sys.modules["jax"] = sys.modules["hloom"]
    installed = _Installed(before)
    for name in _AS_JAX:
        setattr(config, name, True)
    return installed


def install_finder() -> None:
    """Lets `sys.modules["jax"] = hloom` work for submodules too. Called when hloom is imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
