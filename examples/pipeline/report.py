import csv
import json
import os
from pathlib import Path

from totals import read

source, output = Path(os.environ["HUTCH_INPUT"]), Path(os.environ["HUTCH_OUTPUT"])
currency = os.environ["CURRENCY"]

orders, totals = read(source / "orders.csv")
(output / "scratch.tmp").write_text("not wanted: the run file asks for *.json and *.csv\n")
with open(output / "report.csv", "w", newline="") as f:
    table = csv.writer(f)
    table.writerow(["customer", currency])
    table.writerows(totals.items())
(output / "report.json").write_text(
    json.dumps(
        {"title": os.environ["TITLE"], "orders": orders, "totals": {k: str(v) for k, v in totals.items()}},
        indent=2,
    )
)
print(f"{orders} orders of {len(totals)} customers")
