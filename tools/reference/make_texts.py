"""The public-domain texts of the goldens: chapters of Jane Austen's novels (died 1817).

Source: Debian package r-cran-janeaustenr 1.0.0-1 (the novels in Project Gutenberg's transcription,
public domain), read without R: the lazy-load database holds one zlib-compressed R object a novel.
Lines of a paragraph are joined by a space, paragraphs stay apart by an empty line.

Rerun: apt-get download r-cran-janeaustenr && dpkg -x r-cran-janeaustenr*.deb root
       python3 tools/reference/make_texts.py root/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb \
           tests/golden/texts

Files: persuasion.txt (chapters 1-2, for perplexity), emma.txt (start of chapter 1, for logits).
The two other texts of that folder, code.txt and languages.txt, were written for this project.
"""

import argparse
import pathlib
import re
import struct
import zlib

import provenance


def objects(rdb):
    """Every zlib-compressed object of an R lazy-load database, in file order."""
    at = 0
    while at < len(rdb):
        size = struct.unpack(">I", rdb[at : at + 4])[0]
        stream = zlib.decompressobj()
        data = stream.decompress(rdb[at + 4 :])
        if len(data) != size or not stream.eof:
            raise ValueError(f"object at {at}: {len(data)} bytes, expected {size}")
        yield data
        at = len(rdb) - len(stream.unused_data)


def lines_of(data):
    """The strings of a serialised R character vector (XDR): CHARSXP = flags ending in 09, length."""
    at = data.index(b"\x00\x00\x00\x10") + 4  # STRSXP without attributes
    count = struct.unpack(">I", data[at : at + 4])[0]
    at += 4
    for _ in range(count):
        flags, size = struct.unpack(">Ii", data[at : at + 8])
        if flags & 0xFF != 9:
            raise ValueError(f"flags {flags:#x} at {at}: not a string")
        at += 8
        yield data[at : at + max(size, 0)].decode("utf-8")
        at += max(size, 0)


def paragraphs(lines):
    return [" ".join(p.split()) for p in re.split(r"\n\s*\n", "\n".join(lines)) if p.strip()]


def between(parts, first, last):
    """The paragraphs from the heading `first` up to the heading `last`."""
    start = parts.index(first)
    return parts[start : parts.index(last, start)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rdb", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    novels = {}
    for data in objects(args.rdb.read_bytes()):
        lines = list(lines_of(data))
        novels[lines[0]] = lines
    persuasion = between(paragraphs(novels["Persuasion"]), "Chapter 1", "Chapter 3")
    (args.out / "persuasion.txt").write_text("\n\n".join(persuasion) + "\n")
    emma = paragraphs(novels["EMMA"])
    start = emma.index("CHAPTER I")
    (args.out / "emma.txt").write_text("\n\n".join(emma[start : start + 18]) + "\n")
    provenance.write(args.out, __file__, [], inputs=[args.rdb], source="r-cran-janeaustenr 1.0.0-1")


if __name__ == "__main__":
    main()
