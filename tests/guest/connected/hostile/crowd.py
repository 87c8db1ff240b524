# SPDX-License-Identifier: GPL-2.0

# Asks for eight connections each tenth of a second, by each name but the last one in turn, and never confirms what is
# accepted. By the last name, asks every two seconds for one that it confirms and ends, ten times, and prints how many it
# got. Follows senders.py.

*crowd, honest = names
got = 0
for turn in range(200):
    for _ in range(8):
        Sender(crowd[turn % len(crowd)])
    if turn % 20 == 19:
        for one in confirm([Sender(honest)]):
            one.end()
            got += 1
    time.sleep(0.1)
print("got", got, flush=True)
