"""Pages, tables, formatting and style of figures that several studies share."""

from typing import TYPE_CHECKING

from jaxspec.lazy_names import lazy_names

if TYPE_CHECKING:
    from jaxspec.report.configurations import tables
    from jaxspec.report.page import Page, write_page
    from jaxspec.report.terminal import Shown, Table

__all__ = ["Page", "Shown", "Table", "tables", "write_page"]

lazy_names(__name__)
