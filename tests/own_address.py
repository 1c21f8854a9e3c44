"""Where processes of one test find one another."""

import socket


def own_address():
    """HOST:PORT on this machine that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def launch_flags(count):
    """Flags of each of `count` processes that share one run on this machine."""
    where = own_address()
    return [["--coordinator", where, "--processes", str(count), "--process-id", str(i)] for i in range(count)]
