"""The command `jaxspec pack`."""

from jaxspec.studies.pack.config import PackConfig
from jaxspec.studies.study import Out, Study, checked_later

__all__ = ["PACK"]

_HELP = """Pack a checkpoint, with a draft inside it, into one file.

CHECKPOINT is a safetensors file, a folder with one file or with shards, or 'embedded', the default.

\b
jaxspec pack model.safetensors -o model.jspk --scheme huffman     smallest lossless, decodes fastest
jaxspec pack DIR -o model.jspk                                    the target, with a draft inside it (cassandra1)
jaxspec pack DIR -o model.jspk --knobs runs/tune-.../result.json  the tuned draft
jaxspec pack DIR -o model.jspk --scheme elastic --slice-bits 4    8-bit weights, whose upper bits are the draft
jaxspec tune --model model.jspk                                   every --model takes a container

Lossless schemes restore every tensor bit for bit; each tensor is decoded and compared while it is packed.
"""


#: The study that writes a container.
PACK = Study(
    name="pack",
    config=PackConfig,
    help=_HELP,
    run="jaxspec.studies.pack.run:pack_checkpoint",
    present="jaxspec.studies.pack.report:shown",
    figures="jaxspec.studies.pack.figures:figures",
    out=Out(
        "The container.",
        "<name of the checkpoint>.jspk here",
        "Replace a container that is there.",
        names=("-o",),
        check=checked_later,
    ),
    argument="model",
    argument_name="checkpoint",
)
