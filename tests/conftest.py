"""What all tests share: golden texts, and `pytest --bless`, which writes them anew (the reviewer reads the diff)."""

from __future__ import annotations

from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser):
    parser.addoption("--bless", action="store_true", help="write golden texts instead of comparing with them")


@pytest.fixture
def golden(request):
    """golden("ir/name.hlo", text): the text is what `tests/golden/ir/name.hlo` holds; with --bless it becomes that."""

    def check(path: str, text: str) -> None:
        file = GOLDEN / path
        if request.config.getoption("--bless"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            return
        assert file.exists(), f"{file} is missing: run pytest --bless and review the new file"
        assert text == file.read_text(encoding="utf-8"), f"{file} differs: if that is meant, run pytest --bless"

    return check
