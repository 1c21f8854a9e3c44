"""A run whose settings were changed after it: its results are of others."""

import json

import pytest

from jaxspec.errors import InputError
from jaxspec.runs.kept import new_record
from jaxspec.settings.toml import to_toml
from jaxspec.studies import EvaluateConfig
from jaxspec.studies.export.run import open_run


def test_they_are_noticed_before_anything_is_read(tmp_path):
    config = EvaluateConfig(seed=3)
    (tmp_path / "run.json").write_text(json.dumps(new_record("evaluate", config)))
    (tmp_path / "config.toml").write_text(to_toml(config))
    with pytest.raises(InputError, match="is not finished"):
        open_run(str(tmp_path))
    (tmp_path / "config.toml").write_text(to_toml(EvaluateConfig(seed=4)))
    with pytest.raises(InputError, match=r"config\.toml' has changed since the run was begun"):
        open_run(str(tmp_path))
