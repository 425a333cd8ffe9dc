def matmul(a, b):
    return a.matmul(b)
