import unittest
from pathlib import Path

from stack import Stack


class StackTest(unittest.TestCase):
    def test_starts_empty(self):
        self.assertEqual(len(Stack()), 0)

    def test_last_in_first_out(self):
        s = Stack()
        s.push(1)
        s.push(2)
        self.assertEqual((s.pop(), s.pop()), (2, 1))

    def test_pop_of_nothing(self):
        with self.assertRaises(IndexError):
            Stack().pop()

    @classmethod
    def tearDownClass(cls):
        Path("test-report.txt").write_text("written beside the code, and yet nowhere on the host\n")
