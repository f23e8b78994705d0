"""Step times predicted from a model's shape against measured ones of A100 clusters, those that come with vTrain.

    bench/run vtrain [--rows FILE...] [--print-rows]   errors, beside vTrain's own
    bench/run vtrain --fit                             fits the constants again; bench/vtrain.json keeps them
    bench/run vtrain --cross-validate                  fits them on ten different tenths of the rows

Predicted by formula (src/trireme/cost/training_cost.h) with the constants of bench/vtrain.json. Four of them are fitted
to every tenth row of each table in ../shared/data/vtrain, from the first; those rows are left out of the errors. Four
more (overlap_exponent, memory_efficiency and the two bandwidths) are round numbers of other sources, kept because all
rows of those tables agree with them, as they do with the form of the model: only rows of other tables are unseen.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("TRIREME_BUILD", ROOT / "build"))


def main() -> None:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return
    subprocess.run(["cmake", "--build", BUILD, "--target", "vtrain_bench"], check=True, stdout=subprocess.DEVNULL)
    tables = ["--constants", ROOT / "bench/vtrain.json", "--data", ROOT.parent / "shared/data/vtrain"]
    sys.exit(subprocess.run([BUILD / "bin/vtrain_bench", *tables, *sys.argv[1:]]).returncode)


if __name__ == "__main__":
    main()
