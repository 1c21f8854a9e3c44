"""Typesets formulas while the site is built: TeX becomes MathML, which browsers show without a script or a download."""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert

#: What `pymdownx.arithmatex` (generic) leaves: a span with \(...\) within a line, a div with \[...\] between paragraphs.
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*\\[(\[](.*?)\\[)\]]\s*</\1>', re.DOTALL)


def mathml(tex: str, *, display: bool) -> str:
    """A formula as MathML.

    Args:
        display: between paragraphs, not within a line.
    Raises:
        ValueError: a command that is not known would be shown as it is written.
    """
    markup = convert(tex.strip(), display="block" if display else "inline")
    if re.search(r"[\\&]", shown := html.unescape(re.sub(r"<[^>]*>", "", markup))):
        raise ValueError(f"formula {tex.strip()!r}: a command is not known (shown as {shown!r})")
    return markup


def _typeset(match: re.Match[str]) -> str:
    tag, tex = match[1], html.unescape(match[2])
    return f'<{tag} class="formula">{mathml(tex, display=tag == "div")}</{tag}>'


def on_page_content(page_html: str, **_: object) -> str:
    """All formulas of a page."""
    return _FORMULA.sub(_typeset, page_html)
