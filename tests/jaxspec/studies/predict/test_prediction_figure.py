"""What `jaxspec predict --plot` draws, and prints, of networks and devices with parts that most have not."""

from matplotlib.colors import to_rgb

from hwmodels.step.step_cost import STEP_PARTS
from jaxspec.report.figures.configurations import OPERATOR_COLOURS
from jaxspec.studies.predict.figures import prediction_figure
from jaxspec.studies.predict.run import predict
from jaxspec.studies.predict.view import prediction_tables


def test_every_part_of_a_step_has_a_colour_of_its_own():
    assert set(OPERATOR_COLOURS) == set(STEP_PARTS)
    assert len(set(map(to_rgb, OPERATOR_COLOURS.values()))) == len(OPERATOR_COLOURS)


def test_linear_attention_is_drawn():
    found = predict(architecture="qwen3.5-27b", device="rtx-4090", max_draft_length=1)
    assert found[0].operators.known["verify"]["linear_attention"] > 0
    legends = [axes.get_legend() for axes in prediction_figure(found).axes]
    assert "linear_attention" in [text.get_text() for legend in legends if legend for text in legend.get_texts()]


def test_times_below_half_a_microsecond_are_printed():
    steps = prediction_tables(predict(architecture="embedded", device="rtx-4090", max_draft_length=1))[1]
    rows = [dict(zip([column.heading for column in steps.columns], row.cells, strict=True)) for row in steps.rows]
    verification = rows[-1]
    assert 0 < float(verification["compute"]) < 5e-4
    assert verification["decode"] == "0"
