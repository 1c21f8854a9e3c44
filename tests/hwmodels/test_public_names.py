"""What a user of the hardware models needs comes from `hwmodels` itself."""

import importlib
import pkgutil

import hwmodels

#: Packages and modules whose public names all stand at the top.
ROOMS = ("network", "speculation", "step")
MODULES = ("analysis.design_point", "analysis.sensitivity", "analysis.kernel_widths")

#: Two things have the first name: a compute unit, and the fit of a verification's time. The others are one command's page.
ELSEWHERE = {"Roofline", "design_page", "page_steps", "changed_trees", "changes_by_name"}


def modules():
    for room in ROOMS:
        package = importlib.import_module(f"hwmodels.{room}")
        yield from (module.name for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."))
    yield from (f"hwmodels.{name}" for name in MODULES)


def test_every_public_name_comes_from_the_package():
    for name in modules():
        module = importlib.import_module(name)
        for public in set(getattr(module, "__all__", ())) - ELSEWHERE:
            assert getattr(hwmodels, public) is getattr(module, public), f"{name}.{public}"
            assert public in hwmodels.__all__
    assert callable(hwmodels.design_point)
