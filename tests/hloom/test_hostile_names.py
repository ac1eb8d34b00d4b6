"""A seeded sample of `python tests/reliability.py --only names`: names of strangers at every door."""

import random

import pytest
from hostile_doors import QUICK, passed
from hostile_names import NAMES, hostile

SAMPLE = 6  # names for each door, besides those that broke one


@pytest.mark.parametrize("which", QUICK)
def test_a_name_is_data(which, tmp_path):
    rng = random.Random(which)
    known = ("carriage\rreturn", "newline\nname", "../../../tmp/x", "\ud800", 'a"; int b; //')
    for number, name in enumerate([*known, *rng.sample(NAMES, SAMPLE), hostile(rng.randrange(1 << 30))]):
        passed(which, name, tmp_path / str(number))


def test_most_names_are_taken(tmp_path):
    """Doors that refuse what they could take would pass the test above."""
    refused = [name for number, name in enumerate(NAMES) if passed("hlo", name, tmp_path / str(number)).refused]
    assert refused == []
    assert (
        passed("checkpoints", "a/../b*", tmp_path / "c").refused
        == passed("records", "??/", tmp_path / "r").refused
        == ""
    )
