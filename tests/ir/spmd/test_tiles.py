"""HLO's tile assignments: what is written is read back, by us and by XLA; what is wrong is refused."""

from __future__ import annotations

import math

import pytest
import xla
from hypothesis import given
from hypothesis import strategies as st

from hloom.ir.spmd.sharding import DeviceMesh, Sharding, on_device
from hloom.ir.spmd.tiles import TileProblem, TileReader, parse_tiles, tiles_text

SIZES = [(2, 4), (4, 2), (8,), (2, 2, 2), (2, 3), (3, 2), (6,), (4, 3), (3, 4), (2, 3, 2), (12,), (2, 1, 4), (1,)]


@st.composite
def shardings(draw, permuted=True):
    sizes = draw(st.sampled_from(SIZES))
    count = math.prod(sizes)
    ids = tuple(draw(st.permutations(range(count)))) if permuted and draw(st.booleans()) else ()
    mesh = DeviceMesh(tuple("xyz"[: len(sizes)]), sizes, ids)
    mesh = mesh.atomic() if draw(st.booleans()) else mesh
    rank = draw(st.integers(0, 3))
    places: list[list[str]] = [[] for _ in range(rank + 2)]
    for name in draw(st.permutations([n for n in mesh.names if mesh.axis_size(n) > 1])):
        places[draw(st.integers(0, rank + 1))].append(name)
    return Sharding(mesh, tuple(map(tuple, places[:rank])), mesh.in_order(places[rank]))


def same(a: Sharding, b: Sharding) -> bool:
    """Whether each device has the same part, and the same devices hold partial sums of one value."""
    dims = (24,) * a.rank
    groups = [sorted(map(sorted, s.mesh.groups(s.unreduced))) if s.mesh.size > 1 else [] for s in (a, b)]
    return groups[0] == groups[1] and all(a.region(k, dims) == b.region(k, dims) for k in range(a.mesh.size))


@given(shardings())
def test_what_is_written_is_read_in_the_axes_of_its_mesh(sharding):
    text = tiles_text(sharding)
    found = TileReader([text], sharding.mesh.size, sharding.mesh).placed(text, sharding.rank).sharding
    assert found == sharding or (sharding.is_replicated and found.is_replicated)


@given(shardings())
def test_without_names_it_is_read_as_the_same_layout(sharding):
    text = tiles_text(sharding)
    found = TileReader([text], sharding.mesh.size).placed(text, sharding.rank).sharding
    assert same(found, sharding)
    if not sharding.mesh.device_ids:
        assert tiles_text(found) == text


@given(st.lists(shardings(permuted=False), min_size=1, max_size=3))
def test_shardings_of_one_module_share_a_mesh_where_they_can(found):
    mesh = found[0].mesh
    texts = [tiles_text(s) for s in found if s.mesh.size == mesh.size]
    reader = TileReader(texts, mesh.size)
    ranks = [s.rank for s in found if s.mesh.size == mesh.size]
    read = [reader.placed(t, r).sharding for t, r in zip(texts, ranks, strict=True)]
    for text, one in zip(texts, read, strict=True):
        assert tiles_text(one) == text
    if {s.mesh for s in found} <= {mesh, mesh.atomic()}:
        assert len({s.mesh.atomic().sizes for s in read}) == 1


@given(st.lists(shardings(permuted=False), min_size=1, max_size=20))
def test_xla_reads_what_is_written(found):
    lines = [
        f"  p{k} = f32[{','.join('24' for _ in s.dims)}] parameter({k}), sharding={tiles_text(s)}"
        for k, s in enumerate(found)
    ]
    names = ", ".join(f"p{k}" for k in range(len(found)))
    text = "HloModule m\n\nENTRY main {\n" + "\n".join(lines) + f"\n  ROOT r = () tuple({names})\n}}\n"
    text = text.replace("()", f"({', '.join(line.split()[2] for line in lines)})", 1)
    read = [line.split("sharding=")[1] for line in xla.parse(text).to_string().splitlines() if "sharding=" in line]
    for text, sharding in zip(read, found, strict=True):
        assert same(TileReader([text], sharding.mesh.size).placed(text, sharding.rank).sharding, sharding)


@pytest.mark.parametrize(
    ("text", "sizes", "groups"),
    [
        ("{devices=[2,1,4]<=[2,4]T(1,0) last_tile_dim_replicate}", (2, 1, 4), ("replicated",)),
        ("{devices=[2,2]0,2,1,3}", (2, 2), ()),
        ("{devices=[1,2,2]<=[4] last_tile_dims={manual, replicated}}", (1, 2, 2), ("manual", "replicated")),
        ("{devices=[2]<=[2] metadata={op_name=\"a b\"}}", (2,), ()),
        ("{devices=[2]<=[2] shard_like 1}", (2,), ()),
        ("{replicated}", (), ("replicated",)),
        ("{unreduced}", (), ("unreduced",)),
        ("{ manual }", (), ("manual",)),
    ],
)  # fmt: skip
def test_forms(text, sizes, groups):
    found = parse_tiles(text)
    assert (found.sizes, found.groups) == (sizes, groups)


def test_tuples_and_single_devices():
    texts = ["{{replicated}, /*index=1*/{devices=[2]<=[2]}, {unknown}}", "{maximal device=1}"]
    reader = TileReader(texts)
    assert reader.count == 2
    whole, split, nobody = reader.placed(texts[0], [1, 1, 0])
    assert whole.sharding.is_replicated and split.sharding.dims == (("a0",),) and nobody is None
    assert reader.placed(texts[1], 2).sharding == on_device(1, 2)
    assert tiles_text((None, on_device(1, 2))) == "{{unknown}, {maximal device=1}}"


@pytest.mark.parametrize(
    ("text", "rank", "said"),
    [
        ("{devices=[2,2]<=[8]}", 2, "devices of a tile assignment"),
        ("{devices=[2,2]0,1,2,2}", 2, "each of 4 devices once"),
        ("{devices=[2,2]<=[2,2]T(0,0)}", 2, "devices of a tile assignment"),
        ("{devices=[2,4]<=[8]}", 1, "has 1 dimensions"),
        ("{devices=[2,2]<=[4]}", 2, "8 partitions"),
        ("{maximal device=8}", 0, "8 partitions"),
        ("{devices=[8]<=[8] last_tile_dims={manual, manual}}", 0, "once each"),
        ("{devices=[8]<=[8] last_tile_dims={secret}}", 0, "once each"),
        ("{devices=[8]<=[8] more}", 1, "unknown"),
        ("{whole}", 1, "none that HLO has"),
        ("replicated", 1, "in braces"),
        ("{{replicated}", 1, "not closed"),
        ("{{replicated}, {replicated}}", [1], "each of 1 elements"),
        ("{devices=[0]<=[0]}", 1, "positive"),
    ],
)
def test_what_is_wrong_is_refused_in_three_parts(text, rank, said):
    with pytest.raises(TileProblem) as caught:
        TileReader([text], 8).placed(text, rank)
    problem, found, repair = caught.value.args
    assert said in f"{problem} {found}" and problem and found and repair
