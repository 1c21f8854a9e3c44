"""The program of a process that compiles a chat template and renders it (see `chat_template`), within limits.

It imports Jinja and the standard library alone. The first line of its input is the template, each other one the variables of a
text; each is answered by a line: {"text": ...}, or {"error": ...}.
"""

import contextlib
import datetime
import json
import resource
import signal
import sys
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

__all__ = ["MEMORY_BYTES", "SECONDS", "TEMPLATE_DATE"]

#: Date that templates are told: the one that Llama 3's template writes where nobody tells it another.
TEMPLATE_DATE = datetime.datetime(2024, 7, 26)

#: Seconds to compile a template, or for one text.
SECONDS = 5

#: Bytes of address space.
MEMORY_BYTES = 512 << 20


class _Generation(Extension):
    """The block `generation`, which marks what an assistant said: its content is written, the mark is not needed here."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja has it

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> jinja2.Environment:
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    made.filters["tojson"] = _to_json
    made.globals |= {"raise_exception": _refuse, "strftime_now": TEMPLATE_DATE.strftime}
    return made


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
):
    """Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: Any) -> str:
    """What templates call `raise_exception`."""
    raise jinja2.TemplateError(str(message))


def main() -> None:
    """Answer each line of the input."""
    with contextlib.suppress(OSError, ValueError):  # no system but Linux limits this
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    environment, template = _environment(), None
    for line in sys.stdin.buffer:
        given = json.loads(line)
        signal.alarm(SECONDS)  # ends the process
        try:
            if template is None:
                template, text = environment.from_string(given), ""
            else:
                text = template.render(given)
            answer = json.dumps({"text": text})
        # A template is a program, which may fail in any way.
        except MemoryError:
            answer = json.dumps({"error": f"it needs more than {MEMORY_BYTES >> 20} MiB of memory"})
        except Exception as error:
            answer = json.dumps({"error": str(error)[:1000] or type(error).__name__})
        signal.alarm(0)
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
