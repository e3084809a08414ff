"""Writes src/tokenizer/jinja/unicode_tables.inc: what Python's str says about each character.

Program: Python (its Unicode version is written into the file). No randomness, no input.
Rerun:   python tools/reference/make_unicode_tables.py src/tokenizer/jinja/unicode_tables.inc

Mappings are runs {first, last, step, delta}: every step-th character from first to last maps to
itself plus delta. Characters that map to several are listed apart, padded with 0. kTitle holds only
what differs from kUpper.
"""

import pathlib
import sys
import unicodedata

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def runs(mapping):
    out = []
    for point, delta in sorted(mapping.items()):
        if out:
            first, last, step, previous = out[-1]
            gap = point - last
            if previous == delta and (gap == step or (first == last and gap in (1, 2))):
                out[-1] = (first, point, gap, delta)
                continue
        out.append((point, point, 1, delta))
    return out


def mapping_of(convert, otherwise=lambda c: c):
    single, several = {}, {}
    for point in POINTS:
        text = convert(chr(point))
        if text == otherwise(chr(point)):
            continue
        if len(text) == 1:
            single[point] = ord(text) - point
        else:
            several[point] = [ord(c) for c in text]
    return runs(single), several


def ranges(predicate):
    out = []
    for point in range(0x110000):
        if not predicate(chr(point)):
            continue
        if out and out[-1][1] == point - 1:
            out[-1][1] = point
        else:
            out.append([point, point])
    return out


def write_table(file, name, kind, rows):
    file.write(f"constexpr {kind} {name}[] = {{\n")
    line = "   "
    for row in rows:
        item = " {" + ", ".join(f"0x{v:X}" if v >= 0 else f"-0x{-v:X}" for v in row) + "},"
        if len(line) + len(item) > 100:
            file.write(line + "\n")
            line = "   "
        line += item
    file.write(line + "\n};\n")


def main():
    path = pathlib.Path(sys.argv[1])
    with open(path, "w", encoding="ascii", newline="\n") as file:
        file.write("// Made by tools/reference/make_unicode_tables.py; Unicode ")
        file.write(f"{unicodedata.unidata_version}. Not for editing.\n")
        tables = {
            "Upper": mapping_of(str.upper),
            "Lower": mapping_of(str.lower),
            "Title": mapping_of(str.title, str.upper),
        }
        for name, (single, several) in tables.items():
            write_table(file, f"k{name}Runs", "CaseRun", single)
            rows = [[p, *(c + [0, 0, 0])[:3]] for p, c in sorted(several.items())]
            write_table(file, f"k{name}Several", "CaseSeveral", rows)
        hidden = ranges(lambda c: not c.isprintable())
        write_table(file, "kNotPrintable", "PointRange", hidden)


if __name__ == "__main__":
    main()
