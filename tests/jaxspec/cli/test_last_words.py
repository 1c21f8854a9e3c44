"""An interrupt while files are written: what fails because they are taken back is not printed beside the last line."""

import signal
import subprocess
import sys

import pytest

#: A command that another thread and its own one write for, and that fail once their files are gone.
FAILING = """
import os, sys, threading, time
from jaxspec.cli import app, process
from jaxspec.interruption import UNDER_WAY

gone = threading.Event()

def undo():
    gone.set()
    time.sleep(0.3)  # long enough for both threads to fail

def work():
    gone.wait()
    raise RuntimeError("another thread has lost its files")

def command(arguments):
    UNDER_WAY.begin(work, undo)
    threading.Thread(target=work).start()
    print("ready", flush=True)
    gone.wait()
    os.write(2, b"native code has lost its files\\n")
    raise RuntimeError("the main thread has lost its files")

app.main = command
process.main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_has_the_last_word(number):
    process = subprocess.Popen([sys.executable, "-c", FAILING], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert error == b"jaxspec: interrupted; nothing is half-written; the same command can be run again\n"
    assert process.returncode == 130
