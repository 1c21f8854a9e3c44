"""Lossy compressions that are fitted to calibration text; entries of the registry `jaxspec.settings.compressions`."""

from jaxspec.compress.fitted.networks import CalibrationSample, fitted_config, fitted_footprint, fitted_network

__all__ = ["CalibrationSample", "fitted_config", "fitted_footprint", "fitted_network"]
