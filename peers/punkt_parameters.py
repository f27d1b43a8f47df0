"""Converts NLTK's English Punkt parameters: from the crate that contains them to this project's table, and from the
table to a folder that NLTK reads.

    python peers/punkt_parameters.py table ~/.cargo/registry/src/*/punkt-1.0.5/src/data/english.json > crates/verify/data/punkt_english.tsv
    python peers/punkt_parameters.py nltk FOLDER     # then NLTK_DATA=FOLDER
"""

import json
import pathlib
import sys

TABLE = pathlib.Path(__file__).parent.parent / "crates/verify/data/punkt_english.tsv"


def table(source):
    data = json.load(open(source))
    print(
        "# NLTK's pretrained English Punkt parameters (Kiss & Strunk), as carried by the crate punkt 1.0.5"
        " (MIT OR Apache-2.0)."
    )
    print(
        "# Lines: `abbreviation\\tTYPE`, `starter\\tTYPE`, `collocation\\tTYPE\\tTYPE`, `context\\tFLAGS\\tTYPE`;"
        " written by peers/punkt_parameters.py."
    )
    for word in sorted(data["abbrev_types"]):
        print(f"abbreviation\t{word}")
    for word in sorted(data["sentence_starters"]):
        print(f"starter\t{word}")
    for first, second in sorted(data["collocations"]):
        print(f"collocation\t{first}\t{second}")
    for word, flags in sorted(data["ortho_context"].items()):
        print(f"context\t{flags}\t{word}")


def nltk_folder(folder):
    """Writes the table to tokenizers/punkt_tab/english in the folder."""
    rows = {"abbreviation": [], "starter": [], "collocation": [], "context": []}
    for line in TABLE.read_text().split("\n"):
        kind, *rest = line.split("\t")
        if kind in rows:
            rows[kind].append(rest)
    out = pathlib.Path(folder) / "tokenizers/punkt_tab/english"
    out.mkdir(parents=True, exist_ok=True)
    (out / "abbrev_types.txt").write_text("\n".join(word for (word,) in rows["abbreviation"]))
    (out / "sent_starters.txt").write_text("\n".join(word for (word,) in rows["starter"]))
    (out / "collocations.tab").write_text("\n".join("\t".join(pair) for pair in rows["collocation"]))
    (out / "ortho_context.tab").write_text("\n".join(f"{word}\t{flags}" for flags, word in rows["context"]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["table"] and len(sys.argv) == 3:
        table(sys.argv[2])
    elif sys.argv[1:2] == ["nltk"] and len(sys.argv) == 3:
        nltk_folder(sys.argv[2])
    else:
        sys.exit(__doc__)
