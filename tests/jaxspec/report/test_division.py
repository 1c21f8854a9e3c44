"""Several devices in settings: groups of a study, refusals in one line, axes of a sweep, what a report says."""

import pytest

from hwmodels.parallel.group import DeviceGroup
from jaxspec.errors import InputError
from jaxspec.settings import build_config
from jaxspec.studies.measured.pricing import resolve_pricing
from jaxspec.studies.predict.config import PredictConfig
from jaxspec.studies.study import find_study

SEVENTY = {"architecture": "llama-3.1-70b", "device": "h100-sxm"}


def priced(**settings):
    return resolve_pricing(build_config(PredictConfig, settings), settings["device"], None)


def test_one_device_has_no_group():
    assert priced(**SEVENTY).device.group is None


def test_a_group_has_the_link_and_the_all_reduce_of_its_engine():
    groups = [priced(**SEVENTY, tensor_parallel=4, engine=engine).device.group for engine in ("vllm", "sglang", None)]
    assert all((group.tensor_parallel, group.draft_tensor_parallel) == (4, 4) for group in groups)
    launches = [group.link.all_reduce[0].launch_s for group in groups]
    assert len(set(launches)) == 3
    assert len({group.link.all_gather for group in groups}) == 1  # the library's
    other: DeviceGroup = priced(**SEVENTY, data_parallel=2, link="infiniband-ndr").device.group
    assert other.link.bandwidth_bytes_per_s == 50e9


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tensor_parallel": 3}, "tensor_parallel is 3, but llama-3.1-70b has 64 heads; give a divisor of it, such as"),
        ({"tensor_parallel": 2, "link": "nvlink9"}, "unknown link 'nvlink9'; did you mean"),
        ({"link": "nvlink4"}, "link would have no effect: one device holds everything"),
        ({"tensor_parallel": 2, "device": "hexagon-v75"}, "does not say how it is linked"),
    ],
)
def test_refusals(settings, words):
    with pytest.raises(InputError, match=words) as refused:
        priced(**SEVENTY | settings)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("command", "own", "none"),
    [
        ("predict", [], [{}]),
        ("tune", [], [{}]),
        ("evaluate", [], [{}]),
        ("sweep", [], [{"axes": {"workload.batch": [1]}}]),
        ("tree", [{"draft": "embedded-small"}], [{}, {"draft": "ngram"}, {"draft": "layer-skip"}]),
        ("scale", [{"draft": "embedded-head"}], [{}, {"draft": "sparse-kv-50"}]),
        ("compare", [{}, {"drafts": "ngram,embedded-small"}], [{"drafts": "ngram,q4"}, {"drafts": "none"}]),
        ("advise", [{}, {"draft": "llama-3.2-1b"}], [{"draft": "ngram"}, {"draft": "self"}]),
        ("serve", [{"draft_architecture": "llama-3.2-1b"}], [{}]),
    ],
)
def test_a_draft_network_is_divided_only_where_there_is_one(command, own, none):
    kind = find_study(command).config
    divided = {"tensor_parallel": 4, "draft_tensor_parallel": 2}
    for settings in own:
        assert build_config(kind, settings | divided).draft_tensor_parallel == 2
    for settings in none:
        with pytest.raises(InputError, match="draft_tensor_parallel would have no effect: "):
            build_config(kind, settings | divided)
