def total(prices):
    return sum(prices) * 100


def cheapest(prices):
    return min(prices)
