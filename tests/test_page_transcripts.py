"""Output of commands that the guide shows is what they print."""

import re

import pytest
from write_tutorial import PAGE, TRANSCRIPT, output_of, printed, renumbered

BLOCKS = TRANSCRIPT.findall(PAGE.read_text(encoding="utf-8"))


@pytest.mark.study
@pytest.mark.parametrize(("commands", "shown"), [pair for pair in BLOCKS if "tune" not in pair[0]])
def test_tutorial(commands, shown, tmp_path):
    """All but tuning; dots stand for lines that are left out."""
    output = output_of(commands, tmp_path)
    # A climb ends in other digits where sums run in another order, from the fourth on.
    compared = to_three_digits if "codesign" in commands else str
    in_output = {compared(line) for line in output.splitlines()}
    assert [line for line in shown.splitlines() if line != "..." and compared(line) not in in_output] == []


def to_three_digits(line):
    return re.sub(r"\d+\.?\d*", lambda found: f"{float(found[0]):.3g}", line)


def test_new_numbers_are_put_into_the_lines_that_are_shown():
    output = "a 7\nhead\n───── ───\nspeed 12.5x\nspeed 13x\nend\n"
    assert renumbered("head\n─── ───\nspeed 2.25x\n...\nend\n", output) == "head\n───── ───\nspeed 12.5x\n...\nend\n"
    with pytest.raises(ValueError, match="no such line is printed any more, in this order: speeds 2x"):
        renumbered("speeds 2x\n", output)


def in_words(text):
    """Without line breaks, with "#" for each number, and without what is said of wide intervals alone."""
    words = " ".join(text.split()).replace(" (no clear difference)", "")
    return re.sub(r"\d[\d,]*(\.\d+)?", "#", words)


@pytest.mark.study
def test_tuning_in_the_tutorial_but_for_its_numbers(tmp_path):
    """These depend on the processor, and here on much smaller settings."""
    (shown,) = (shown for commands, shown in BLOCKS if "tune" in commands)
    few = "--prompts 4 --prompt-tokens 32 --output-tokens 8 --calibration-prompts 4 --steps 2 --uniform-steps 1"
    output = in_words(printed("tune", *few.split(), folder=tmp_path))
    parts = [in_words(part) for part in shown.split("...\n") if part]
    assert [part for part in parts if part not in output] == []
