class Stack:
    def __init__(self):
        self._items = []

    def push(self, item):
        self._items.append(item)

    def pop(self):
        return self._items.pop()

    def __len__(self):
        return len(self._items)

    def __iter__(self):
        return iter(self._items)  # from the bottom, although everybody expects the top: test_known_bug.py
