# SPDX-License-Identifier: GPL-2.0

# Makes and removes directories, and writes files, of the fabric.

os.chdir("/sys/kernel/config/ib_hwsim/x")

def put(path, text):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)
    return 0

def get(path):
    with open(path, "rb") as file:
        return file.read().strip()

# Writes one text with each allocation failing, and the other one after that. What was refused has changed nothing.
def change(path, text, back):
    before = get(path)
    def undo(error):
        now = get(path)
        if error and now != before:
            sys.exit(f"{path}: error {error}, and {now} instead of {before}")
        if not error:
            put(path, back)
    each(lambda: put(path, text), undo)

def remake(path):
    each(lambda: os.mkdir(path) or 0, lambda error: error or os.rmdir(path))
