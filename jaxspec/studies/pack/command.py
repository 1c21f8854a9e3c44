"""The command `jaxspec pack`."""

from jaxspec.studies.pack.config import PackConfig
from jaxspec.studies.study import Out, Study, checked_later

__all__ = ["PACK"]

_HELP = """Pack CHECKPOINT (a safetensors file, a folder with one or with shards, or 'embedded', the default) into one file.

\b
jaxspec pack model.safetensors -o model.jspk --scheme huffman     smallest, decodes fastest
jaxspec pack DIR -o model.jspk                                    the target, and inside it a draft (cassandra1)
jaxspec pack DIR -o model.jspk --knobs runs/tune-.../result.json  the draft that was tuned
jaxspec tune --model model.jspk                                   containers open wherever a model is asked for

Lossless schemes restore every tensor bit for bit; each is decoded and compared before it counts as packed.
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
