"""Results that somebody has edited: what an export needs of them is missed before it begins."""

from pathlib import Path

from jaxspec.models.config import decoder_config
from jaxspec.studies.export.run import target_files


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
