who = "somebody"
unrelated = 3
