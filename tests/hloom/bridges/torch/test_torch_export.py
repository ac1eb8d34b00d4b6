"""Programs of torch.export as functions of hloom."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'hloom[torch]'")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from hloom.bridges.torch import from_exported  # noqa: E402
from hloom.errors import ArgumentError, FallbackWarning  # noqa: E402


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(16, 2)

    def forward(self, x, *, scale):
        x = F.adaptive_avg_pool2d(F.relu(self.norm(self.first(x))), 2)
        return {"out": self.last(x.flatten(1)) * scale, "x": x}


def exported(model, x, **options):
    return torch.export.export(model, (x,), {"scale": torch.tensor(2.0)}, **options)


def test_results_in_the_structure_of_the_model():
    model, x = Model().eval(), torch.randn(3, 1, 8, 8)
    function = from_exported(exported(model, x))
    y = torch.randn(3, 1, 8, 8).to(memory_format=torch.channels_last)
    for value in (x, y, torch.randn(3, 8, 8, 1).permute(0, 3, 1, 2)):
        found, wanted = function(value, scale=torch.tensor(3.0)), model(value, scale=torch.tensor(3.0))
        for key in ("out", "x"):
            torch.testing.assert_close(found[key], wanted[key], rtol=1e-4, atol=1e-5)


def test_buffers_are_changed():
    model, x = Model().train(), torch.randn(3, 1, 8, 8)
    program = exported(model, x)
    function = from_exported(program)
    found, wanted = function(x, scale=torch.tensor(1.0)), model(x, scale=torch.tensor(1.0))
    torch.testing.assert_close(found["out"], wanted["out"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(function.program.state_dict["norm.running_var"], model.norm.running_var)


def test_open_sizes():
    model, x = Model().eval(), torch.randn(3, 1, 8, 8)
    shapes = {"x": {0: torch.export.Dim("batch")}, "scale": None}
    function = from_exported(exported(model, x, dynamic_shapes=shapes))
    for n in (2, 5):
        y = torch.randn(n, 1, 8, 8)
        found = function(y, scale=torch.tensor(1.0))["out"]
        torch.testing.assert_close(found, model(y, scale=torch.tensor(1.0))["out"], rtol=1e-4, atol=1e-5)


def test_other_arguments_are_refused():
    x = torch.randn(3, 1, 8, 8)
    function = from_exported(exported(Model().eval(), x))
    for wrong in (x[:2], x.double()):
        with pytest.raises(ArgumentError, match="the argument x of an exported program"):
            function(wrong, scale=torch.tensor(1.0))
    with pytest.raises(ArgumentError, match="a call of an exported program"):
        function(x)


def test_torch_computes_ops_without_a_rule():
    class Values(nn.Module):
        def forward(self, x):
            return torch.special.hermite_polynomial_h(x * 2, 1) + 1

    x = torch.tensor([1.0, 2.0])
    with pytest.warns(FallbackWarning, match="hermite_polynomial_h"):
        function = from_exported(torch.export.export(Values(), (x,)))
    assert function(x).tolist() == [5.0, 9.0]
