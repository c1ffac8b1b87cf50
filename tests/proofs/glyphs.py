"""Says of a picture of spaced-out characters whether they are characters or boxes. Standard library only.

The programs under test draw TEXT with wide spaces between its characters, black on white, on one line. A font that lacks them shows
the same box for each (or nothing). So: find as many pieces of ink as there are characters, and no two of them alike. The
same programs draw characters that no font has (UNASSIGNED); that picture must be found to be boxes, or this test could not fail.
"""

import struct
import zlib

# No two share much of their shape. Simplified forms that Japanese fonts lack are among them.
TEXT = "销售额数量单价地区报告检查"
# Code points without a character in any version of Unicode so far: every font shows its "missing" glyph.
UNASSIGNED = "\u0378\u0379\u0380\u0381\u0382\u038b\u038d\u03a2"
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def read_png(data):
    """Rows of 0 (white) to 255 (black); transparent is white."""
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("not a PNG")
    at, packed, palette, alpha = 8, b"", b"", b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        if zlib.crc32(kind + body) != struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0]:
            raise ValueError(f"PNG chunk {kind!r} is damaged")
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            if depth != 8 or interlaced:
                raise ValueError(f"PNG of {depth} bits, interlaced {interlaced}: not read here")
        elif kind == b"PLTE":
            palette = body
        elif kind == b"tRNS":
            alpha = body
        elif kind == b"IDAT":
            packed += body
        at += 12 + size
    raw = zlib.decompress(packed)
    n = CHANNELS[colour]
    stride, rows, previous = width * n, [], bytearray(width * n)
    for y in range(height):
        start = y * (stride + 1)
        line = bytearray(raw[start + 1:start + 1 + stride])
        unfilter(raw[start], line, previous, n)
        previous = line
        rows.append(ink(line, colour, n, palette, alpha))
    return rows


def unfilter(kind, line, above, n):
    if kind == 1:
        for i in range(n, len(line)):
            line[i] = (line[i] + line[i - n]) & 255
    elif kind == 2:
        for i in range(len(line)):
            line[i] = (line[i] + above[i]) & 255
    elif kind == 3:
        for i in range(len(line)):
            line[i] = (line[i] + ((line[i - n] if i >= n else 0) + above[i]) // 2) & 255
    elif kind == 4:
        for i in range(len(line)):
            a, b, c = (line[i - n] if i >= n else 0), above[i], (above[i - n] if i >= n else 0)
            p = a + b - c
            da, db, dc = abs(p - a), abs(p - b), abs(p - c)
            line[i] = (line[i] + (a if da <= db and da <= dc else b if db <= dc else c)) & 255


def ink(line, colour, n, palette, alpha):
    row = bytearray(len(line) // n)
    for x in range(len(row)):
        p = line[x * n:x * n + n]
        opaque = 255
        if colour == 3:
            opaque = alpha[p[0]] if p[0] < len(alpha) else 255
            p = palette[p[0] * 3:p[0] * 3 + 3]
        elif colour in (4, 6):
            opaque = p[-1]
            p = p[:-1]
        row[x] = (255 - sum(p) // len(p)) * opaque // 255
    return row


def pieces(rows, gap):
    """Cuts the picture at each run of at least `gap` columns without ink; each piece is cropped to its ink."""
    width = len(rows[0])
    inked = [any(row[x] > 60 for row in rows) for x in range(width)]
    spans, start, blank = [], None, 0
    for x in range(width + gap):
        if x < width and inked[x]:
            start = x if start is None else start
            blank = 0
        elif start is not None:
            blank += 1
            if blank >= gap:
                spans.append((start, x - blank + 1))
                start = None
    cut = []
    for left, right in spans:
        part = [row[left:right] for row in rows]
        with_ink = [y for y, row in enumerate(part) if max(row) > 60]
        cut.append(part[with_ink[0]:with_ink[-1] + 1])
    return cut


def difference(a, b):
    """0 for equal pieces, 1 for such that have no ink in common; compared at the best of nine small shifts."""
    height, width = max(len(a), len(b)), max(len(a[0]), len(b[0]))
    total = max(sum(map(sum, a)), sum(map(sum, b)))

    def at(piece, y, x):
        return piece[y][x] if 0 <= y < len(piece) and 0 <= x < len(piece[0]) else 0

    best = 1.0
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            differs = sum(abs(at(a, y, x) - at(b, y + dy, x + dx)) for y in range(height) for x in range(width))
            best = min(best, differs / (2 * total))
    return best


def judge(png, count, gap):
    """None when the picture has `count` pieces of ink, no two alike; else what is wrong."""
    found = pieces(read_png(png), gap)
    if len(found) != count:
        return f"{len(found)} pieces of ink instead of {count}"
    for i in range(count):
        for j in range(i):
            d = difference(found[i], found[j])
            if d < 0.15:
                return f"character {j + 1} and {i + 1} look the same (difference {d:.2f}): boxes"
    return None
