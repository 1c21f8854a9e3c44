"""Bad files of a sweep, one a row: see `bad_inputs`."""

from bad_inputs import Row


def sweep(text):
    """A sweep's file, and an axis if the text has none."""
    return {"s.toml": text if "[axes]" in text else f"{text}\n[axes]\n'workload.batch' = [1]\n"}


#: A sweep's file.
SWEEPS = [
    Row("sweep absent.toml", "cannot be read"),
    Row("sweep s.toml", "not valid TOML", {"s.toml": "[axes"}),
    Row("sweep s.toml", "axes are missing", {"s.toml": "device = 'rtx-4090'"}),
    Row("sweep s.toml", "must be a table", {"s.toml": "axes = 3"}),
    Row("sweep s.toml", "unknown setting 'devices'; did you mean 'device'", sweep("devices = ['l40s']")),
    Row("sweep s.toml", "did you mean 'rtx-4090'", sweep("device = ['rtx-409']")),
    Row("sweep s.toml", "needs a network", sweep("architecture = 'own'")),
    Row("sweep s.toml", "axes.workload.batch is empty", sweep("[axes]\n'workload.batch' = []")),
    Row("sweep s.toml", "finite number", sweep("[axes]\n'workload.batch' = [1, nan]")),
    Row("sweep s.toml", "finite number", sweep("[axes]\n'workload.batch' = [1e300]")),
    Row("sweep s.toml", "did you mean 'workload.batch'", sweep("[axes]\n'workload.bacth' = [1]")),
    Row("sweep s.toml", "numbers above 0", sweep("[axes]\n'a' = {from = 0, to = 1, points = 3, scale = 'log'}")),
    Row(
        "sweep s.toml",
        "points; allowed are 50,000,000",
        sweep("".join(["[axes]\n"] + [f"'{axis}' = {{from = 1, to = 2, points = 9000}}\n" for axis in "ab"])),
    ),
    Row("sweep s.toml", "finite number", sweep("[axes]\n'workload.batch' = [1, 'two']")),
    Row("sweep s.toml", "finite number", sweep("[set]\n'workload.context_tokens' = true")),
    Row("sweep s.toml", "give a list of numbers or", sweep("[axes]\n'workload.batch' = { from = 1, to = 2 }")),
    Row(
        "sweep s.toml",
        "allowed are linear, log",
        sweep("[axes]\n'a' = {from = 1, to = 3, points = 3, scale = 'cubic'}"),
    ),
    Row("sweep s.toml", "axes.a.points is 60000000", sweep("[axes]\n'a' = {from = 1, to = 2, points = 60_000_000}")),
    Row("sweep s.toml", "give x and y", sweep("[pareto]\nx = 'a'")),
    Row("sweep s.toml", "both an axis and set", sweep("[set]\n'workload.batch' = 2")),
    Row("sweep s.toml", "pareto.x is 'speed'; allowed are", sweep("[pareto]\nx = 'speed'\ny = 'cycle_s'")),
    Row("sweep s.toml", "did you mean 'tokens_per_s'", sweep("[pareto]\nx = 'token_per_s'\ny = 'cycle_s'")),
    Row("sweep s.toml", "'cycle_s' on two axes", sweep("[pareto]\nx = 'cycle_s'\ny = 'cycle_s'")),
    Row(
        "sweep s.toml",
        "did you mean 'workload.batch'",
        sweep("[pareto]\nx = 'held_bytes'\ny = 'cycle_s'\ngroup = ['workload.bacth']"),
    ),
    Row(
        "sweep s.toml", "from 1 to 4 are two values", sweep("[axes]\n'workload.batch' = {from = 1, to = 4, points = 1}")
    ),
    Row("sweep s.toml --out run --json run/config.toml", "that the run directory keeps", sweep("")),
    Row("sweep s.toml --out run --json run/figures/new.json", "that the run directory keeps", sweep("")),
]
