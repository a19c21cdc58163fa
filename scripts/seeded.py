"""Makes test data from a seed, the same bytes on every machine.

    seeded.py random BYTES SEED OUT
    seeded.py edit COUNT SEED IN OUT    COUNT small edits: a third each of replaced, inserted and deleted runs
"""

import os
import random
import sys

LONGEST_EDIT = 32


def edit(data: bytes, count: int, seed: int) -> bytes:
    """Copies `data` with `count` edits of 1 to LONGEST_EDIT bytes at places drawn from `seed`."""
    rng = random.Random(seed)
    places = sorted(rng.sample(range(len(data) - LONGEST_EDIT), count))
    out, done = bytearray(), 0
    for place in places:
        place = max(place, done)
        length = rng.randint(1, LONGEST_EDIT)
        kind = rng.choice(("replace", "insert", "delete"))
        out += data[done:place]
        if kind != "delete":
            out += rng.randbytes(length)
        done = place if kind == "insert" else place + length
    return bytes(out + data[done:])


def main() -> None:
    what, number, seed, *paths = sys.argv[1:]
    target = paths[-1]
    if os.path.exists(target):
        return
    if what == "random":
        made = random.Random(int(seed)).randbytes(int(number))
    elif what == "edit":
        with open(paths[0], "rb") as source:
            made = edit(source.read(), int(number), int(seed))
    else:
        sys.exit(__doc__)
    with open(target + ".part", "wb") as out:
        out.write(made)
    os.rename(target + ".part", target)


if __name__ == "__main__":
    main()
