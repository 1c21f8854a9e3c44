"""Commands price a quantized release as it is stored, and a head's config.json as the head that it is."""

import importlib
import json

import pytest

from hwmodels import DraftCost, Workload, catalog, parameters, uniform_footprint
from hwmodels.speculation.draft_cost import (
    EAGLE3_VOCABULARY,
    eagle_head,
    held_with_draft,
    medusa_head,
    multi_token_head,
)
from jaxspec.errors import InputError
from jaxspec.settings import build_config
from jaxspec.studies.advise.config import AdviseConfig
from jaxspec.studies.advise.inputs import named_draft, read_widths, served_draft
from jaxspec.studies.engine_flags import ServedDraft
from jaxspec.studies.predict.config import PredictConfig
from jaxspec.studies.predict.run import predict
from jaxspec.studies.predict.view import prediction_tables
from jaxspec.studies.release import release_notes, scheme_footprint, with_release_kernels
from jaxspec.studies.serve.config import ServeConfig

FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
SIZES = {
    **{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 512, "intermediate_size": 1024, "head_dim": 64},
    **{"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1000, "tie_word_embeddings": False},
}
# Of a head for Llama-3.1-8B.
EAGLE3 = {
    **{"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 4096},
    **{"intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256},
    **{"draft_vocab_size": 32000, "tie_word_embeddings": False},
}
LLAMA = "llama-3.1-8b"


@pytest.fixture
def write(tmp_path):
    def made(content, name="config.json"):
        (tmp_path / name).write_text(json.dumps(content))
        return str(tmp_path / name)

    return made


@pytest.fixture
def release(write):
    return write(SIZES | {"quantization_config": FP8 | {"kv_cache_quant_algo": None}})


def test_a_quantized_release_is_the_default_scheme(release, write):
    plain = write(SIZES, "plain.json")
    for kind, usual in ((PredictConfig, "cassandra1"), (ServeConfig, "cassandra1"), (AdviseConfig, "bf16")):
        assert build_config(kind, {"architecture": release}).scheme == "released"
        assert build_config(kind, {"architecture": plain}).scheme == usual
        assert build_config(kind, {"architecture": LLAMA}).scheme == usual
        assert build_config(kind, {"architecture": release, "scheme": "bf16"}).scheme == "bf16"


def test_prediction_reads_a_release_as_it_is_stored(release):
    (found,) = predict(architecture=release, device="rtx-4090", max_draft_length=1)
    counts = parameters(catalog.architecture_from_config_file(release))
    read = sum(counts.values()) - counts["lm_head"] - counts["embed"] - counts["norm"]
    bits = 8 + 32 / 128**2
    expected = (float(read) * bits + 16 * float(counts["lm_head"])) / 8
    assert found.steps["ar_stored"].weight_bytes.value == pytest.approx(expected, rel=0.01)
    assert found.footprint.verify_bits.value == pytest.approx(bits)
    assert found.scheme.value == "released"
    assert found.release == "stored as released, in FP8 in blocks of 128 x 128; LM head, embedding and norms in 16 bits"
    assert found.release in prediction_tables([found])[0].title
    assert found.lossless is True
    assert any("reads all that the release stores" in note for note in found.notes)


def test_widths_that_are_given_win_over_the_release(release):
    given = {"draft_bits": 4.0, "verify_bits": 6.0, "verify_kv_bits": 8.0}
    (found,) = predict(architecture=release, device="rtx-4090", max_draft_length=1, **given)
    counts = parameters(catalog.architecture_from_config_file(release))
    layers = float(sum(counts[kind] for kind in ("q", "k", "v", "o", "gate", "up", "down")))
    for step, bits in (("verify", 6.0), ("draft", 4.0)):
        expected = (layers * bits + 16 * float(counts["lm_head"])) / 8
        assert found.steps[step].weight_bytes.value == pytest.approx(expected, rel=0.01)
    assert found.footprint.verify_kv_bits.value == 8.0


def test_a_release_without_a_form_is_refused(write):
    with pytest.raises(InputError, match=r"scheme is 'released', but of architecture .* no quantized form is known"):
        predict(architecture=write(SIZES), scheme="released", device="rtx-4090")


def held_gb(architecture, config, devices=1):
    footprint = scheme_footprint(config, {})
    load = Workload(batch=1.0, context_tokens=1024.0)
    held = held_with_draft(architecture, workload=load, footprint=footprint, draft_cost=DraftCost())
    return float(held) / 1e9 / devices


def test_releases_of_the_catalog_fit_as_they_are_stored():
    for name, devices, room in (("gpt-oss-120b", 1, 80.0), ("deepseek-v3", 8, 141.0)):
        stored = build_config(AdviseConfig, {"architecture": name})
        assert stored.scheme == "released"
        architecture = catalog.architecture(name)
        assert held_gb(architecture, stored, devices) < 0.9 * room
        whole = build_config(AdviseConfig, {"architecture": name, "scheme": "bf16"})
        assert held_gb(architecture, whole, devices) > room
        assert build_config(AdviseConfig, {"architecture": name, "draft": "self"}).scheme == "cassandra1"
        (said,) = release_notes(name, "bf16")
        assert said.startswith(f"{name} is not priced as released, in ")


def test_kernels_of_the_form_are_used_where_they_are_measured(release):
    config = build_config(PredictConfig, {"architecture": release})
    assert with_release_kernels(config, "h100-sxm").weight_format == "fp8_block"
    assert with_release_kernels(config, "a100-sxm-80gb").weight_format is None
    assert with_release_kernels(config, "rtx-4090").weight_format is None
    given = build_config(PredictConfig, {"architecture": release, "weight_format": "fp8"})
    assert with_release_kernels(given, "h100-sxm").weight_format == "fp8"
    sixteen = build_config(PredictConfig, {"architecture": release, "scheme": "bf16"})
    assert with_release_kernels(sixteen, "h100-sxm").weight_format is None


def test_serving_has_room_beside_a_release_as_it_is_stored(release, write):
    serving = importlib.import_module("jaxspec.studies.serve.run")  # the package's `serve` is the function
    common = {"device": "h100-sxm", "requests": 20}
    head = {"draft_architecture": write(EAGLE3 | {"hidden_size": 512, "num_attention_heads": 8}, "head.json")}

    def parts(**settings):
        return serving._parts_of_all(build_config(ServeConfig, common | settings))["h100-sxm"]

    stored, plain = parts(architecture=release), parts(architecture=release, scheme="bf16")
    bits = stored.case.footprint
    assert bits.target_weight_bits["q"] == bits.draft_weight_bits["q"] == 8 + 32 / 128**2
    assert stored.case.device.matrix_unit.weight_format == "fp8_block"
    assert plain.case.device.matrix_unit.weight_format is None
    assert stored.capacity_tokens > plain.capacity_tokens
    drafted = parts(architecture=release, **head)
    assert float(drafted.case.draft.maps_logits) == 1.0
    assert drafted.case.footprint.draft_weight_bits["q"] == 16.0


def test_widths_of_an_advised_draft_follow_its_own_release(release):
    config = build_config(AdviseConfig, {"architecture": LLAMA, "draft": release, "acceptance": 0.8})
    widths = read_widths(config)
    assert (widths.draft_weight_bits["q"], widths.draft_weight_bits["lm_head"]) == (8 + 32 / 128**2, 16.0)
    assert widths.target_weight_bits["q"] == 16.0
    narrow = build_config(AdviseConfig, {"architecture": release, "draft": release, "draft_bits": 4.0})
    assert read_widths(narrow).draft_weight_bits == uniform_footprint(4.0).draft_weight_bits
    assert read_widths(narrow).target_weight_bits["q"] == 8 + 32 / 128**2


def test_the_head_of_a_release_is_stored_as_the_release():
    config = build_config(AdviseConfig, {"architecture": "deepseek-v3", "scheme": "released", "draft": "mtp"})
    assert read_widths(config).draft_weight_bits["down"] == 8 + 32 / 128**2


def test_an_eagle3_head_of_a_file_costs_what_eagle3_does(write):
    target = catalog.architecture(LLAMA)
    file = write(EAGLE3)
    found, named = named_draft(AdviseConfig(draft=file), target), eagle_head(target, EAGLE3_VOCABULARY)
    assert found.architecture == named.architecture
    assert (found.shares_ends, found.maps_logits) == (named.shares_ends, named.maps_logits) == (0.0, 1.0)
    config = build_config(AdviseConfig, {"architecture": LLAMA, "draft": file})
    assert config.kind == "eagle3"
    served = served_draft(config)
    assert served == ServedDraft("eagle3", f"<weights of {file}>")


def test_a_head_has_sizes_of_its_own(write):
    target = catalog.architecture(LLAMA)
    file = write(EAGLE3 | {"intermediate_size": 28672, "draft_vocab_size": 64000})
    wide = named_draft(AdviseConfig(draft=file), target).architecture
    assert wide.intermediate_size - eagle_head(target).architecture.intermediate_size == 14336
    assert wide.vocab_size == 64000
    nested = {key: value for key, value in EAGLE3.items() if key not in ("architectures", "draft_vocab_size")}
    speculator = {"speculators_model_type": "eagle3", "transformer_layer_config": nested, "draft_vocab_size": 32000}
    found = named_draft(AdviseConfig(draft=write(speculator, "speculator.json")), target)
    assert found.architecture == eagle_head(target, EAGLE3_VOCABULARY).architecture
    medusa = write({"medusa_num_heads": 5, "medusa_num_layers": 2}, "medusa.json")
    assert named_draft(AdviseConfig(draft=medusa), target) == medusa_head(target, 2.0)
    few = {"architectures": ["DeepseekV3ForCausalLMNextN"], "model_type": "deepseek_v3"}
    assert named_draft(AdviseConfig(draft=write(few, "few.json")), target) == multi_token_head(target)


@pytest.mark.parametrize(
    ("raw", "title"),
    [
        ({"architectures": ["DFlashDraftModel"], "block_size": 16}, "a DFlash head"),
        ({"model_type": "mlp_speculator", "n_predict": 3}, "an MLP speculator"),
    ],
)
def test_a_head_that_is_not_priced_is_refused_by_name(write, raw, title):
    with pytest.raises(
        InputError, match=f"is {title} .* which is not priced; give a kind that is: eagle, eagle3, medusa, mtp"
    ):
        named_draft(AdviseConfig(draft=write(raw)), catalog.architecture(LLAMA))


def test_a_head_is_refused_as_a_target(write):
    with pytest.raises(InputError, match="an EAGLE-3 head, which is no network of its own; give it as the draft"):
        predict(architecture=write(EAGLE3), device="rtx-4090")
