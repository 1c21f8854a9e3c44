"""`jaxspec predict`: price a network on devices without running it."""
