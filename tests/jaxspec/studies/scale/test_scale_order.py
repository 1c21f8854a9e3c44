"""Networks stand in the order in which they were given, also where a file has its tables sorted."""

from jaxspec.results import measured
from jaxspec.studies.scale.result import NetworkCurves, ScaleResult, Speculation
from jaxspec.studies.scale.view import accepted_by_network


def test_acceptance_stands_in_the_order_of_the_networks():
    result = ScaleResult(
        networks=[NetworkCurves(name=name) for name in ("small", "large")],
        speculation=Speculation(conditional={name: measured([0.5]) for name in ("large", "small")}),
    )
    assert list(accepted_by_network(result)) == ["small", "large"]
