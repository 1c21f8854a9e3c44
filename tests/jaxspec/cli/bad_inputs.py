"""Kinds of bad input, one a row: what is typed, which files lie in the working directory, what the answer must say.

`{samples}` stands for a folder with a good network, weights, container, device and architecture.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import hwmodels.catalog

DEVICE = (Path(hwmodels.catalog.__file__).parent / "devices" / "rtx-4090.toml").read_text(encoding="utf-8")

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 256,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
}

KNOBS = {"weight_prune": 0.4, "weight_cut_bits": 4, "kv_prune": 0.0, "kv_cut_bits": 4, "draft_length": 5}


class Row(NamedTuple):
    """One kind of bad input.

    Attributes:
        typed: arguments, separated by spaces; "''" is an empty one.
        says: what the line must contain.
        files: name -> content; None is a folder.
    """

    typed: str
    says: str
    files: dict[str, str | bytes | None] | None = None

    def arguments(self, samples):
        """What the process gets."""
        return ["" if word == "''" else word.replace("{samples}", str(samples)) for word in self.typed.split(" ")]


def config(**changes):
    """config.json with changes; None removes a key."""
    return json.dumps({key: value for key, value in (CONFIG | changes).items() if value is not None})


def knobs(**changes):
    """result.json of a tuning run with changed knobs."""
    return json.dumps([{"configurations": {"tuned": {"knobs": KNOBS | changes}}}])


#: Words on the command line.
WORDS = [
    Row("tnue", "no such command 'tnue'; did you mean tune?"),
    Row("''", "no such command ''"),
    Row("-v", "no such option -v"),
    Row("tune --devcie rtx-4090", "no such option --devcie; did you mean --device?; see jaxspec tune --help"),
    Row("predict --acceptence 0.9", "did you mean --acceptance or "),
    Row("evaluate extra", "extra"),
    Row("tune --batch", "--batch"),
    Row("unpack", "CONTAINER"),
    Row("inspect", "PATH"),
    Row("devices --source", "did you mean --sources?"),
    Row("inspect {samples}/packed.jspk --all --tensor a", "leave one of them out"),
    Row("sweep --example s.toml", "leave everything else out"),
    Row("sweep", "--example prints one"),
]

#: Numbers and names given as flags.
FLAGS = [
    Row("tune --batch 0", "batch is 0; allowed is 1 to 4096"),
    Row("tune --batch 1,8", "'1,8' is a list; give one number, lists go to jaxspec predict, advise or sweep"),
    Row("tree --context 1k,8k", "lists go to --contexts"),
    Row("advise --run nosuch", "run 'nosuch' cannot be read (No such file or directory); give"),
    Row("predict --json -", "give the name of a file, or /dev/stdout"),
    Row("tune --batch 1.5", "'1.5' is not a valid integer"),
    Row("tune --prompts 0", "prompts is 0; allowed is 1 to 100,000"),
    Row("tune --stop none,3", "'none' stands alone"),
    Row("tune --temperature nan", "temperature is nan; allowed is 0 to 10"),
    Row("tune --objective beauty", "allowed are speedup, kl, bits_per_byte"),
    Row("tune --scheme casandra1", "did you mean 'cassandra1'"),
    Row("tune --model ''", "model is ''"),
    Row("tune --device ''", "one or more names"),
    Row("tune --device rtx-409", "did you mean 'rtx-4090'"),
    Row("tune --device " + "x" * 3000, "unknown device"),
    Row("tune --architecture lama-3.1-8b", "did you mean 'llama-3.1-8b'"),
    Row("predict --architecture llama-3.1–8b", "unknown architecture"),
    Row("tune --out ''", "--out"),
    Row("tune --json .", "--json '.'"),
    Row("evaluate --weight-prune 0.96", "weight_prune is 0.96; allowed is 0 to 0.95"),
    Row("tree --draft nobody", "draft 'nobody' is unknown"),
    Row("tree --draft embeded-head", "did you mean 'embedded-head'?"),
    Row("tree --search luck", "allowed are prior, width, depth, greedy"),
    Row("predict --context 1,024", "context is '1,024', with 024; write a number without commas, as 1024 or 1k"),
    Row("serve --draft-device 1", "no such option --draft-device; a draft runs on the devices of its target, --device"),
    Row("tree --contexts 1q", "whole numbers, separated by commas"),
    Row("tree --contexts 5,-1", "contexts is -1; allowed is 0 to 10,000,000"),
    Row("predict --acceptance 1.2", "acceptance is 1.2; allowed are numbers from 0 to 1"),
    Row("predict --acceptance 0.9;0.8", "numbers from 0 to 1, separated by commas"),
    Row("predict --acceptance " + ",".join(["0.9"] * 65), "65 positions; allowed are 1 to 64"),
    Row("predict --draft-bits 0", "draft_bits is 0; allowed is more than 0 to 64"),
    Row("predict --architecture own", "needs a network"),
    Row("predict --scheme zip", "allowed are cassandra1"),
    Row("predict --plot p.xlsx", ".png, .svg"),
    Row("predict --plot missing.toml/x.png", "cannot be written", {"missing.toml": "a file"}),
    Row("pack {samples}/weights.safetensors --weight-cut-bits 3.5", "not a valid integer"),
    Row("pack {samples}/weights.safetensors --importance guess", "auto, wanda, magnitude"),
    Row("pack {samples}/weights.safetensors -o ''", "--out"),
]

#: Flags that contradict one another.
CONFLICTS = [
    Row("tree --draft ngram --weight-prune 0.3", "weight_prune would have no effect: draft 'ngram' is not"),
    Row("evaluate --knobs r.json --weight-prune 0.4", "knobs takes all of them", {"r.json": knobs()}),
    Row("evaluate --config c.toml --kv-prune 0.1", "kv_prune", {"c.toml": "knobs = 'r.json'", "r.json": knobs()}),
    Row(
        "predict --scheme bf16 --draft-bits 4 --verify-bits 8 --draft-kv-bits 8 --verify-kv-bits 8",
        "scheme would have no effect",
    ),
]

#: Files of settings.
SETTINGS = [
    Row("tune --config absent.toml", "cannot be read"),
    Row("tune --config ''", "configuration is ''"),
    Row("tune --config .", "cannot be read"),
    Row("tune --config c.toml", "not valid TOML", {"c.toml": "batch = "}),
    Row("tune --config c.toml", "not valid TOML", {"c.toml": "a = " + "[" * 5000}),
    Row("tune --config c.toml", "unknown setting 'devise'; did you mean 'device'?", {"c.toml": "devise = 'l40s'"}),
    Row("tune --config c.toml", "must be one whole number", {"c.toml": "batch = 'two'"}),
    Row("tune --config c.toml", "one or more names", {"c.toml": "device = [1, 2]"}),
    Row("tune --config c.toml", "control characters", {"c.toml": 'model = "a\\u0000b"'}),
    Row("tree --config c.toml", "whole numbers", {"c.toml": "contexts = [1.5]"}),
]

#: Devices, architectures, knobs and text of one's own.
FILES = [
    Row("scale --model nowhere", "nowhere"),
    Row("scale --method pass-at-m", "did you mean 'pass-at-n'"),
    Row("scale --task arithmetic --score judge --judge nowhere", "nowhere"),
    Row("scale --text t.py", "has 0 functions", {"t.py": "x = 1\n" * 50}),
    Row("scale --text t.py", "cannot be read"),
    Row("scale --accuracy 1.5", "accuracy is 1.5; allowed is 0 to 1"),
    Row("scale --draft self", "with --acceptance"),
    Row("predict --device mine.toml", "mine.toml"),
    Row("predict --device mine.toml", "cannot be read", {"mine.toml": None}),
    Row("predict --device mine.toml", "title", {"mine.toml": ""}),
    Row("predict --device mine.toml", "UTF-8", {"mine.toml": b"\x93\x00\xff"}),
    Row("predict --device mine.toml", "unknown key", {"mine.toml": DEVICE + "\n[memroy]\nx = 1\n"}),
    Row("predict --device mine.toml", "is missing", {"mine.toml": 'title = "t"\n'}),
    Row("predict --device mine.toml", "a positive number", {"mine.toml": DEVICE.replace("1008e9", "-1.0")}),
    Row("predict --architecture c.json", "c.json", {"c.json": "{"}),
    Row("predict --architecture gone/config.json", "'gone/config.json' is no file or folder here"),
    Row("predict --architecture c.json", "c.json", {"c.json": b"\x80\x81"}),
    Row("predict --architecture c.json", "num_hidden_layers", {"c.json": config(num_hidden_layers=None)}),
    Row(
        "predict --architecture c.json", "state-space layers", {"c.json": config(model_type="mamba", ssm_state_size=8)}
    ),
    Row("predict --architecture folder", "folder", {"folder": None}),
    Row("evaluate --model {samples}/model --knobs absent.json", "cannot be read"),
    Row("evaluate --model {samples}/model --knobs k.json", "no knobs of a draft", {"k.json": "{"}),
    Row("evaluate --model {samples}/model --knobs k.json", "weight_prune", {"k.json": knobs(weight_prune=2)}),
    Row("evaluate --model {samples}/model --knobs k.json", "unknown knob 'prune'", {"k.json": knobs(prune=0.1)}),
    Row("tune --text absent.txt", "cannot be read"),
    Row("tune --text t.jsonl", "line 2 has 'a'", {"t.jsonl": '{"text": "a"}\n{"a": 1}\n'}),
    Row("tree --prompts absent.txt", "prompts 'absent.txt' is neither a whole number nor a file"),
    Row("tune --mesh data=x", "mesh is 'data=x'; give the devices along its axes"),
    Row("evaluate --mesh tensor=60000", "give fewer along an axis"),
    Row("evaluate --mesh tensor=1 --stream", "with stream, layers pass through one device"),
    Row("tune --config c.toml", "stream is 3; it must be true or false", {"c.toml": "stream = 3"}),
    Row("tree --prompts " + "x" * 3000, "is neither a whole number nor a file"),
    Row("evaluate --prompts p.jsonl", "line 1 is no JSON", {"p.jsonl": "hello\n"}),
    Row(
        "evaluate --prompts p.jsonl", "no chat template", {"p.jsonl": '{"prompt": [{"role": "user", "content": "a"}]}'}
    ),
    Row("tune --stop 256", "stop '256' is no token of 'embedded'"),
    Row("tune --stop eos", "neither generation_config.json nor config.json"),
]

#: Checkpoints and containers.
CHECKPOINTS = [
    Row("tune --model absent", "absent"),
    Row("tune --model empty", "config.json", {"empty": None}),
    Row("tune --model absent.jspk", "cannot be opened"),
    Row("tune --model {samples}/cut", "model.safetensors"),
    Row("tune --model {samples}/garbled", "model.safetensors"),
    Row("tune --model {samples}/family", "mamba"),
    Row("tune --model {samples}/shapes", "shape"),
    Row("tune --model {samples}/endless", "generation_config.json is a folder where a file belongs"),
    Row("pack absent", "does not exist"),
    Row("pack w.safetensors", "w.safetensors", {"w.safetensors": b"\xff" * 64}),
    Row("pack {samples}/weights.safetensors -o .", "there already"),
    Row("pack {samples}/weights.safetensors -o w.jspk", "there already", {"w.jspk": "mine"}),
    Row("pack {samples}/family --importance wanda", "mamba"),
    Row("unpack absent.jspk -o x", "cannot be opened"),
    Row("unpack {samples}/weights.safetensors -o x", "no container"),
    Row("unpack {samples}/damaged.jspk -o x", "damaged"),
    Row("unpack {samples}/cut.jspk -o x", "cut.jspk"),
    Row("inspect {samples}/damaged.jspk", "damaged"),
    Row("inspect notes.txt", "notes.txt", {"notes.txt": "hello"}),
    Row("inspect {samples}/packed.jspk --tensor nobody", "nobody"),
    Row("pack .", "no .safetensors file"),
    Row("pack {samples}/weights.safetensors -o {samples}/weights.safetensors --force", "weights.safetensors"),
    Row("pack {samples}/model -o {samples}/model/model.safetensors --force", "model.safetensors"),
    Row("unpack {samples}/packed.jspk -o .", "there already", {"weights.safetensors": "mine"}),
    Row("tune --model {samples}/model --text t.txt", "6", {"t.txt": "short\n"}),
    Row("tune --model {samples}/model --text t.bin", "t.bin", {"t.bin": bytes(range(256)) * 40}),
    Row("tune --model {samples}/model --text t.txt", "t.txt", {"t.txt": "täxt ".encode("utf-16") * 2000}),
]

ROWS = [*WORDS, *FLAGS, *CONFLICTS, *SETTINGS, *FILES, *CHECKPOINTS]
