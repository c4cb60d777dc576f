import unittest

from stack import Stack


class KnownBug(unittest.TestCase):
    def test_iterates_from_the_top(self):
        s = Stack()
        s.push(1)
        s.push(2)
        self.assertEqual(list(s), [2, 1])
