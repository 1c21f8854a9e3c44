"""Results as typed records whose numbers carry status and standard error; one serializer makes and reads `result.json`."""

from jaxspec.results.records import (
    STATUSES,
    UNKNOWN,
    Quantity,
    Record,
    Result,
    Status,
    calibrated,
    given,
    inline_dict_field,
    measured,
    predicted,
    quantity_field,
)

__all__ = [
    "STATUSES",
    "UNKNOWN",
    "Quantity",
    "Record",
    "Result",
    "Status",
    "calibrated",
    "given",
    "inline_dict_field",
    "measured",
    "predicted",
    "quantity_field",
]
