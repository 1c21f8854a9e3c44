"""Results that somebody has edited: what an export needs of them is missed before it begins."""

import json
from pathlib import Path

import pytest
from finished_runs import write_run

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.errors import InputError
from jaxspec.models.families import decoder_config
from jaxspec.models.hf_load import load_directory
from jaxspec.settings import build_config
from jaxspec.studies import TuneConfig
from jaxspec.studies.export.run import open_run, target_files


@pytest.mark.parametrize(
    ("name", "value"),
    [("knobs", None), ("bits_per_weight", None), ("bits_per_weight", "x"), ("speedup_vs_bf16_ar", [1.0])],
)
def test_a_number_that_is_none_is_named_at_once(tiny_model, some_text, small, tmp_path, name, value):
    config = build_config(TuneConfig, small, {"model": str(tiny_model), "text": str(some_text)})
    tuned = uniform_knobs(CASSANDRA1, load_directory(tiny_model).config)
    run = write_run(tmp_path / "run", config, {"tuned": tuned})
    assert open_run(str(run)).configuration == "tuned"
    entries = json.loads((run / "result.json").read_text())
    entries[0]["configurations"]["tuned"][name] = value
    (run / "result.json").write_text(json.dumps(entries))
    with pytest.raises(InputError, match=f"holds no {name} of tuned; run the same"):
        open_run(str(run))


def test_a_draft_of_a_packed_network_is_not_called_packed():
    """Its weights are written whole, and tools would look for blocks and scales."""
    packed = Path(__file__).parents[3] / "golden" / "hf" / "gpt_oss_packed"
    files = target_files(str(packed))
    assert files.config["quantization_config"]["quant_method"] == "mxfp4"
    assert files.written_config("bfloat16") == {
        name: value for name, value in files.config.items() if name != "quantization_config"
    } | {"dtype": "bfloat16"}


def test_a_draft_is_of_a_family_that_engines_know():
    golden = Path(__file__).parents[3] / "golden" / "hf"
    kimi = target_files(str(golden / "kimi_k2_released"))
    assert (kimi.config["model_type"], set(kimi.config["auto_map"])) == ("kimi_k2", {"AutoModelForCausalLM"})
    written = kimi.written_config("bfloat16")
    assert (written["model_type"], written["architectures"]) == ("deepseek_v3", ["DeepseekV3ForCausalLM"])
    assert not {"auto_map", "quantization_config"} & written.keys()
    assert decoder_config(written) == decoder_config(kimi.config)
    seeing = target_files(str(golden / "qwen3_vl_multimodal"))
    written = seeing.written_config("bfloat16")
    assert (written["model_type"], written["architectures"]) == ("qwen3", ["Qwen3ForCausalLM"])
    assert written["rope_parameters"] == {"rope_type": "default", "rope_theta": 6000.0}
    del seeing.config["text_config"]["max_position_embeddings"]  # 32,768 by default under the name that is written
    assert seeing.written_config("bfloat16")["max_position_embeddings"] == 128_000
    assert decoder_config(written) == decoder_config(seeing.config)
