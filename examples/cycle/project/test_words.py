import unittest

import words


class Words(unittest.TestCase):
    def test_count(self):
        self.assertEqual(words.count("one two"), 2)
        self.assertEqual(words.count("one\n  two\tthree "), 3)
        self.assertEqual(words.count(""), 0)

    def test_longest(self):
        self.assertEqual(words.longest("one three seven"), "three")
        self.assertEqual(words.longest(" "), "")


if __name__ == "__main__":
    unittest.main()
