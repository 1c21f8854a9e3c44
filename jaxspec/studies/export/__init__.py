"""`jaxspec export`: the hard draft of a finished run as a directory that other engines open."""
