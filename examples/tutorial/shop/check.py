import sys

from prices import total

got = total([1, 2, 3])
print("total([1, 2, 3]) is", got)
sys.exit(got != 6)
