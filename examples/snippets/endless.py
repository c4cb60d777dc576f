a, b = 0, 1
while a != 54:
    a, b = b, a + b
print(a)
