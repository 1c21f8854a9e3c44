"""What a person sees of a run: a page, its figures, and tables for the terminal."""

from jaxspec.report.html import report_html, write_report
from jaxspec.report.table import tables

__all__ = ["report_html", "tables", "write_report"]
