import atexit

atexit.register(print, "to", file=3)


class Loud:
    def __del__(self):
        print("deleted")


loud = Loud()
print("end of the program")
