"""Figures as files."""

import contextlib
import resource

import pytest
from matplotlib.figure import Figure

from jaxspec.errors import InputError
from jaxspec.report.figures.style import save_figure


@contextlib.contextmanager
def small_files(limit):
    """No file of this process may be larger, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.pdf", "a"])
def test_a_figure_on_a_full_disk_is_one_line_and_no_file(tmp_path, name):
    figure = Figure((2, 2))
    figure.add_subplot().plot([0, 1], [0, 1])
    with small_files(500), pytest.raises(InputError) as refusal:
        save_figure(figure, tmp_path / "new" / name)
    assert str(refusal.value) == f"plot '{tmp_path}/new/{name}' cannot be written (File too large); give another file"
    assert list(tmp_path.iterdir()) == []
    save_figure(figure, tmp_path / "new" / name)
    assert (tmp_path / "new" / name).stat().st_size > 500
