"""Copy the committed text snapshot out of the running interpreter's standard library: `python -m experiments.snapshot_text`.

The snapshot keeps every reported number independent of the Python version; run this only to replace it on purpose.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from experiments.train_embedded.corpus import HELD_OUT, is_held_out, standard_library

#: Modules the embedded network was trained on, of as many kinds as 190 kB allow.
CALIBRATION = (
    "base64.py",
    "concurrent/futures/thread.py",
    "dis.py",
    "html/parser.py",
    "json/encoder.py",
    "random.py",
    "socketserver.py",
    "tempfile.py",
)

TEXT = Path(__file__).parent.parent / "jaxspec" / "text"


def main() -> None:
    """Write both folders and the licence."""
    root = standard_library()
    for folder, modules in (("calibration", CALIBRATION), ("held_out", [f"{name}.py" for name in HELD_OUT])):
        shutil.rmtree(TEXT / folder, ignore_errors=True)
        (TEXT / folder).mkdir(parents=True)
        for module in modules:
            assert is_held_out(Path(module)) == (folder == "held_out"), module
            shutil.copyfile(root / module, TEXT / folder / (module.replace("/", ".") + ".txt"))
    shutil.copyfile(root / "LICENSE.txt", TEXT / "LICENSE.PSF")
    total = sum(path.stat().st_size for path in TEXT.rglob("*.txt"))
    print(f"{total:,} bytes in {TEXT}")
    if total > 500_000:
        raise SystemExit("the snapshot may hold at most 500,000 bytes; shorten CALIBRATION")


if __name__ == "__main__":
    main()
