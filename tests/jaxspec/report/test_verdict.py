import pytest
from made_results import read

from jaxspec.report import configurations
from jaxspec.report.configurations import SpeedRatio


def headline(entry):
    return configurations.headline(read(entry))


def verdict(entry):
    return configurations.verdict(read(entry))


def test_tuned_pays(make_entry):
    found = verdict(make_entry())
    assert (found.best, found.speedup, found.pays, found.choice) == ("tuned", 2.33, True, "tuned")
    assert found.stored_speedup == pytest.approx(1.17)


def test_no_draft_pays_although_all_beat_16_bit_decoding(make_entry):
    entry = make_entry(pays=False)
    assert all(c["speedup_vs_bf16_ar"] > 1 for c in entry["configurations"].values())
    found = verdict(entry)
    assert (found.best, found.pays, found.choice) == ("default", False, "none")
    # Over stored AR 0.88 + 0.02 * 5.11 = 0.982, over 16-bit AR 1.17 times that: 1.149.
    assert all(words in headline(entry) for words in ("no draft pays", "1.15x", "1.17x"))


@pytest.mark.parametrize(("relative", "pays"), [(0.95, False), (1.0, False), (1.0 + 1e-8, False), (1.01, True)])
def test_a_draft_must_beat_decoding_of_the_stored_format(relative, pays):
    entry = {"configurations": {"tuned": {"speedup_vs_bf16_ar": 1.3 * relative, "speedup_vs_stored_ar": relative}}}
    assert verdict(entry).pays is pays
    assert verdict(entry).stored_speedup == pytest.approx(1.3)


def test_a_draft_must_beat_16_bit_decoding_too():
    # A stored format that is slow to read: beating it is no merit.
    entry = {"configurations": {"tuned": {"speedup_vs_bf16_ar": 0.9, "speedup_vs_stored_ar": 1.5}}}
    assert not verdict(entry).pays


def test_the_fastest_stored_format_is_the_bar():
    entry = {
        "configurations": {
            "default": {"speedup_vs_bf16_ar": 1.2, "speedup_vs_stored_ar": 0.8},  # stored AR 1.5
            "tuned": {"speedup_vs_bf16_ar": 1.4, "speedup_vs_stored_ar": 1.1},
        }
    }
    assert verdict(entry).stored_speedup == pytest.approx(1.5)
    assert not verdict(entry).pays


def test_an_interval_with_one_in_it_is_no_clear_difference(make_entry):
    assert SpeedRatio(1.02, 1.01, 1.05).clear
    assert SpeedRatio(1.02).clear
    assert not SpeedRatio(1.02, 0.98, 1.05).clear
    assert not SpeedRatio(1.02, 1.0, 1.05).clear
    entry = make_entry()
    entry["ratios"]["tuned_vs_grid"]["low"] = 0.97
    assert "1.14x (0.97 to 1.16) the speed of the best grid point (no clear difference) and" in headline(entry)
