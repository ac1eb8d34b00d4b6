"""The recipes of docs/guides/transforms.md run, and give what they say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "transforms.md"


def test_the_recipes_run():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    scope: dict = {}
    exec(compile(code, PAGE.name, "exec"), scope)
    assert scope["per_example"].shape == (3, 4, 4)
    np.testing.assert_allclose(scope["y"], np.zeros((3, 4)), atol=1e-6)
    np.testing.assert_allclose(scope["curvature"], np.diag(6.0 * np.arange(3)))
