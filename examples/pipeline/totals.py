import csv
from collections import defaultdict
from decimal import Decimal


def read(path):
    """Returns the number of orders and the total of each customer."""
    totals, orders = defaultdict(Decimal), 0
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            totals[row["customer"]] += Decimal(row["amount"])
            orders += 1
    return orders, dict(sorted(totals.items()))
