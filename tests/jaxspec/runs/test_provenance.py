"""The commit that a run records, and that asking for it leaves the repository alone."""

import os
import subprocess

from jaxspec.runs import provenance


def test_the_commit_is_told_without_a_lock_on_the_index(tmp_path, monkeypatch):
    """A git that is stopped while it rewrites the index leaves a lock, which is in the way of all later commands."""
    source, index = tmp_path / "source.py", tmp_path / ".git" / "index"
    git = lambda *arguments: subprocess.run(
        ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        check=True,
        capture_output=True,
    )
    source.write_text("one")
    for command in (["init"], ["add", "source.py"], ["commit", "-m", "first"]):
        git(*command)
    os.utime(source, (1, 1))  # the index is stale, as after a copy of the checkout
    before = index.read_bytes()
    monkeypatch.setattr(provenance, "__file__", str(source))
    found = provenance.source_commit.__wrapped__()
    assert found is not None
    assert len(found) == 12
    assert git("rev-parse", "HEAD").stdout.decode().startswith(found)
    (tmp_path / "untracked").write_text("")
    assert provenance.source_commit.__wrapped__() == found
    source.write_text("two")
    assert provenance.source_commit.__wrapped__() == f"{found}-dirty"
    assert index.read_bytes() == before
