"""What follows from a priced design: sensitivities, design points, calibration, kernel widths."""
