"""What a person sees of a run: a page, its figures, and tables for the terminal."""

from jaxspec.report.figures.prediction import prediction_figure
from jaxspec.report.html import report_html, write_report
from jaxspec.report.prediction import prediction_tables
from jaxspec.report.table import tables

__all__ = ["prediction_figure", "prediction_tables", "report_html", "tables", "write_report"]
