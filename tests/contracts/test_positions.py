"""Contract over the table of positional encodings: the traits of each hold. Adding a row adds its tests."""

import math

import pytest
import torch

from regard import catalogue
from regard.core.errors import BadInput, RegardError
from regard.core.spec import build_part
from regard.positions import ENCODINGS, GRAPH_POSITIONS, WINDOW_BIASES
from regard.positions.similarity import cell_vectors, dense_bias, grid_edges, similarity

WIDTH, HEADS = 24, 3
CASES = [(table, name) for table in ENCODINGS for name in table]
LINE, GRID = (1, 12), (4, 6)


def build(table, name, grid=LINE, seed=0):
    torch.manual_seed(seed)
    sizes = {"width": WIDTH, "heads": HEADS, "head_dim": WIDTH // HEADS, "length": grid[0] * grid[1], "causal": False}
    part = build_part(table, name, "positions", **sizes, grid=grid, max_grid=grid, window=grid).double()
    with torch.no_grad():
        for parameter in part.parameters():  # as after training: biases may begin with zeros
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    return part.eval()


def told(part):
    """What an encoding says on a line, as one tensor."""
    return similarity(part, LINE) if part.kind in ("bias", "qk_transform", "none") else cell_vectors(part, LINE)


def identify(case):
    return f"{catalogue._part_of(*case)[0].traits.encodes}-{case[1]}"


@pytest.fixture(params=CASES, ids=identify)
def case(request):
    return request.param


@pytest.fixture(autouse=True)
def _double(double):
    with torch.no_grad():
        yield


def test_traits_are_words_of_the_table(case):
    traits = build(*case).traits
    assert traits.encodes in {"sequence", "grid", "window", "points", "ground", "globe", "graph"}
    assert traits.learned in {"nothing", "table", "network", "projection"}
    assert traits.other_sizes in {"any", "clamped", "resized", "refused"}
    assert traits.invariant <= {"shift", "resolution", "rotation", "relabeling"}


def test_shapes_are_those_of_the_cells(case):
    part = build(*case)
    matrix = similarity(part, LINE)
    assert matrix.shape[1:] == (12, 12)
    assert matrix.shape[0] in (1, HEADS)
    assert matrix.isfinite().all()
    if part.kind in ("added", "qk_input"):
        vectors = cell_vectors(part, LINE)
        assert vectors.shape == (12, getattr(part, "width", WIDTH))
        if part.traits.encodes not in ("sequence", "graph", "window"):
            assert len(cell_vectors(build(*case, GRID), GRID)) == 24


def test_the_same_encoding_says_the_same_again(case):
    assert torch.equal(told(build(*case)), told(build(*case)))


def test_what_is_learned_is_what_is_declared(case):
    part = build(*case)
    assert bool(list(part.parameters())) == (part.traits.learned != "nothing")


# -- other sizes -------------------------------------------------------------------------------------------------------


def test_longer_inputs_are_handled_as_declared(case):
    part, longer = build(*case), (1, 25)
    traits = part.traits
    if traits.other_sizes == "refused":
        with pytest.raises((BadInput, RuntimeError), match=r"positions are needed|size mismatch|no bias for"):
            similarity(part, longer)
        return
    if traits.encodes == "window":  # the same network, another window
        wider = build_part(WINDOW_BIASES, f"continuous(pretrained_window={LINE})", "positions", heads=3, window=longer)
        wider.load_state_dict(part.state_dict())
        torch.testing.assert_close(wider.double()()[:, :12, :12], part())
        return
    found = similarity(part, longer)
    assert found.isfinite().all()
    if traits.other_sizes == "any" and traits.encodes not in ("graph", "grid"):  # those see the whole input
        torch.testing.assert_close(found[:, :12, :12], similarity(part, LINE))
    if traits.other_sizes == "resized":
        found, expected = stretched_line(part, longer)
        torch.testing.assert_close(found, expected)


def stretched_line(part, grid):
    """What a table of numbers along a line gives a longer line, and the numbers between them; without the ends."""
    table = part.tables[1] if part.kind == "bias" else part.table
    table.copy_(((torch.arange(len(table)) + 0.5) / len(table))[:, None].expand_as(table))
    cells = grid[1]
    if part.kind != "bias":
        return cell_vectors(part, grid)[3:-3, 0], ((torch.arange(cells) + 0.5) / cells)[3:-3]
    part.tables[0].zero_()
    middle = cells // 2
    distances = middle - torch.arange(cells) + cells - 1  # from the query in the middle, as rows of a table
    return dense_bias(part, grid)[0, middle] / table.shape[1], (distances + 0.5) / (2 * cells - 1)


def test_far_distances_share_a_value_where_they_are_clamped():
    part = build(ENCODINGS[0], "relative")
    row = dense_bias(part, (1, 400))[:, 0]
    assert row[:, 130:].unique(dim=1).shape[1] == 1
    assert row[:, :130].unique(dim=1).shape[1] > 8


# -- invariances -------------------------------------------------------------------------------------------------------


def shift_error(part, grid):
    """How much similarities change where both cells move by one column, relative to the largest."""
    matrix = similarity(part, grid).unflatten(1, grid).unflatten(3, grid)  # H Y X Y X
    moved = matrix[:, :, 1:, :, 1:] - matrix[:, :, :-1, :, :-1]
    return float(moved.abs().max() / matrix.abs().max().clamp(min=1e-9))


def test_similarity_depends_on_differences_where_shift_is_declared_and_only_there(case):
    part = build(*case)
    if part.traits.encodes == "globe":  # away from the equator, where rows and columns are alike for some
        places = torch.tensor([[10.0, 60.0], [20.0, 65.0]])
        a, b = (part(places + torch.tensor([east, north])) for east, north in ((0.0, 0.0), (30.0, 20.0)))
        error = float(((a[0] * a[1]).sum() - (b[0] * b[1]).sum()).abs() / (a[0] * a[1]).sum().abs())
    else:
        error = shift_error(part, LINE)
    assert (error < 1e-6) == ("shift" in part.traits.invariant), error


def test_equal_places_have_equal_codes_at_every_resolution_where_it_is_declared():
    declared = [case for case in CASES if "resolution" in build(*case).traits.invariant]
    assert [name for _, name in declared] == ["sinusoidal", "ground"]
    for case in declared:
        part = build(*case)
        fine, coarse = cell_vectors(part, (6, 12), 1.0), cell_vectors(part, (2, 4), 3.0)
        torch.testing.assert_close(fine.unflatten(0, (6, 12))[1::3, 1::3], coarse.unflatten(0, (2, 4)))
    for name in ("learned", "sinusoidal"):  # of sequences: cells are numbered
        part = build(ENCODINGS[0], name, (6, 12))
        fine, coarse = cell_vectors(part, (6, 12)), cell_vectors(part, (2, 4))
        assert not torch.allclose(fine.unflatten(0, (6, 12))[1::3, 1::3], coarse.unflatten(0, (2, 4)))


def test_similarity_on_the_globe_stays_under_a_rotation_where_it_is_declared_and_only_there():
    globe = next(table for table in ENCODINGS if "harmonics" in table)
    points = torch.nn.functional.normalize(torch.randn(40, 3, generator=torch.Generator().manual_seed(1)), dim=1)
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(2)))[0]

    def places(points):
        longitude, latitude = torch.atan2(points[:, 1], points[:, 0]), points[:, 2].asin()
        return torch.stack([longitude, latitude], 1) * (180 / math.pi)

    for name in globe:
        part = build(globe, name)
        before, after = (codes @ codes.T for codes in (part(places(points)), part(places(points @ turn))))
        error = float((before - after).abs().max() / before.abs().max())
        assert (error < 1e-6) == ("rotation" in part.traits.invariant), name


