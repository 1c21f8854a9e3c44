"""Record what transformers' assisted generation does with an exported draft of the embedded network.

Needs torch and transformers beside jaxspec: `python tests/golden/make_export_golden.py` writes `tests/golden/export.json`; with
`--check` it makes everything anew and compares. The draft is that of a finished run with the knobs below, exported by
`jaxspec export`; both networks compute in float32. Of each held-out prompt:
    tokens: that the target generates greedily, without a draft and with it.
    accepted: drafted tokens that were accepted, cycle by cycle, until there are `output_tokens` tokens.
The draft's weights depend on sums of floats; where another processor prunes other weights, acceptance may differ a little.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes import find_scheme
from jaxspec.models import embedded_directory, load_model
from jaxspec.settings.schemes import DEFAULT_SCHEME_NAME
from jaxspec.studies import ExportConfig, TuneConfig, export_draft
from jaxspec.text import load_text, windows

OUT = Path(__file__).parent / "export.json"
HELPERS = Path(__file__).parents[1] / "jaxspec" / "studies"
SETTINGS = {"prompts": 12, "prompt_tokens": 40, "output_tokens": 24, "calibration_prompts": 12}
KNOBS = {"weight_prune": 0.5, "weight_cut_bits": 4.0}
DRAFT_LENGTH = 4


def make_run(folder: Path, *, draft_length: int = DRAFT_LENGTH, **settings: Any) -> Path:
    """A finished run on the embedded network, calibrated on text as it was written, which needs no decoding.

    Args:
        settings: knobs, or settings of `jaxspec tune`, the scheme among them.
    """
    sys.path.insert(0, str(HELPERS))
    from finished_runs import write_run

    scheme = find_scheme(settings.get("scheme", DEFAULT_SCHEME_NAME))
    own = {name: value for name, value in KNOBS.items() if scheme.facts.prunes_and_cuts}
    own |= {spec.name: settings.pop(spec.name) for spec in scheme.knob_specs if spec.name in settings}
    knobs = uniform_knobs(scheme, load_model("embedded").config, own, draft_length=draft_length)
    config = TuneConfig(objective="bits_per_byte", **(SETTINGS | settings))
    return write_run(folder, config, {"tuned": knobs})


def held_out(*, prompts: int, prompt_tokens: int, seed: int = 0) -> np.ndarray:
    """The prompts that a run with these settings decodes, "prompt token"."""
    text = load_text("stdlib", load_model("embedded").tokenizer)
    return windows(text.held_out, prompts, prompt_tokens, seed)


def assisted(
    draft: Path, prompts: np.ndarray, *, draft_length: int, output_tokens: int, target: Path | None = None
) -> list[dict[str, Any]]:
    """What transformers generates for each prompt with the directory `draft` as the assistant of `target`.

    Args:
        target: None: the embedded network.
    """
    import torch
    import transformers
    from transformers.generation.candidate_generator import AssistedCandidateGenerator

    torch.set_num_threads(1)
    open_network = lambda place: transformers.AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32).eval()
    network, assistant = open_network(target or embedded_directory()), open_network(draft)
    assistant.generation_config.num_assistant_tokens = draft_length
    assistant.generation_config.num_assistant_tokens_schedule = "constant"
    assistant.generation_config.assistant_confidence_threshold = 0.0
    # Room behind the last token, so that no cycle that counts is cut short.
    options = {"max_new_tokens": output_tokens + draft_length + 1, "do_sample": False, "eos_token_id": None}
    found = []
    for prompt in torch.from_numpy(prompts).long():
        accepted: list[int] = []
        told = AssistedCandidateGenerator.update_candidate_strategy

        def note(self, input_ids, scores, num_matches, accepted=accepted, told=told):
            accepted.append(int(num_matches))
            return told(self, input_ids, scores, num_matches)

        inputs = {"attention_mask": torch.ones_like(prompt[None]), "pad_token_id": 0, **options}
        with torch.no_grad():
            plain = network.generate(prompt[None], **inputs)
            with patch.object(AssistedCandidateGenerator, "update_candidate_strategy", note):
                output = network.generate(prompt[None], assistant_model=assistant, **inputs)
        assert torch.equal(plain, output), "assisted output differs from the target's own"
        cycles = int(np.searchsorted(np.cumsum(np.array(accepted) + 1), output_tokens)) + 1
        tokens = plain[0, len(prompt) : len(prompt) + output_tokens].tolist()
        found.append({"tokens": tokens, "accepted": accepted[:cycles]})
    return found


def make(folder: Path) -> dict[str, Any]:
    """Everything that is recorded."""
    import torch
    import transformers

    run = make_run(folder / "run")
    export_draft(ExportConfig(run=str(run), prompts=0), folder / "draft")
    prompts = held_out(prompts=SETTINGS["prompts"], prompt_tokens=SETTINGS["prompt_tokens"])
    output_tokens = SETTINGS["output_tokens"]
    return {
        "prompts": assisted(folder / "draft", prompts, draft_length=DRAFT_LENGTH, output_tokens=output_tokens),
        "settings": {"draft_length": DRAFT_LENGTH, "knobs": KNOBS, **SETTINGS},
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "weights_sha256": hashlib.sha256((folder / "draft" / "model.safetensors").read_bytes()).hexdigest(),
    }


def main() -> int:
    """Write what was found, or compare it with what is stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; compare with the stored file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = make(Path(folder))
    if args.check:
        stored = json.loads(OUT.read_text())
        differing = [key for key in ("prompts", "settings", "weights_sha256") if found[key] != stored[key]]
        print(f"{', '.join(differing)} differ" if differing else "all agrees")
        return 1 if differing else 0
    text = json.dumps(found, sort_keys=True, separators=(",", ":")).replace("},{", "},\n{")
    OUT.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
