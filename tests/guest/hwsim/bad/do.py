# SPDX-License-Identifier: GPL-2.0

# Does what each argument says, in the first one as directory: `write PATH TEXT`, `mkdir PATH`, `rmdir PATH`.
# Prints the error of each, or "ok".

import errno, os, sys
os.chdir(sys.argv[1])
for action in sys.argv[2:]:
    verb, path, *text = action.split(" ", 2)
    try:
        if verb == "mkdir":
            os.mkdir(path)
        elif verb == "rmdir":
            os.rmdir(path)
        else:
            fd = os.open(path, os.O_WRONLY)
            try:
                os.write(fd, (text[0] if text else "").encode())
            finally:
                os.close(fd)
        print("ok")
    except OSError as e:
        print(errno.errorcode[e.errno])