@pytest.mark.parametrize("name", GRAPH_POSITIONS)
def test_relabeled_nodes_keep_their_positions(name):
    part = build(GRAPH_POSITIONS, name)
    assert part.traits.invariant == {"relabeling"}
    edges, n = torch.tensor([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [1, 4], [0, 6]]).T, 7
    edges = torch.cat([edges, edges.flip(0)], 1)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(part(order[edges], n)[order], part(edges, n), atol=1e-5, rtol=0)


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_zero_positions_give_nothing_or_one_clear_sentence(case):
    part = build(*case)
    if part.traits.encodes in ("grid", "window") and part.traits.learned != "nothing":
        with pytest.raises(BadInput, match=r"at least one|no bias for"):
            similarity(part, (1, 0))
    else:
        assert similarity(part, (1, 0)).shape[1:] == (0, 0)


@pytest.mark.parametrize("bad", [[0.0, 90.5], [0.0, -91.0], [float("inf"), 0.0], [0.0, float("nan")]])
def test_places_outside_the_globe_are_refused_by_every_code_of_it(bad):
    globe = next(table for table in ENCODINGS if "harmonics" in table)
    for name in globe:
        with pytest.raises(BadInput, match="latitudes must be from -90 to 90"):
            build(globe, name)(torch.tensor([bad]))
        with pytest.raises(BadInput, match="expected longitude and latitude, got 3"):
            build(globe, name)(torch.zeros(1, 3))


@pytest.mark.parametrize("name", GRAPH_POSITIONS)
def test_more_numbers_than_nodes_are_zeros_and_edges_to_nowhere_are_refused(name):
    part = build_part(GRAPH_POSITIONS, f"{name}(k=9)", "positions")
    found = part(grid_edges((1, 3)), 3)
    assert found.shape == (3, 9)
    if name == "laplacian":
        assert not found[:, 2:].any()
        assert found[:, :2].abs().sum() > 0
    assert part(torch.zeros(2, 0, dtype=torch.long), 2).abs().sum() == 0  # isolated nodes
    assert part(torch.zeros(2, 0, dtype=torch.long), 0).shape == (0, 9)
    for edges in ([[0], [3]], [[-1], [0]]):
        with pytest.raises(BadInput, match="nodes 0 to 2"):
            part(torch.tensor(edges), 3)
    with pytest.raises(RegardError, match="at least 1"):
        build_part(GRAPH_POSITIONS, f"{name}(k=0)", "positions")


def test_points_with_other_coordinates_and_pixels_without_a_size_are_refused():
    points = next(table for table in ENCODINGS if "ground" in table)
    with pytest.raises(BadInput, match="2 coordinates, got 3"):
        build(points, "fourier")(torch.zeros(4, 3))
    for metres in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(BadInput, match="above zero"):
            build(points, "ground")((2, 2), torch.tensor([metres]))


def test_every_encoding_has_a_paper_and_fits_80_columns():
    rows = catalogue.list("positions")
    assert len(rows) == len(CASES)
    assert {row["paper"] for row in rows} & {"-", ""} == set()
    lines = catalogue.format_listing("positions", 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["name", "description", "encodes", "learned", "other", "sizes"]
