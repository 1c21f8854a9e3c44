"""Style sheet of short pages on paper, where nothing scrolls: tables and commands fold instead of being cut."""

__all__ = ["PRINT_STYLE"]

#: For the end of a style sheet.
PRINT_STYLE = """
@media print {
  body { font-size: 10.5pt; max-width: none; margin: 0; padding: 0; }
  div, .scroll, pre { overflow: visible; }
  table { font-size: 8pt; width: 100%; } th, td { padding: .2rem .3rem; min-width: 0; white-space: normal; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; }
  tr, figure, svg, .headline { break-inside: avoid; } h2 { break-after: avoid; }
}
"""
