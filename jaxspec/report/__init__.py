"""What a person sees of a run: a page, its figures, and tables for the terminal."""

from jaxspec.report.html import report_html, write_report
from jaxspec.report.table import tables
from jaxspec.studies.predict.figure import prediction_figure
from jaxspec.studies.predict.report import prediction_tables

__all__ = ["prediction_figure", "prediction_tables", "report_html", "tables", "write_report"]
