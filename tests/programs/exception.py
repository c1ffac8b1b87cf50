def inner(n):
    return 1 / n


def outer():
    try:
        inner(0)
    except ZeroDivisionError as e:
        raise ValueError("wrapped") from e


try:
    outer()
except ValueError:
    raise KeyError("汉字")
