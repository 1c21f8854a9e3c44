"""Builds the wheel with the standard library alone, so that installing needs no network; a package of yours names hatchling."""

import tomllib
import zipfile
from pathlib import Path


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """The files of the package, and what says who they are; pip calls this in the folder of `pyproject.toml`."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"], project["version"]
    groups = "".join(
        f"[{group}]\n" + "".join(f"{entry} = {place}\n" for entry, place in entries.items())
        for group, entries in project["entry-points"].items()
    )
    info = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: backend\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": groups,
    }
    files = {str(file): file.read_text(encoding="utf-8") for file in sorted(Path(name).iterdir()) if file.is_file()}
    files |= {f"{name}-{version}.dist-info/{file}": text for file, text in info.items()}
    files[f"{name}-{version}.dist-info/RECORD"] = "".join(f"{file},,\n" for file in files)
    wheel = f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / wheel, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return wheel
