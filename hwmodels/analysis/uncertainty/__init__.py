"""How sure a predicted number is: errors of calibrated kernels and of counted acceptance, carried to intervals."""
